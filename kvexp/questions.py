"""What is asked, as digests: the same for a seal and for `examples/` beside the logs."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from kvexp.errors import IntegrityError
from kvexp.prereg.seal import read_bytes
from kvexp.records import Example, Reader, RecordError

Asked = tuple[dict[str, str], list[str]]  # of one example: digests of its segments, references
_example_reader: Reader[Example] = Reader(Example)


def questions_digest(asked: Mapping[str, Asked]) -> str:
    """sha256 of what is asked, example by example: id, digests of the prompt's segments, references.

    `examples/` states the same three of every example, so that it can be checked against a seal.
    """
    total = hashlib.sha256()
    for example_id, (segments, references) in asked.items():
        total.update(json.dumps([example_id, segments, references], sort_keys=True).encode() + b"\n")
    return total.hexdigest()


def asked_of(path: Path) -> dict[str, Asked]:
    """What a file of examples says is asked, by example. Raises IntegrityError for other files."""
    try:
        found = [_example_reader(line) for line in read_bytes(path).splitlines()]
    except RecordError as error:
        raise IntegrityError(f"{path} holds no examples ({error}): restore it") from None
    return {one.example_id: (one.segments, one.references) for one in found}
