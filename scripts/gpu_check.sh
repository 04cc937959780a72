#!/usr/bin/env bash
# Checks the replay harness on one GPU against float32 on the CPU, then prints the table of ratios for the
# paper's four architectures with random weights. What is not begun after 460 seconds is left out of the table.
# Exit code 0: every check holds.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
command -v "$python" >/dev/null || {
  echo "gpu_check: there is no $python: run \`make install\`, or say PYTHON=/path/to/python" >&2
  exit 2
}
export HF_HUB_OFFLINE=1
exec "$python" scripts/gpu_check.py "$@"
