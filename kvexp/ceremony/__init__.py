"""Seal, stamp, lock, amend and verify: what binds claims, code and data to each other and to a time."""
