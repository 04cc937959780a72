"""What describes a study and decides nothing: one file a part, with its numbers, table and picture."""
