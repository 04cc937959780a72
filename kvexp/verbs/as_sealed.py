"""`kvexp verdicts|verify|report STUDY --as-sealed`: the verb of the sealed code, in a tree of its own."""

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from rich.console import Console

from kvexp.ceremony import sealed_tree
from kvexp.documents.forms import COPIED, LOCKED, LOOKS
from kvexp.errors import ConfigError
from kvexp.files import digest, write_whole
from kvexp.records import ID_PATTERN
from kvexp.study.compose import project_root
from kvexp.study.words import recalled, with_study

# What a verb writes below results/<study>, by glob. `verify` shows what it finds and writes nothing.
PAGES = ("verdicts.*", "details.*", "evidence.md", "tables/*", "figures/*", "report.html", "described.sha256")
VERDICTS = (*PAGES, LOOKS)
WRITES = {"verdicts": VERDICTS, "report": (*VERDICTS, "generations.html", "evidence.json"), "verify": ()}


def take_as_sealed(parser: argparse.ArgumentParser) -> None:
    """The option of verbs that judge or verify: another function runs."""
    words = "use the code that was sealed, from locks/core or git, in a temporary folder"
    parser.add_argument("--as-sealed", dest="run", action="store_const", const=run, help=words)


def run(parsed: argparse.Namespace, _: Console) -> int:
    """The exit code of the verb; this code and conf/ only find the study, and judge nothing."""
    root = project_root()
    words = recalled(with_study(parsed.overrides), root)
    study, name = _named(words, parsed.called)
    results = root / "results" / name
    if not results.is_dir():
        raise ConfigError(f"study {name} has no results to judge: there is no folder results/{name}")
    chosen = getattr(parsed, "registration", None)
    usual = [results / COPIED, root / "preregistration" / study]
    homes = [results / LOCKED, *([chosen] if chosen is not None else usual)]
    with sealed_tree.restored(root, results, homes, needed="kvexp/cli.py") as tree:
        code = sealed_tree.run(tree, "kvexp.cli", [parsed.called, *words, *_options(parsed)])
        _bring_back(tree / "results" / name, results, WRITES[parsed.called])
    if not WRITES[parsed.called]:
        print(f"as sealed: shown only; nothing in results/{name} was changed", file=sys.stderr)
    return code


def _named(words: list[str], verb: str) -> tuple[str, str]:
    """The study's file in conf/study, and the folder of its results."""
    said = dict(word.lstrip("+").split("=", 1) for word in words if "=" in word)
    study = said.get("study", "")
    name = said.get("study.name", study)
    for one in (study, name):
        if not re.fullmatch(ID_PATTERN, one):
            raise ConfigError(f"{one!r} is no study: kvexp {verb} STUDY --as-sealed")
    return study, name


def _bring_back(copied: Path, results: Path, patterns: Iterable[str]) -> None:
    """Put what was written into the copy of a results folder, or removed there, into the folder itself."""
    for pattern in patterns:
        names = {path.relative_to(folder) for folder in (copied, results) for path in folder.glob(pattern)}
        for name in sorted(names):
            made, there = copied / name, results / name
            if not made.exists():
                there.unlink()
            elif digest(made) != digest(there):
                there.parent.mkdir(exist_ok=True)
                write_whole(there, made.read_bytes())


def _options(parsed: argparse.Namespace) -> Iterator[str]:
    """The options of the verb, for the command line of another process in another folder."""
    yield from (f"--{name}" for name in ("json", "blind") if getattr(parsed, name, False))
    for name in ("replay", "decode", "seed"):
        if getattr(parsed, name, None) is not None:
            yield f"--{name}={getattr(parsed, name)}"
    if getattr(parsed, "registration", None) is not None:
        yield f"--registration={parsed.registration.absolute()}"
