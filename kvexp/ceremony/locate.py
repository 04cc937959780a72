"""Where the keys of a TOML text stand: the line, and the span of the value.

`tomllib` tells neither. This reads text that it has accepted, and answers with the nearest table where it is
asked for a key that is not there.
"""

import bisect
import contextlib
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache

from kvexp.documents.source import Keys, Where

DEEPEST = 16  # levels of tables that only a longer key mentions
_TOKEN = re.compile(
    r"""
      (?P<blank>[ \t\r]+|\#[^\n]*)
    | (?P<string>\"{3}(?:\\.|[^\\])*?\"{3,5}|'{3}.*?'{3,5}|"(?:\\.|[^"\\\n])*"|'[^'\n]*')
    | (?P<mark>[\n\[\]{},=.])
    | (?P<bare>[^\s"'\#\[\]{},=.]+)
    """,
    re.VERBOSE | re.DOTALL,
)


def line_of(where: Where) -> str:
    """`path:LINE` of a key, or of the nearest table around it."""
    return f"{where.source.path}:{places(where.source.text).line(where.keys)}"


@dataclass(frozen=True)
class Place:
    """Where something stands in the text."""

    line: int  # of the key, of a table's header, or of an element of a list; counted from 1
    start: int  # where the value begins, in characters; a header is its own value
    end: int  # one past the value's last character


@dataclass(frozen=True)
class Places:
    """The places of all keys of a text."""

    written: dict[Keys, Place] = field(default_factory=dict)
    implied: dict[Keys, Place] = field(default_factory=dict)  # tables that only a longer key mentions

    def line(self, keys: Keys) -> int:
        """The line of the key, or of the nearest table or list around it; 1 if there is none."""
        for length in range(len(keys), 0, -1):
            found = self.written.get(keys[:length]) or self.implied.get(keys[:length])
            if found is not None:
                return found.line
        return 1


@cache
def places(text: str) -> Places:
    """The places of all keys, headers and list elements of a text that tomllib accepts."""
    found = Places()
    scan = _Scan(text, found)
    # Deeper than anyone reads, or no TOML: what has been found must do.
    with contextlib.suppress(RecursionError, IndexError):
        scan.document()
    return found


@dataclass(frozen=True)
class _Token:
    kind: str
    text: str
    start: int
    end: int


class _Scan:
    def __init__(self, text: str, found: Places) -> None:
        self.tokens = [*_tokens(text), _Token("mark", "\n", len(text), len(text))]
        self.breaks = [at for at, character in enumerate(text) if character == "\n"]
        self.found, self.at = found, 0

    def document(self) -> None:
        table: Keys = ()
        while self.at < len(self.tokens):
            if self._takes("\n"):
                continue
            if self._here.text == "[" and self._here.kind == "mark":
                table = self._header()
            else:
                self._pair(table)

    def _header(self) -> Keys:
        start = self._here.start
        while self._takes("["):
            pass
        keys = self._keys()
        while self._takes("]"):
            pass
        self._note(keys, start, start)
        return keys

    def _pair(self, table: Keys) -> None:
        key_at = self._here.start
        keys = (*table, *self._keys())
        self._takes("=")
        self._value(keys, key_at)

    def _value(self, keys: Keys, key_at: int) -> None:
        start = self._here.start
        if self._takes("["):
            number = 0
            while not self._takes("]"):
                if not (self._takes("\n") or self._takes(",")):
                    self._value((*keys, number), self._here.start)
                    number += 1
        elif self._takes("{"):
            while not self._takes("}"):
                if not (self._takes("\n") or self._takes(",")):
                    self._pair(keys)
        else:
            while not (self._here.kind == "mark" and self._here.text in "\n,]}"):
                self.at += 1
        self._note(keys, key_at, start)

    def _keys(self) -> Keys:
        keys: list[str] = []
        while self._here.kind != "mark" or self._here.text == ".":
            token = self.tokens[self.at]
            self.at += 1
            if token.kind == "string":
                keys.append(tomllib.loads(f"key = {token.text}")["key"])
            elif token.kind == "bare":
                keys.append(token.text)
        if not keys:
            raise IndexError
        return tuple(keys)

    def _note(self, keys: Keys, key_at: int, start: int) -> None:
        end = self.tokens[self.at - 1].end
        place = Place(bisect.bisect_left(self.breaks, key_at) + 1, start, end)
        self.found.written.setdefault(keys, place)
        for length in range(1, min(len(keys), DEEPEST)):
            self.found.implied.setdefault(keys[:length], place)

    @property
    def _here(self) -> _Token:
        return self.tokens[self.at]

    def _takes(self, mark: str) -> bool:
        here = self._here
        is_it = here.kind == "mark" and here.text == mark
        self.at += is_it
        return is_it


def _tokens(text: str) -> Iterator[_Token]:
    for match in _TOKEN.finditer(text):
        if match.lastgroup != "blank":
            yield _Token(str(match.lastgroup), match[0], *match.span())
