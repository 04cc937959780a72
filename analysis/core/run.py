"""The command line of the analysis: read, decide, write, print, then describe. Exit codes: see --help."""

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from analysis.core import blind, verdict_text
from analysis.core.folders import Folders
from analysis.core.locks import record_look
from analysis.core.open import opened
from analysis.core.study import check_folder
from analysis.core.verdict_json import to_json
from analysis.core.verdict_text import complain, joined, summary, to_text
from analysis.core.verdicts import Report, analyse, suites_of
from kvexp.documents.forms import LOCKED
from kvexp.errors import KvexpError
from kvexp.files import write_whole

# How a run of the analysis ends: every mistake becomes one sentence and an exit code.


TRACEBACK = "KVEXP_TRACEBACK"


def ended(run: Callable[[], int]) -> int:
    """The exit code of `run`, or of the mistake that ended it."""
    try:
        return run()
    except KvexpError as error:
        complain(f"error: {error}")
        for line in error.details:
            complain(f"  {line}")
        return error.exit_code
    except BrokenPipeError:  # the reader, for instance `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except OSError as error:
        complain(f"error: {error.filename or 'a file'}: {error.strerror}")
        return 2
    except Exception as error:
        complain(f"internal error: {words_of(error)}")
        return 1


def words_of(error: Exception) -> str:
    """An error that nobody foresaw, in a line. Raises it again where its traceback is asked for."""
    if os.environ.get(TRACEBACK):
        raise error
    return f"{type(error).__name__}: {error} (set {TRACEBACK}=1 to see where)"


REPOSITORY = Path(__file__).resolve().parents[2]


# Describes a report, writes what describes it below a folder (None: nowhere), and returns text for people.
Describe = Callable[[Report, Path | None], str]
# Runs the sealed code of a repository on results and the registrations of some folders; gives its exit code.
Restore = Callable[[Path, Path, list[Path], list[str]], int]


def main(describe: Describe, restore: Restore, arguments: Sequence[str] | None = None) -> int:
    """Run the analysis; every mistake becomes one sentence and an exit code.

    No seal covers `describe`, which is called after the verdicts are written and printed, nor `restore`,
    which is called for --as-sealed: what it restores is compared with the seals there.
    """
    options = _parser().parse_args(arguments)
    return ended(lambda: _run(options, describe, restore))


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
        help="folder of registrations, unless they are locked with the logs (default: the study's "
        "preregistration/, else preregistration/<study> of this repository)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="where verdicts, details, figures/ and tables/ go (default: results; nowhere with --blind)",
    )
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--as-sealed",
        action="store_true",
        help="judge by the code that was sealed, from locks/core or git, in a temporary folder",
    )
    way.add_argument(
        "--anew",
        action="store_true",
        help="judge by the code that is here although other code was sealed; wants --out",
    )
    parser.add_argument("--json", action="store_true", help="print the verdicts as JSON and nothing else")
    parser.add_argument(
        "--blind",
        action="store_true",
        help="try everything on outcomes that are permuted within model and task; no verdict is computed",
    )
    return parser


def _run(options: argparse.Namespace, describe: Describe, restore: Restore) -> int:
    """Decide, write and print before any code that is not sealed is imported."""
    results: Path = options.results
    check_folder(results)
    if options.as_sealed:
        return _as_sealed(options, restore)
    refuse_results(options)
    report = _decide(results, options)
    as_json = to_json(report)
    summed = joined(["", *summary(report)])
    out = _out(options)
    is_written = out is not None and _write(out, as_json, report)
    print(as_json if options.json else to_text(report), end="", flush=True)
    if not options.blind:
        _look(results, report, as_json)
    code = report.exit_code
    is_described = _describe(describe, report, out if is_written else None, is_printed=not options.json)
    if not options.json:
        print(summed, end="", flush=True)
    _complain_of(report)
    return code if is_described else code or 1


def _as_sealed(options: argparse.Namespace, restore: Restore) -> int:
    """The exit code of the sealed code, which runs in a folder of its own and writes where this one would."""
    results: Path = options.results
    homes = [results / LOCKED, *Folders(results, REPOSITORY, options.registration).homes]
    out, chosen = _out(options), options.registration
    arguments = [f"results/{results.resolve().name}"]
    arguments += [] if out is None else ["--out", str(out.absolute())]
    arguments += [] if chosen is None else ["--registration", str(chosen.absolute())]
    arguments += [f"--{name}" for name in ("json", "blind") if getattr(options, name)]
    return restore(REPOSITORY, results, homes, arguments)


def refuse_results(options: argparse.Namespace) -> None:
    """What is judged anew must not pass for what was sealed."""
    if not options.anew:
        return
    if options.out is None:
        raise KvexpError("--anew writes nothing into results: say where with --out DIR")
    out = options.out.resolve()
    for folder in (options.results.resolve(), REPOSITORY / "results"):
        if out.is_relative_to(folder):
            raise KvexpError(f"--anew writes nothing into {folder}: name a folder outside with --out DIR")


def _decide(results: Path, options: argparse.Namespace) -> Report:
    found = opened(Folders(results, REPOSITORY, options.registration, options.anew))
    study = found.load()
    if options.blind:
        study = blind.blinded(study, found.registrations)
    report = analyse(study, found.registrations, found.bound, is_blind=options.blind)
    found.check_loaded()  # the files of the claims are loaded now
    return replace(report, is_anew=options.anew)


def _out(options: argparse.Namespace) -> Path | None:
    """Where files go; a blind run must not stand where verdicts do."""
    out: Path | None = options.out
    if not options.blind:
        return out or options.results
    if out is not None and out.resolve() == options.results.resolve():
        raise KvexpError(f"--blind writes no verdicts into {out}: name another folder with --out")
    return out


def _write(folder: Path, as_json: str, report: Report) -> bool:
    """Write the verdicts or say in one line why not; they are printed anyway."""
    markdown = verdict_text.block("Verdicts", to_text(report))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in (("verdicts.json", as_json), ("verdicts.md", markdown)):
            write_whole(folder / name, text.encode())
    except OSError as error:
        complain(f"nothing was written to {folder}: {error.strerror}")
        return False
    return True


def _look(results: Path, report: Report, as_json: str) -> None:
    suites = report.open_suites
    if not suites:
        return
    tables = (report.study.table, report.study.cells)
    rows = sum(int(table.loc[table["suite"].isin(suites), "present"].sum()) for table in tables)
    claims = [one.claim_id for one in report.verdicts if set(suites_of(one)) & set(suites)]
    digest = hashlib.sha256(as_json.encode()).hexdigest()
    if words := record_look(results, suites, claims, rows, digest):
        complain(words)


def _describe(describe: Describe, report: Report, out: Path | None, *, is_printed: bool) -> bool:
    """Descriptive numbers, tables and figures: code that no seal covers, and that no verdict waits for."""
    try:
        text = describe(report, out)
    except Exception as error:
        complain(f"the verdicts stand, their description failed: {words_of(error)}")
        return False
    if is_printed:
        print(f"\n{text}", end="", flush=True)
    return True


def _complain_of(report: Report) -> None:
    problems, shown = [one.message for one in report.study.problems], report.bound.shown
    problems += [shown.note] if shown.is_broken else []
    problems += [f"the evidence fails: {words}" for words in shown.failed]
    if problems:
        rest = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
        complain(f"error: integrity: {problems[0]}{rest}")
