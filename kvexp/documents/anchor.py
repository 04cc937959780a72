"""The anchor of a time stamp: a value that did not exist before. `kvexp verify` asks if the stamp is genuine.

A token's bytes are malleable where no signature covers them, so the anchor is made of signed fields only.
Here are the few steps through DER that reach these fields in the reply of an authority (RFC 3161).
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

INTEGER = 0x02
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\.\d{1,9})?Z", re.ASCII)


class DerError(ValueError):
    """Bytes that are not the DER structure they should be."""


class Part(NamedTuple):
    """One tag-length-value of some bytes: where it starts, where its content starts, where it ends."""

    tag: int
    start: int
    content: int
    end: int


@dataclass(frozen=True)
class Stated:
    """What a time-stamp token says, as it is signed."""

    imprint: str  # sha256 of the stamped file
    serial: int
    time: str  # UTC, to the precision that was signed: 2026-07-22T09:14:03Z or 2026-07-22T09:14:03.125Z
    nonce: int | None

    @property
    def anchor(self) -> str:
        r"""The random draws, every attempt and the bootstrap's seeds carry it.

        It is the sha256 of five lines of ASCII, each ended by a line feed: `kvexp-anchor/1`, the sha256 of
        the manifest in hex, the token's serial number in decimal, its time as above, its nonce in decimal.
        All are printed by `openssl ts -reply -in R.tsr -text` (serial number and nonce in hex):

            printf 'kvexp-anchor/1\n%s\n%s\n%s\n%s\n' IMPRINT SERIAL TIME NONCE | sha256sum
        """
        lines = ("kvexp-anchor/1", self.imprint, self.serial, self.time, self.nonce)
        return hashlib.sha256("".join(f"{line}\n" for line in lines).encode()).hexdigest()


def stated(reply: bytes) -> Stated:
    """What the reply of an authority says. Raises DerError."""
    content = inside(reply, 0, 1, 1, 0, 2, 1)  # reply > token > [0] > SignedData > encapContentInfo > [0]
    if len(content) != 1:
        raise DerError("the token holds no TSTInfo")
    info = reply[content[0].content : content[0].end]
    fields = inside(info, 0)
    if len(fields) < 5:
        raise DerError("the token's TSTInfo is cut off")
    about = inside(info, 0, 2)
    nonces = [_integer(info, part) for part in fields[5:] if part.tag == INTEGER]
    return Stated(
        imprint=info[about[-1].content : about[-1].end].hex(),
        serial=_integer(info, fields[3]),
        time=_time(info[fields[4].content : fields[4].end]),
        nonce=nonces[0] if nonces else None,
    )


def parts(body: bytes, start: int, end: int) -> Iterator[Part]:
    """The values that follow one another in `body[start:end]`. Raises DerError where they do not fit."""
    while start < end:
        if start + 2 > end:
            raise DerError("a value is cut off")
        length, content = body[start + 1], start + 2
        if length >= 0x80:
            width = length - 0x80
            if not 1 <= width <= 4 or content + width > end:
                raise DerError("a length is malformed")
            length, content = int.from_bytes(body[content : content + width], "big"), content + width
        if content + length > end:
            raise DerError("a value is longer than what holds it")
        yield Part(body[start], start, content, content + length)
        start = content + length


def inside(body: bytes, *path: int) -> list[Part]:
    """The values inside the value that is reached by taking the numbered one at every level."""
    found = list(parts(body, 0, len(body)))
    for number in path:
        if number >= len(found):
            raise DerError("a value is missing")
        found = list(parts(body, found[number].content, found[number].end))
    return found


def _integer(body: bytes, part: Part) -> int:
    return int.from_bytes(body[part.content : part.end], "big", signed=True)


def _time(written: bytes) -> str:
    """A GeneralizedTime, with its fraction of a second."""
    found = _TIME.fullmatch(written.decode("ascii", errors="replace"))
    if found is None:
        raise DerError("the token's time is not written as RFC 3161 wants it")
    year, month, day, hour, minute, second, fraction = found.groups(default="")
    return f"{year}-{month}-{day}T{hour}:{minute}:{second}{fraction}Z"
