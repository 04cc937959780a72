"""Errors that a person can act on: each message says what, where and what to do."""

import difflib
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager


class KvexpError(Exception):
    """A mistake with a one-sentence explanation; the command line prints it and exits with `exit_code`.

    `details` are lines printed below the sentence, for instance the files that it speaks of.
    """

    exit_code = 2

    def __init__(self, sentence: str, details: Iterable[str] = ()) -> None:
        super().__init__(sentence)
        self.details = tuple(details)


class ConfigError(KvexpError):
    """A study, suite, task, arm, model or cluster setting that cannot be used."""


@contextmanager
def named(where: str) -> Iterator[None]:
    """Begins the sentence of a ConfigError raised inside with the place where it can be mended."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{where}: {error}") from None


class InputError(KvexpError):
    """A prompt, example, model or data file that cannot be used."""


class NotFetched(InputError):
    """Data or weights that are not on this machine; the message says how to get them."""


class IncompleteError(KvexpError):
    """Work that ended with something missing; what exists is kept and a later submit continues."""

    exit_code = 3


class IntegrityError(KvexpError):
    """Logs or sealed files that contradict themselves or what is about to be done."""

    exit_code = 4


# Text of unknown origin (answers, paths, other programs' output) is made fit for a terminal.
# Cc: control characters, escape sequences begin with one. Cf: invisible, some reverse the reading
# direction. Cs: halves of a character, which cannot be printed. Zl, Zp: line breaks in disguise.
_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    r"""The text on one line, unfit characters as escapes: a bell reads \x07 and rings nothing."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNFIT else c for c in text
    )


def first(lines: Sequence[str], most: int, more: str = "more") -> list[str]:
    """The first lines, then how many there are beyond them."""
    rest = len(lines) - most
    return [*lines[:most], f"and {rest} {more}"] if rest > 0 else list(lines)


def suggest(name: str, known: list[str]) -> str:
    """The end of an error sentence: the nearest known name, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
