"""What to run: from conf/ and the words of a command to shards and the grid of expected rows."""
