"""Files of records: every line must be the bytes that kvexp writes for its record.

So a key that stands twice, keys in another order, a byte order mark or a carriage return are all seen,
without a rule for each.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

from kvexp import files
from kvexp.records import Reader, Record, RecordError

T = TypeVar("T")
R = TypeVar("R", bound=Record)
NOT_CANONICAL = "not spelt as kvexp writes it (a key twice, another order, spaces, or another line break)"
_encode = msgspec.json.Encoder().encode
_UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


class LineError(ValueError):
    """A line that is not one of the records expected there; the message names file and line."""


class Lines(Generic[T]):
    """A reader of one kind of file."""

    def __init__(self, types: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(types)

    def __call__(self, data: bytes, path: Path, *, may_be_torn: bool = False) -> Iterator[T]:
        """Every record, in order; msgspec itself refuses NaN and infinities.

        A kill can tear the last line of a log that is still being written; with `may_be_torn`, a last
        line without its line break is left out.
        """
        *lines, rest = data.split(b"\n")
        for number, line in enumerate(lines, start=1):
            try:
                record = self._decoder.decode(line)
                is_canonical = _encode(record) == line
            except _UNREADABLE as error:
                raise LineError(f"{path}:{number}: {_explained(line, error)}") from None
            if not is_canonical:
                raise LineError(f"{path}:{number}: {NOT_CANONICAL}")
            yield record
        if rest and not may_be_torn:
            raise LineError(f"{path}:{len(lines) + 1}: the last line is cut off")


def read_one(reader: Reader[R], path: Path) -> R:
    """The record of a file that holds one, with or without a line break."""
    data = files.read(path)
    try:
        record = reader(data)
    except RecordError as error:
        raise RecordError(f"{path}: not a record this version of the analysis reads ({error})") from None
    if _encode(record) != data.removesuffix(b"\n"):
        raise RecordError(f"{path}: {NOT_CANONICAL}")
    return record


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
