"""What scripts/bench_harness.py and scripts/gpu_check.py measure, and the peers' way that they compare with."""
