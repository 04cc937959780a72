"""Models: the embedded one, the hub's and those in a folder, from their files to loaded weights."""
