"""The `kvexp` command: parses, calls, prints. What changes science is in conf/, never a flag.

Exit codes: 0 done, 1 internal error, 2 usage, 3 incomplete, 4 integrity.
"""

import argparse
import gc
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console

from kvexp.errors import IntegrityError, KvexpError, printable

# Imports that bring torch or transformers stand inside the verbs: `kvexp --help` answers at once.

TRACEBACK = "KVEXP_TRACEBACK"
Verb = Callable[[argparse.Namespace, Console], int]
# Verbs that name nothing but the study, no registration and no suite.
ABOUT_A_STUDY = ("plan", "fetch", "submit", "status", "cancel", "account", "verdicts", "report")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    parsed = _parse(arguments)
    if threading.current_thread() is threading.main_thread():
        # A plain kill ends like Ctrl-C: workers are stopped, and a sentence says where things stand.
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    if sys.stdout is None:  # closed by the caller
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115
    # A pipe has no width: without a terminal nothing is cut or folded.
    width = None if sys.stdout.isatty() else 1000
    console = Console(highlight=False, soft_wrap=True, width=width)
    verb: Verb = parsed.verb
    try:
        if parsed.called in ABOUT_A_STUDY:
            parsed.overrides = _recalled(parsed.overrides)
        return verb(parsed, console)
    except KvexpError as error:
        return _say(str(error), error.exit_code, error.details)
    except KeyboardInterrupt:
        return _say("interrupted; what is on disk stays, submit again to continue", 130)
    except BrokenPipeError:  # the reader, for instance `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        return _say(f"{error.filename or 'a file'}: {error.strerror or error}", 2)
    except Exception as error:
        if os.environ.get(TRACEBACK):
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        where = f"{last.filename}:{last.lineno}"
        return _say(
            f"internal error: {type(error).__name__}: {error} (at {where}; {TRACEBACK}=1 shows all)", 1
        )


def _say(sentence: str, exit_code: int, details: Sequence[str] = ()) -> int:
    print(f"kvexp: {printable(sentence)}", file=sys.stderr)
    for line in details:
        print(f"  {printable(line)}", file=sys.stderr)
    return exit_code


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Overrides may stand before, between and after options, which argparse alone does not allow."""
    parser = _parser()
    parsed, rest = parser.parse_known_args(arguments)
    if unknown := [text for text in rest if text.startswith("-")]:
        parser.error(f"unknown option {unknown[0]}")
    parsed.overrides += rest
    if parsed.called in ABOUT_A_STUDY and not any(word.startswith("study=") for word in parsed.overrides):
        parsed.overrides = _with_study(parsed.overrides)
    return parsed


def _recalled(words: list[str]) -> list[str]:
    """With those of a renamed study that is named by its results alone."""
    from kvexp.study.compose import project_root
    from kvexp.study.words import recalled

    return recalled(words, project_root(), is_bare=False)


def _with_study(words: list[str]) -> list[str]:
    """The first word without `=` is the study."""
    bare = next((word for word in words if "=" not in word), None)
    if bare is None:
        return words
    at = words.index(bare)
    return [f"study={bare}", *words[:at], *words[at + 1 :]]


ONE = "STUDY [OVERRIDE ...]"


def _overrides(names: str = "", *, is_study: bool = True) -> argparse.ArgumentParser:
    """The words of a verb; `names`: what may be named after the study."""
    study = f"first the study, STUDY or study=STUDY{f'; then {names}' if names else ''}; " if is_study else ""
    choices = "suite=NAME, model=NAME, task=NAME, cluster=NAME, or " if is_study else ""
    parser = argparse.ArgumentParser(add_help=False)
    words = f"{study}overrides: {choices}group.key=value"
    parser.add_argument("overrides", nargs="*", metavar="WORD", help=words)
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvexp", description="Pre-registered experiments on KV-cache eviction."
    )
    slurm = parser.add_subparsers(required=True, metavar="VERB")
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON for machines")

    def add(name: str, verb: Verb, text: str, words: str, *parents: argparse.ArgumentParser) -> Any:
        usage = f"kvexp {name} {words} [OPTION ...]"
        sub = slurm.add_parser(name, usage=usage, help=text, description=text, parents=list(parents))
        sub.set_defaults(verb=verb, called=name)
        return sub

    add("plan", _plan, "Show the shards and generations of a study.", ONE, _overrides(), as_json)
    fetch = add("fetch", _fetch, "Download the models and data that a study needs.", ONE, _overrides())
    fetch.add_argument("--dry-run", action="store_true", help="only say what is missing, and its size")
    submit = add("submit", _submit, "Run what is missing of a study.", ONE, _overrides())
    submit.add_argument(
        "--unregistered",
        action="store_true",
        help="check no seal; logs go to results/scratch, never analysed",
    )
    submit.add_argument(
        "--allow-dirty", action="store_true", help="run a sealed suite although tracked files are changed"
    )
    submit.add_argument("--dry-run", action="store_true", help="only print what would be started")
    submit.add_argument(
        "--then-analyze",
        action="store_true",
        help="on Slurm: a job that locks complete suites and analyses, once all others have ended",
    )
    scratch = argparse.ArgumentParser(add_help=False)
    scratch.add_argument("--unregistered", action="store_true", help="of the runs in results/scratch")
    for name, text in (
        ("cancel", "Take what this study has in Slurm's queue out of it."),
        ("account", "Export what Slurm's accounting knows of this study's jobs."),
    ):
        add(name, _slurm(f"{name}_study"), text, ONE, _overrides(), scratch)
    add("status", _status, "Show how far each shard is.", ONE, _overrides(), scratch, as_json)
    verdicts = add("verdicts", _verdicts, "Decide the claims of a study from its logs.", ONE, _overrides())
    verdicts.add_argument("--json", action="store_true", help="print verdicts.json")
    verdicts.add_argument(
        "--blind",
        action="store_true",
        help="try the analysis on outcomes that are permuted within model and task: no verdict, no look",
    )
    again = _replaying()
    text = "Verify a study, then write its verdicts and pages."
    pages = add("report", _report, text, ONE, _overrides(), again)
    for judging in (verdicts, pages):
        judging.add_argument(
            "--registration",
            type=Path,
            metavar="DIR",
            help="folder of registrations (default: the study's), unless they are locked with the logs",
        )
    _add_registration_verbs(add, as_json, again)
    text = "Answer one question through chosen arms, beside their signals."
    attempt = add("try", _try, text, "--file FILE --question TEXT [OVERRIDE ...]", _overrides(is_study=False))
    attempt.add_argument("--file", type=Path, required=True, help="text file with the context; - reads stdin")
    attempt.add_argument("--question", required=True, help="what to ask about it")
    attempt.add_argument("--answer-prefix", default="", help="how the answer begins")
    attempt.add_argument(
        "--arms", default="streaming_llm,h2o,snapkv,topk,poisson", help="names of conf/arm files"
    )
    attempt.add_argument("--budgets", default="0.25,0.5", help="shares of the cache that are kept")
    attempt.add_argument("--seeds", default="0", help="labels of the Poisson draws")
    attempt.add_argument("--max-new-tokens", type=int, default=24, help="longest answer")
    return parser


def _replaying() -> argparse.ArgumentParser:
    """What verbs that make evidence may do again."""
    again = argparse.ArgumentParser(add_help=False)
    again.add_argument("--replay", type=int, metavar="N", help="recompute the keep sets of N Poisson rows")
    again.add_argument("--decode", type=int, metavar="M", help="answer M examples again, with all arms")
    again.add_argument("--seed", type=int, metavar="S", help="chooses what is replayed; default: random")
    return again


def _add_registration_verbs(
    add: Any, as_json: argparse.ArgumentParser, again: argparse.ArgumentParser
) -> None:
    new = add(
        "new-study",
        _registration("new_study"),
        "Copy a study and its registrations under a new name.",
        "NAME [--from STUDY]",
    )
    new.add_argument("name", metavar="NAME", help="of the new study")
    new.add_argument("--from", dest="source", default="embedded", metavar="STUDY", help="what is copied")
    new.set_defaults(overrides=[])
    ids = _overrides("registrations by their ids, by default all")
    seal = add("seal", _registration("seal"), "Seal registrations.", "STUDY [ID ...] [OVERRIDE ...]", ids)
    seal.add_argument(
        "--copy", action="store_true", help="seal a copy of the registrations, in the results folder"
    )
    both = _overrides("registrations by their ids, or locked suites by their names, by default all")
    words = "STUDY [ID or SUITE ...] [OVERRIDE ...]"
    stamp = add("stamp", _registration("stamp"), "Time-stamp seals and locks.", words, both)
    stamp.add_argument("--tsa", metavar="NAME", help="a file of preregistration/trust; default: the first")
    stamp.add_argument(
        "--query", action="store_true", help="only write the query, for a machine with network"
    )
    stamp.add_argument("--reply", type=Path, metavar="FILE", help="the authority's reply to that query")
    stamp.add_argument(
        "--witness", metavar="NAME", help="a further stamp by this authority, beside the first"
    )
    stamp.add_argument(
        "--own", action="store_true", help="by an authority of your own (openssl): worth little"
    )
    suites = _overrides("suites by their names, by default all")
    lock = add("lock", _registration("lock"), "Close suites.", "STUDY [SUITE ...] [OVERRIDE ...]", suites)
    lock.add_argument("--incomplete", metavar="REASON", help="lock although rows are missing or do not count")
    lock.add_argument("--again", action="store_true", help="lock anew, for an amended registration")
    text = "Check seals, stamps, attempts and locks."
    add("verify", _registration("verify"), text, ONE, _overrides(), as_json, again)
    one_id = _overrides("one registration by its id")
    amend = add(
        "amend",
        _registration("amend"),
        "Register a change of sealed files.",
        "STUDY ID --why TEXT [OVERRIDE ...]",
        one_id,
    )
    amend.add_argument("--why", default="", help="what was wrong, and what is done about it")
    amend.add_argument("--data-seen", default="", help="what you have seen of the data")
    amend.add_argument(
        "--accept-protocol", action="store_true", help="rows made by the code before keep counting"
    )
    amend.add_argument(
        "--change-grid",
        action="store_true",
        help="shards and rows become others too; without it, a command that would change them is refused",
    )


def _registration(name: str) -> Verb:
    """A file of `kvexp.verbs`, imported when it is called."""

    def verb(parsed: argparse.Namespace, console: Console) -> int:
        found: Verb = import_module(f"kvexp.verbs.{name}").run
        return found(parsed, console)

    return verb


def _slurm(name: str) -> Verb:
    """A verb of `kvexp.verbs.slurm`, imported when it is called."""

    def verb(parsed: argparse.Namespace, console: Console) -> int:
        from kvexp.verbs import slurm

        found: Verb = getattr(slurm, name)
        return found(parsed, console)

    return verb


def _plan(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.study.compose import project_root, select
    from kvexp.verbs.plan import exit_code, print_plan, study_plan

    selection = select(parsed.overrides, project_root())
    plan = study_plan(selection, parsed.overrides)
    if parsed.json:
        print(json.dumps(plan, indent=2))
    else:
        print_plan(plan, console)
    return exit_code(plan)


def _fetch(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.models.fetch import fetch
    from kvexp.study.compose import project_root, select

    return fetch(select(parsed.overrides, project_root()), console, parsed.dry_run)


def _submit(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.study.compose import project_root, select
    from kvexp.verbs.submit import submit

    root = project_root()
    return submit(
        select(parsed.overrides, root),
        root,
        console,
        overrides=parsed.overrides,
        is_registered=not parsed.unregistered,
        allow_dirty=parsed.allow_dirty,
        dry_run=parsed.dry_run,
        then_analyze=parsed.then_analyze,
    )


@contextmanager
def _without_collector() -> Iterator[None]:
    """For a verb that only reads: looking for garbage among torch's objects is a fifth of its time."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_without_collector()
def _status(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.study.compose import project_root, select
    from kvexp.study.results import refuse_unstarted, results_of
    from kvexp.verbs.status import print_report, report

    root = project_root()
    selection = select(parsed.overrides, root)
    results = results_of(selection.study.name, root, is_registered=not parsed.unregistered)
    refuse_unstarted(results, parsed.overrides)
    found = report(selection, root, results, parsed.overrides)
    if parsed.json:
        print(json.dumps(found.plain(), indent=2))
    else:
        print_report(found, console)
    return IntegrityError.exit_code if any(row.state == "broken" for row in found.rows) else 0


def _verdicts(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.ceremony.edited_registration import print_edited
    from kvexp.ceremony.grid_changes import refuse_other_grid
    from kvexp.ceremony.home import home_of
    from kvexp.study.compose import project_root, select
    from kvexp.study.results import refuse_unstarted
    from kvexp.study.words import refuse_choices
    from kvexp.verbs.report import analysis_command

    root = project_root()
    selection = select(parsed.overrides, root)
    refuse_choices("verdicts", parsed.overrides)
    home = home_of(selection, root, parsed.overrides)
    refuse_unstarted(home.results, parsed.overrides)
    refuse_other_grid(home, selection)
    print_edited(home, Console(stderr=True) if parsed.json else console, parsed.registration)
    console.file.flush()
    command = analysis_command("analysis", home, parsed.registration)
    command += ["--blind"] if parsed.blind else []
    # The frozen analysis is another program on purpose: it must run without kvexp's dependencies.
    return subprocess.run(command + (["--json"] if parsed.json else []), cwd=root, check=False).returncode


def _report(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.verbs.report import report

    return report(parsed, console)


def _try(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.verbs.try_ import trial

    return trial(parsed, console)


if __name__ == "__main__":
    sys.exit(main())
