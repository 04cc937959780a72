"""Write a results folder with known truths: rates by cell, AUCs by signal and label, clustered errors.

The truths stand in a TOML file (scripts/planting/targets.py says what it may hold); `--show` prints each
beside what the rows have in expectation. The same file, rows and seed give the same bytes.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # scripts/ is not installed

from kvexp.errors import KvexpError
from scripts.planting.study import Study
from scripts.planting.targets import read

PAPER = Path(__file__).parent / "planting" / "paper.toml"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="make_planted_logs.py", description="Write a results folder with known truths."
    )
    parser.add_argument("out", type=Path, help="results folder to make; its name is the study's")
    parser.add_argument("--targets", type=Path, default=PAPER, help="TOML (default: the paper's numbers)")
    parser.add_argument("--rows", type=int, help="about so many generations, by more or fewer examples")
    parser.add_argument("--seed", type=int, default=0, help="of all that is drawn (default: 0)")
    parser.add_argument("--show", action="store_true", help="print the targets")
    options = parser.parse_args(arguments)
    if options.rows is not None and options.rows < 1:
        parser.error("--rows must be at least 1")
    try:
        targets = read(options.targets)
        targets = targets if options.rows is None else targets.sized(options.rows)
        study = Study(targets, options.seed)
        count = study.write(options.out)
    except KvexpError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except OSError as error:
        print(f"error: {options.out} cannot be written: {error.strerror}", file=sys.stderr)
        return 2
    if options.show:
        for one in study.planted:
            print(f"{one.target:7.3f} {one.value:7.3f}  {one.words}")
    print(f"{count:,} generations in {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
