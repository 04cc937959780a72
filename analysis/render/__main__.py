"""`python -m analysis.render results/<study>` writes generations.html; the analysis writes report.html."""

import argparse
import hashlib
import sys
from collections.abc import Sequence
from pathlib import Path

from analysis.core import locks
from analysis.core.run import REPOSITORY, ended, refuse_results
from analysis.core.verdict_text import complain
from analysis.render.generations import FILE, Read, generations_page, read
from kvexp.files import write_whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the page; every mistake becomes one sentence and an exit code."""
    options = _parser().parse_args(arguments)
    return ended(lambda: _run(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis.render",
        description="Write generations.html, a browser of the answers of a study.",
        epilog="exit codes: 0 written, 1 internal error, 2 usage, 4 integrity",
    )
    parser.add_argument("results", type=Path, help="results/<study>")
    parser.add_argument(
        "--registration",
        type=Path,
        metavar="DIR",
        help="folder of registrations, as for python -m analysis",
    )
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the page goes (default: results)")
    parser.add_argument("--anew", action="store_true", help="although other code was sealed; wants --out")
    return parser


def _run(options: argparse.Namespace) -> int:
    refuse_results(options)
    found = read(options.results, REPOSITORY, options.registration, is_anew=options.anew)
    folder: Path = options.out or options.results
    if not len(found.table):
        print(f"study {found.study} has no generations to browse")
        return 0
    page = generations_page(found)
    _look(options.results, found, page)  # before anybody can read it
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / FILE, page.encode())
    print(f"{folder / FILE}: {len(found.rows):,} of {len(found.table):,} generations")
    return 0


def _look(results: Path, found: Read, page: str) -> None:
    """Reading the answers of a sealed suite before it is locked is a look like any other."""
    if not found.open_suites:
        return
    rows = int(found.table["present"][found.table["suite"].isin(found.open_suites)].sum())
    digest = hashlib.sha256(page.encode()).hexdigest()
    if words := locks.record_look(results, found.open_suites, [], rows, digest):
        complain(words)


if __name__ == "__main__":
    sys.exit(main())
