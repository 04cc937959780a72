"""The text of a registration: one that every reader, person or machine, reads alike.

Refused are links, other line ends than a single line feed (a seal covers bytes, and git and editors turn one
kind into the other while a person sees no difference), characters that cannot be seen or that reverse the
reading direction, keys that are not ASCII, numbers that are not finite, and what is far too large.
"""

import datetime
import hashlib
import math
import re
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvexp.documents.manifest import SealError, read_bytes
from kvexp.errors import KvexpError

MAX_BYTES = 256 * 1024
# A dotted key of thousands of parts keeps the TOML parser busy for minutes, thousands of them for seconds.
MAX_DOTS = 100  # in one line
MAX_ALL_DOTS = 10_000
MAX_DEPTH = 16
MAX_KEY = 200
DATED = ("registered_at",)
_UNSEEN = ("Cc", "Cf", "Cs", "Zl", "Zp")  # control, invisible or direction, halves, line breaks in disguise
_UNCOMMON = re.compile(r"[^\n\t -~]")
_PLACED = re.compile(r"(?P<what>.*) \(at line (?P<line>\d+), column (?P<column>\d+)\)", re.DOTALL)


Keys = tuple[str | int, ...]  # as in `table["claim"]["R1"]["population"]["tasks"][0]`


class RegistrationError(KvexpError):
    """A registration that cannot be used as it stands."""


@dataclass(frozen=True)
class Source:
    """A file that was read, as text and as the table that tomllib makes of it."""

    path: Path
    text: str
    table: dict[str, Any]

    @property
    def digest(self) -> str:
        """The sha256 of its bytes, in hex."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def at(self, *keys: str | int) -> "Where":
        """Where a key stands."""
        return Where(self, keys)


@dataclass(frozen=True)
class Where:
    """A key of a file. Messages name the file; while a registration is written, they name the line too."""

    source: Source
    keys: Keys

    def __str__(self) -> str:
        return str(self.source.path)


class Unfit(RegistrationError):
    """What is wrong at one key of a file; `beside` is where the same stands too."""

    def __init__(self, where: Where, words: str, beside: Where | None = None) -> None:
        self.where, self.words, self.beside = where, words, beside
        super().__init__(self.sentence(str))

    def sentence(self, named: Callable[[Where], str]) -> str:
        """The message, with places named in one way or another."""
        also = "" if self.beside is None else f" stands in {named(self.beside)} too"
        return f"{named(self.where)}: {self.words}{also}"


def read(path: Path) -> Source:
    """Read a file. Raises RegistrationError with path, line and reason; what it says is not checked."""
    text = _text_of(path)
    _check_characters(path, text)
    _check_dots(path, text)
    try:
        table = tomllib.loads(text)
    except RecursionError:
        raise RegistrationError(f"{path} cannot be read: it is nested too deeply") from None
    except ValueError as error:  # a number of 5,000 digits is a ValueError too
        raise RegistrationError(_unread(path, str(error))) from None
    source = Source(path, text, table)
    for keys, value in walk(source):
        _check_value(source, keys, value)
    return source


def _text_of(path: Path) -> str:
    try:
        raw = read_bytes(path, MAX_BYTES)
    except SealError as error:
        raise RegistrationError(str(error)) from None
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise RegistrationError(f"{path}:{line} cannot be read: byte {error.start} is not UTF-8") from None


def _check_characters(path: Path, text: str) -> None:
    if text.startswith("\ufeff"):
        raise RegistrationError(f"{path}:1 begins with a byte order mark: save it as plain UTF-8")
    for match in _UNCOMMON.finditer(text):
        if unicodedata.category(match[0]) in _UNSEEN:
            where = f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
            if match[0] == "\r":
                raise RegistrationError(
                    f"{where} has a carriage return: a seal covers bytes, so save it with LF line ends"
                )
            raise RegistrationError(f"{where} has the {_named(match[0])}, which nobody sees: remove it")


def _check_dots(path: Path, text: str) -> None:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > MAX_DOTS:
            raise RegistrationError(f"{path}:{number} has more than {MAX_DOTS} dots: write shorter lines")
    if text.count(".") > MAX_ALL_DOTS:
        raise RegistrationError(f"{path} has more than {MAX_ALL_DOTS} dots")


def _named(character: str) -> str:
    code = f"U+{ord(character):04X}"
    name = unicodedata.name(character, "")
    return f"character {code} ({name.lower()})" if name else f"control character {code}"


def _unread(path: Path, said: str) -> str:
    """The parser's words, with the line where an editor finds it."""
    placed = _PLACED.fullmatch(said)
    if placed is None:
        return f"{path} cannot be read: {said[:200]}"
    return f"{path}:{placed['line']} cannot be read: {placed['what'][:200]} (column {placed['column']})"


def walk(source: Source) -> Iterator[tuple[Keys, Any]]:
    """Every value with its keys, tables and lists included."""
    waiting: list[tuple[Keys, Any]] = [((), source.table)]
    while waiting:
        keys, value = waiting.pop()
        if keys:
            yield keys, value
        if isinstance(value, dict):
            waiting += [((*keys, key), inner) for key, inner in reversed(value.items())]
        elif isinstance(value, list):
            waiting += [((*keys, number), value[number]) for number in reversed(range(len(value)))]


def _check_value(source: Source, keys: Keys, value: Any) -> None:
    fault = _fault_of_key(keys[-1]) or _fault_of(value)
    if len(keys) > MAX_DEPTH:
        raise Unfit(source.at(*keys[:MAX_DEPTH]), f"nested deeper than {MAX_DEPTH} levels")
    if isinstance(value, datetime.date | datetime.time) and keys not in [(name,) for name in DATED]:
        fault = "a date or time stands where none is asked for: write a number or quote the text"
    if fault:
        raise Unfit(source.at(*keys), f"{dotted(keys)}: {fault}")


def _fault_of_key(key: str | int) -> str:
    if isinstance(key, int):
        return ""
    if not key or len(key) > MAX_KEY:
        return f"a key has 1 to {MAX_KEY} characters"
    odd = next((c for c in key if not " " <= c <= "~"), None)
    return f"its name has the {_named(odd)}: names are ASCII, so that none looks like another" if odd else ""


def _fault_of(value: Any) -> str:
    if isinstance(value, str):
        for match in _UNCOMMON.finditer(value):
            if unicodedata.category(match[0]) in _UNSEEN:
                return f"it has the {_named(match[0])}, which nobody sees: remove it"
    if isinstance(value, float) and not math.isfinite(value):
        return f"{value} is not a finite number"
    return ""


def dotted(keys: Keys) -> str:
    """`claim.R1.kill` or `authors[0]`, escaped: a key may hold what must not be printed."""
    words = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys)
    return ascii(words.lstrip("."))[1:-1][:MAX_KEY]
