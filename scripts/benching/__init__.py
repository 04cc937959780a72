"""What bench_harness.py and gpu_check.py measure, and the peers' way that they compare with."""
