"""JSON lines of known records, and the examples beside the rows that answer them."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from kvexp import files
from kvexp.records import Example

# Every line must be the bytes that kvexp writes for its record.
#
# So a key that stands twice, keys in another order, a byte order mark or a carriage return are all seen,
# without a rule for each.


T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class LineError(ValueError):
    """A line that is not one of the records expected there; the message names file and line."""


class Lines(Generic[T]):
    """A reader of one kind of file."""

    def __init__(self, types: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(types)

    def __call__(self, data: bytes, path: Path, *, may_be_torn: bool = False) -> list[T]:
        """Every record, in order; msgspec itself refuses NaN and infinities.

        A kill can tear the last line of a log that is still being written; with `may_be_torn`, a last
        line without its line break is left out.
        """
        return list(self.each(data, path, may_be_torn=may_be_torn))

    def each(self, data: bytes, path: Path, *, may_be_torn: bool = False) -> Iterator[T]:
        """The same, one at a time."""
        *lines, rest = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            yield self._record(line, path, number)
        if rest and not may_be_torn:
            raise LineError(f"{path}:{len(lines) + 1}: the last line is cut off")

    def _record(self, line: bytes, path: Path, number: int) -> T:
        try:
            record = self._decoder.decode(line)
            is_canonical = _encode(record) == line
        except _UNREADABLE as error:
            raise LineError(f"{path}:{number}: {_explained(line, error)}") from None
        if not is_canonical:
            raise LineError(f"{path}:{number}: {NOT_CANONICAL}")
        return record


NOT_CANONICAL = "not spelt as kvexp writes it (a key twice, another order, spaces, or another line break)"


def is_canonical(data: bytes, record: Any) -> bool:
    """Whether a file of one record, with or without a line break, is what kvexp writes for it."""
    return bool(_encode(record) == data.removesuffix(b"\n"))


class _Kind(msgspec.Struct):
    kind: str


def _explained(line: bytes, error: Exception) -> str:
    try:
        kind = msgspec.json.decode(line, type=_Kind).kind
    except _UNREADABLE:
        return f"not a log record ({error})"
    if "`$.kind`" in str(error):
        return f"a record of kind '{kind}', which this version of the analysis does not read"
    return f"not a valid {kind} record ({error})"


# What was asked: the examples of one suite, model and task, read beside the rows that answer them.
#
# No claim reads them, so a file that is not there, or that this version does not read, is no problem: what it
# would say stays undefined.


FOLDER = "examples"
# Of `Example`, as numbers: tokens, 0 or 1, and 0 or 1 where a reference stood in the whole context.
ASKED = ("n_context_full", "truncated", "answer_survives")
_lines = Lines[Example](Example)


def read_examples(results: Path, suite: str, model: str, task: str) -> Mapping[str, Example]:
    """By example id; empty if there is no such file, or none that can be read."""
    path = results / FOLDER / f"{suite}.{model}.{task}.jsonl"
    try:
        found = _lines(files.read(path), path)
    except (OSError, LineError):
        return {}
    here = (suite, model, task)
    return {one.example_id: one for one in found if (one.suite, one.model, one.task) == here}
