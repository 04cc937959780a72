"""JSON lines of known records, decoded at once; only a bad file is read line by line, to name the line."""

from pathlib import Path
from typing import Any, Generic, TypeVar

import msgspec

T = TypeVar("T")


class LineError(ValueError):
    """A line that is not one of the records expected there; the message names file and line."""


class Lines(Generic[T]):
    """A reader of one kind of file."""

    def __init__(self, types: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = msgspec.json.Decoder(types)

    def __call__(self, data: bytes, path: Path, *, may_be_torn: bool = False) -> list[T]:
        """Every record, in order.

        A kill can tear the last line of a log that is still being written; with `may_be_torn`, a last
        line without its line break is left out. msgspec itself refuses NaN and infinities.
        """
        if may_be_torn:
            data = data[: data.rfind(b"\n") + 1]
        try:
            records = self._decoder.decode_lines(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            records = []
        if len(records) == data.count(b"\n") and (not data or data.endswith(b"\n")):
            return records
        return self._one_by_one(data, path)

    def _one_by_one(self, data: bytes, path: Path) -> list[T]:
        records = []
        for number, line in enumerate(data.splitlines(keepends=True), start=1):
            if not line.endswith(b"\n"):
                raise LineError(f"{path}:{number}: the last line is cut off")
            try:
                records.append(self._decoder.decode(line))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise LineError(f"{path}:{number}: {_explained(line, error)}") from None
        return records


class _Kind(msgspec.Struct):
    kind: str


def _explained(line: bytes, error: Exception) -> str:
    try:
        kind = msgspec.json.decode(line, type=_Kind).kind
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return f"not a log record ({error})"
    if "`$.kind`" in str(error):
        return f"a record of kind '{kind}', which this version of the analysis does not read"
    return f"not a valid {kind} record ({error})"
