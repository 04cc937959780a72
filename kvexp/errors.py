"""Errors that a person can act on: each message says what, where and what to do (leaf: stdlib only)."""

from collections.abc import Iterable, Iterator
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
