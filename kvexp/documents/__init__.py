"""Documents: what a registration, a condition, a seal, a stamp, a lock and evidence are on disk."""
