"""What the registration verbs of the command line do and print, one file a verb."""
