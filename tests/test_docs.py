"""The pages for readers: the index is whole, paths and commands exist, README and sentences stay short."""

import argparse
import re
from collections.abc import Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from analysis.core.run import _parser
from kvexp.cli import VERBS

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "slurm" / "README.md", *DOCS]
README_WORDS, SENTENCE_WORDS = 1500, 35
FOLDERS = "analysis|conf|docs|kvexp|preregistration|results|scripts|slurm|tests"
PATH = re.compile(rf"(?<![\w./-])(?:{FOLDERS})/[\w./-]+")
PLACEHOLDER = re.compile(r"(?<![\w.])([A-Z]+)(?![a-z])|\bmine\b|\bNNN\b")
MADE_LATER = tuple(f"results/{name}" for name in ("scratch", "trial", "demo", "paper", "ablations"))
MODULE = re.compile(r"-m ((?:analysis|scripts)(?:\.\w+)*)")
OPTION = re.compile(r"(?<!\S)--[a-z-]+")
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)[^)]*\)")

page = pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])


def _prose_and_code(text: str) -> tuple[list[str], list[str]]:
    """The paragraphs and list items of a page, and its lines of code."""
    paragraphs, code, fenced = [""], [], False
    for line in text.splitlines():
        if line.startswith("```"):
            fenced = not fenced
        elif fenced or line.startswith("    "):
            code.append(line)
        elif not line.strip() or line.startswith(("|", "#", "<!--")):
            paragraphs.append("")
        else:
            if re.match(r"\s*(?:[*-]|\d+\.) ", line):
                paragraphs.append("")
            paragraphs[-1] += " " + re.sub(r"^\s*(?:[*-]|\d+\.) ", "", line)
    return [paragraph.strip() for paragraph in paragraphs if paragraph.strip()], code


def _sentences(text: str) -> Iterator[str]:
    for paragraph in _prose_and_code(text)[0]:
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", paragraph).replace("**", "")
        yield from re.split(r"(?<=[.!?])(?<!eq\.)\s+(?=[A-Z`\"(])", re.sub(r"`[^`]+`", "`code`", plain))


def _length(sentence: str) -> int:
    return sum(1 for word in sentence.split() if re.search(r"\w", word))


def _code_of(text: str) -> list[str]:
    """Lines of code, and what stands in backticks."""
    return [*_prose_and_code(text)[1], *re.findall(r"`([^`\n]+)`", text)]


def _options(verb: str) -> list[str]:
    parser = argparse.ArgumentParser()
    import_module(f"kvexp.verbs.{verb.replace('-', '_')}{'_' * (verb == 'try')}").arguments(parser)
    return list(parser._option_string_actions)


def test_every_page_is_in_the_index() -> None:
    """`docs/README.md` is the one index."""
    listed = set(LINK.findall((ROOT / "docs" / "README.md").read_text()))
    assert {path.name for path in DOCS} - listed == {"README.md"}
    assert "../slurm/README.md" in listed


@page
def test_every_relative_link_leads_to_a_file(page: Path) -> None:
    """Links between pages and to figures."""
    targets = [target for target in LINK.findall(page.read_text()) if "://" not in target]
    assert [target for target in targets if not (page.parent / target).exists()] == []


@page
def test_every_named_path_exists(page: Path) -> None:
    """Paths of this repository, except those with a placeholder and those that a command makes."""
    named = {
        path.rstrip("./") for code in _code_of(page.read_text()) for path in PATH.findall(code.split("#")[0])
    }
    meant = {path for path in named if not PLACEHOLDER.search(path) and not path.startswith(MADE_LATER)}
    assert sorted(path for path in meant if not (ROOT / path).exists()) == []
    modules = {name for code in _code_of(page.read_text()) for name in MODULE.findall(code)}
    assert [name for name in modules if find_spec(name) is None] == []


@page
def test_every_command_has_the_verb_and_the_options(page: Path) -> None:
    """`kvexp VERB --option` as a page shows it is what the program takes."""
    wrong = []
    for line in _code_of(page.read_text()):
        for rest in re.findall(r"python -m analysis (results[^&#]*)", line):
            wrong += [word for word in OPTION.findall(rest) if word not in _parser()._option_string_actions]
        for verb, rest in re.findall(r"(?<![\w/.])(?:\.venv/bin/)?kvexp ([a-z-]+)([^&#]*)", line):
            known = _options(verb) if verb in VERBS else []
            wrong += [f"kvexp {verb}"] * (verb not in VERBS)
            wrong += [f"{verb} {word}" for word in OPTION.findall(rest) if word not in known]
    assert wrong == []


def test_the_readme_is_short() -> None:
    """Everything else moves to docs/."""
    assert len((ROOT / "README.md").read_text().split()) <= README_WORDS


@page
def test_no_sentence_is_long(page: Path) -> None:
    """A sentence outside code and tables has at most 35 words; what stands in backticks is one word."""
    long = [sentence for sentence in _sentences(page.read_text()) if _length(sentence) > SENTENCE_WORDS]
    assert long == []


@page
def test_no_sentence_begins_with_a_pronoun_without_its_noun(page: Path) -> None:
    """A noun that stands in another sentence is written again."""
    bare = [
        sentence for sentence in _sentences(page.read_text()) if re.match(r"(It|They|Its|Their)\b", sentence)
    ]
    assert bare == []
