"""Slurm: what is submitted, where it is now, how it ended. The files of a shard stay the truth."""
