"""Running one shard, from its attempt to its footer, and starting many."""
