"""The command line of the analysis: read, decide, write, print. Exit codes: see --help."""

import argparse
import errno
import os
import secrets
import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

from analysis import claims
from analysis.as_json import to_json
from analysis.load import check_folder, load
from analysis.outputs import outputs
from analysis.report import Report, analyse
from analysis.text import to_text
from kvexp.errors import KvexpError
from kvexp.prereg.registration import load_folder
from kvexp.terminal import printable

REPOSITORY = Path(__file__).resolve().parent.parent
TRACEBACK = "KVEXP_TRACEBACK"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the analysis; every mistake becomes one sentence and an exit code."""
    options = _parser().parse_args(arguments)
    try:
        return _run(options)
    except KvexpError as error:
        _complain(f"error: {error}")
        return error.exit_code
    except BrokenPipeError:  # the reader, for instance `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        _complain(f"error: {error.filename or 'a file'}: {error.strerror}")
        return 2
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        hint = f"set {TRACEBACK}=1 to see where"
        _complain(f"internal error: {type(error).__name__}: {error} ({hint})")
        return 1


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m analysis",
        description="Decide the registered claims of a study from its logs.",
        epilog="exit codes: 0 decided, 1 internal error, 2 usage, 3 incomplete, 4 integrity",
    )
    parser.add_argument("results", type=Path, help="results/<study>")
    parser.add_argument(
        "--registration",
        type=Path,
        metavar="DIR",
        help="folder of registrations (default: preregistration/<study> of this repository)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where verdicts.json, verdicts.md, figures/ and tables/ go (default: results)",
    )
    parser.add_argument("--json", action="store_true", help="print the JSON instead of the tables")
    return parser


def _run(options: argparse.Namespace) -> int:
    results: Path = options.results
    check_folder(results)  # before the registration that its name asks for
    folder = options.registration or REPOSITORY / "preregistration" / results.resolve().name
    registrations = load_folder(folder, claims.has_file)
    owners = {suite: one.content.id for one in registrations for suite in one.content.suites}
    study = load(results, owners)
    report = analyse(study, registrations)
    as_json = to_json(report)
    _write(options.out or results, as_json, report)
    print(as_json if options.json else to_text(report, is_full=False), end="", flush=True)
    if study.problems:
        rest = len(study.problems) - 1
        more = f" (and {rest} more)" if rest else ""
        _complain(f"error: integrity: {study.problems[0].message}{more}")
    return report.exit_code


def _write(folder: Path, as_json: str, report: Report) -> None:
    """Write all files or say in one line what was not written; the verdicts are printed anyway."""
    # Indented, not fenced: no text can end an indented block.
    markdown = f"# Verdicts\n\n{textwrap.indent(to_text(report, is_full=True), '    ')}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("verdicts.json", as_json), ("verdicts.md", markdown)):
            _replace(folder / name, text)
    except OSError as error:
        _complain(f"nothing was written to {folder}: {error.strerror}")
        return
    try:
        for name, content in outputs(report.attention):
            _put(folder / name, content)
    except OSError as error:
        _complain(f"not all figures and tables were written to {folder}: {error.strerror}")


def _put(path: Path, text: str | None) -> None:
    """Write a file in a folder of its own, or see to it that it is not there."""
    if path.parent.is_symlink():
        raise OSError(errno.ENOTDIR, f"{path.parent.name} is a link", str(path.parent))
    path.parent.mkdir(exist_ok=True)
    if text is None:
        path.unlink(missing_ok=True)
    else:
        _replace(path, text)


def _replace(path: Path, text: str) -> None:
    """Write a file whole, by rename; a link in its place is replaced, and none is ever followed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def _complain(text: str) -> None:
    """One line on stderr, whatever the names and messages in it hold."""
    print(printable(text), file=sys.stderr)
