"""The few steps through DER that rfc3161-client does not offer (leaf: stdlib)."""

from collections.abc import Iterator
from typing import NamedTuple

CERTIFICATES = 0xA0  # [0] IMPLICIT, the third or fourth part of SignedData


class DerError(ValueError):
    """Bytes that are not the DER structure they should be."""


class Part(NamedTuple):
    """One tag-length-value of some bytes: where it starts, where its content starts, where it ends."""

    tag: int
    start: int
    content: int
    end: int


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


def with_certificates_in_order(reply: bytes) -> bytes:
    """The time-stamp reply with its certificates in the order that DER asks of a set.

    No signature covers the order. Some public authorities, DigiCert among them, send the chain from leaf
    to root; rfc3161-client 1.0.9 refuses that (InvalidSetOrdering), OpenSSL does not.
    """
    try:
        signed = inside(reply, 0, 1, 1, 0)  # reply > token > [0] > SignedData
        held = next(part for part in signed if part.tag == CERTIFICATES)
        certificates = sorted(reply[p.start : p.end] for p in parts(reply, held.content, held.end))
    except (DerError, StopIteration):
        return reply  # whoever decodes it says what is wrong
    return reply[: held.content] + b"".join(certificates) + reply[held.end :]


def signed_time(token: bytes) -> str:
    """GeneralizedTime of the TSTInfo in a time-stamp token, as written: with its fraction of a second."""
    content = inside(token, 0, 1, 0, 2, 1)  # token > [0] > SignedData > encapContentInfo > [0]
    if len(content) != 1:
        raise DerError("the token holds no TSTInfo")
    info = token[content[0].content : content[0].end]
    time = inside(info, 0)[4]
    return info[time.content : time.end].decode("ascii")
