"""How long does the whole analysis take, how much memory, and are two runs the same bytes?

Plants studies of several sizes (scripts/make_planted_logs.py), runs `python -m analysis` on each twice in a
process of its own, and prints seconds, peak memory and how both grow. 1 if two runs differ.
"""

import argparse
import hashlib
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SIZES = (10_000, 98_412, 300_000)
FINE = (0, 3)  # decided; the paper's attention suite is not planted, so its claims are incomplete
KILOBYTES = 1 if sys.platform != "darwin" else 1024  # what ru_maxrss counts in


@dataclass(frozen=True)
class Run:
    """One analysis."""

    wall: float  # seconds by the clock
    cpu: float  # seconds of processor time, which others on the machine hardly change
    peak: float  # megabytes of memory at most
    digest: str  # of the names and bytes of all files that it wrote


def plant(folder: Path, rows: int) -> int:
    """A study of about so many generations; returns how many."""
    script = ROOT / "scripts" / "make_planted_logs.py"
    command = [sys.executable, str(script), str(folder), "--rows", str(rows)]
    told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return int(told.split()[0].replace(",", ""))


def analyse(results: Path, out: Path) -> Run:
    """Run it as a user does."""
    command = [sys.executable, "-m", "analysis", str(results), "--out", str(out)]
    started = time.perf_counter()
    with tempfile.TemporaryFile() as errors:
        child = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        wall = time.perf_counter() - started
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        if child.returncode not in FINE:
            sys.exit(f"the analysis of {results} failed: {errors.read().decode(errors='replace')}")
    peak = usage.ru_maxrss / 1024 / KILOBYTES
    return Run(wall, usage.ru_utime + usage.ru_stime, peak, digest(out))


def digest(folder: Path) -> str:
    """Of every file below, with its name."""
    total = hashlib.sha256()
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        body = hashlib.sha256(path.read_bytes()).hexdigest()
        total.update(f"{path.relative_to(folder).as_posix()} {body}\n".encode())
    return total.hexdigest()


def growth(before: tuple[int, float], after: tuple[int, float]) -> str:
    """The power of the number of rows that a quantity grows with: 1 is linear."""
    return f"{math.log(after[1] / before[1]) / math.log(after[0] / before[0]):.2f}"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench_analysis.py", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=SIZES, help="sizes (default: 10k, 98k, 300k)")
    options = parser.parse_args(arguments)
    if min(options.rows) < 1:
        parser.error("--rows start at 1")
    head = [
        "generations",
        "wall s",
        "CPU s",
        "peak MB",
        "CPU grows as rows^",
        "memory as rows^",
        "same bytes",
    ]
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    before: tuple[int, Run] | None = None
    is_same = True
    for wanted in sorted(options.rows):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            rows = plant(folder / "paper", wanted)
            first, second = (analyse(folder / "paper", folder / out) for out in ("first", "second"))
        grows = ["", ""]
        if before is not None and rows > before[0]:
            size, run = before
            grows = [growth((size, run.cpu), (rows, first.cpu)), growth((size, run.peak), (rows, first.peak))]
        same = first.digest == second.digest
        is_same = is_same and same
        cells = [f"{rows:,}", f"{first.wall:.1f}", f"{first.cpu:.1f}", f"{first.peak:.0f}", *grows]
        print(f"| {' | '.join([*cells, 'yes' if same else 'NO'])} |", flush=True)
        before = (rows, first)
    return int(not is_same)


if __name__ == "__main__":
    sys.exit(main())
