"""Tokens of time stamps (RFC 3161), checked: proof by somebody else that a manifest existed at a time.

The files are plain: `<stem>.tsq` is the query, `<stem>.tsr` the reply of the authority. Without kvexp:

    openssl ts -verify -data R.sha256 -in R.tsr -CAfile preregistration/trust/<name>.pem \
        -attime "$(date -d '<time of the token>' +%s)"

(-attime because the signing certificate may have expired since; the token needs it at its own time.) Whether
an authority has revoked a certificate is not asked: that needs a network and changes with time.

A token's bytes are malleable where no signature covers them, so the anchor is made of signed fields only.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from cryptography import x509
from rfc3161_client import (
    HashAlgorithm,
    PKIStatus,
    TimestampRequestBuilder,
    TimeStampResponse,
    VerifierBuilder,
    decode_timestamp_response,
)
from rfc3161_client._rust import parse_timestamp_request

from kvexp.ceremony.authorities import MAX_REPLY, CannotStamp, StampError, Trust, fingerprint
from kvexp.documents.forms import Kind, Stamp
from kvexp.errors import printable

# The few steps through DER that rfc3161-client does not offer (leaf: stdlib).


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


SHA256 = "2.16.840.1.101.3.4.2.1"
_TIME = re.compile(r"(\d{4})(\d\d)(\d\d)(\d\d)(\d\d)(\d\d)(\.\d{1,9})?Z", re.ASCII)
_VERIFY_ERROR = re.compile(r"Verify error: ?([^\"\]]+)")


@dataclass(frozen=True)
class Token:
    """What a verified reply says."""

    anchor: str  # see anchor_of
    time: str  # UTC, to the precision that was signed: 2026-07-22T09:14:03Z or 2026-07-22T09:14:03.125Z
    serial: int
    nonce: int
    witness: str  # subject of the certificate that signed
    trust: str  # name of the authority
    root_sha256: str  # fingerprint of the pinned root
    kind: Kind  # of that root: self-run, pinned or public

    @property
    def grade(self) -> Literal[1, 2]:
        """What it alone is worth."""
        return 2 if self.kind == "public" else 1

    @property
    def stamp(self) -> Stamp:
        """As the evidence shows it."""
        return Stamp(
            trust=self.trust,
            witness=self.witness,
            root_sha256=self.root_sha256,
            kind=self.kind,
            time=self.time,
            serial=f"{self.serial:x}",
            anchor=self.anchor,
        )


def anchor_of(imprint: str, serial: int, time: str, nonce: int) -> str:
    r"""The value that did not exist before the stamp: the random draws and every attempt carry it.

    It is the sha256 of five lines of ASCII, each ended by a line feed: `kvexp-anchor/1`, the sha256 of the
    manifest in hex, the token's serial number in decimal, its time as in `Token.time`, its nonce in decimal.
    All are printed by `openssl ts -reply -in R.tsr -text` (serial number and nonce in hex):

        printf 'kvexp-anchor/1\n%s\n%s\n%s\n%s\n' IMPRINT SERIAL TIME NONCE | sha256sum
    """
    return hashlib.sha256(f"kvexp-anchor/1\n{imprint}\n{serial}\n{time}\n{nonce}\n".encode()).hexdigest()


def query(message: bytes) -> bytes:
    """A query about the message: its SHA-256, a fresh nonce of 64 random bits, the certificate asked for."""
    if not message:
        raise CannotStamp("an empty file cannot be stamped")
    return TimestampRequestBuilder().data(message).hash_algorithm(HashAlgorithm.SHA256).build().as_bytes()


def check(message: bytes, tsq: bytes, tsr: bytes, trusts: Mapping[str, Trust]) -> Token:
    """The token in a reply, if it answers this query about this message under a pinned root.

    Certificates must have been valid at the token's time, not now. Self-run authorities are tried first, so
    that a root which is pinned as both never counts as public. Raises StampError.
    """
    imprint = hashlib.sha256(message).digest()
    nonce = asked_nonce(tsq, imprint)
    if len(tsr) > MAX_REPLY:
        raise StampError(f"the reply has {len(tsr):,} bytes, {MAX_REPLY:,} are the most")
    if not trusts:
        raise CannotStamp("no time-stamp authority is pinned: preregistration/trust holds none")
    try:
        reply = decode_timestamp_response(with_certificates_in_order(tsr))
        _check_status(reply)
        _check_info(reply, imprint, nonce)
        signer = _signer(reply)
        time = _time(reply)
        serial = reply.tst_info.serial_number
    except BaseException as error:
        raise _rejected("the reply is no time stamp that can be read", error) from None
    trust, root = _verified(reply, imprint, nonce, trusts)
    return Token(
        anchor=anchor_of(imprint.hex(), serial, time, nonce),
        time=time,
        serial=serial,
        nonce=nonce,
        witness=printable(signer.subject.rfc4514_string()),
        trust=trust.name,
        root_sha256=fingerprint(root),
        kind=trust.kind(fingerprint(root)),
    )


def asked_nonce(tsq: bytes, imprint: bytes) -> int:
    """The nonce of a query about the bytes with this sha256. Raises StampError for any other query."""
    try:
        asked = parse_timestamp_request(tsq)
        about, nonce = asked.message_imprint, asked.nonce
        is_right = about.hash_algorithm.dotted_string == SHA256 and about.message == imprint
    except BaseException as error:
        raise _rejected("the query cannot be read", error) from None
    if not is_right:
        raise StampError("the query asks about another file, or about this one before it changed")
    if nonce is None:
        raise StampError("the query has no nonce, so any old reply would fit it: write a new one")
    return nonce


def _check_status(reply: TimeStampResponse) -> None:
    if reply.status == PKIStatus.GRANTED:
        return
    names = {status.value: status.name.lower().replace("_", " ") for status in PKIStatus}
    said = printable(" ".join(reply.status_string)[:200])
    raise StampError(
        f"the authority answers '{names.get(reply.status, reply.status)}'{f' ({said})' if said else ''}: "
        "only 'granted' counts, ask again or ask another one"
    )


def _check_info(reply: TimeStampResponse, imprint: bytes, nonce: int) -> None:
    info = reply.tst_info
    about = info.message_imprint
    if about.hash_algorithm.dotted_string != SHA256 or about.message != imprint:
        raise StampError("the token is about another file, or about this one before it changed")
    if info.nonce != nonce:
        raise StampError("the token answers another query: its nonce is not the query's")


def _signer(reply: TimeStampResponse) -> x509.Certificate:
    """The certificate that signed. Two that could be meant would let a forged one give the name."""
    infos = list(reply.signed_data.signer_infos)
    if len(infos) != 1:
        raise StampError(f"the token has {len(infos)} signatures instead of one")
    held = [x509.load_der_x509_certificate(body) for body in reply.signed_data.certificates]
    fits = [c for c in held if c.issuer == infos[0].issuer and c.serial_number == infos[0].serial_number]
    if len(fits) != 1:
        raise StampError(f"the token holds {len(fits)} certificates of its signer instead of one")
    return fits[0]


def _time(reply: TimeStampResponse) -> str:
    """With the fraction of a second, which rfc3161-client 1.0.9 drops."""
    found = _TIME.fullmatch(signed_time(reply.time_stamp_token()))
    if found is None:
        raise StampError("the token's time is not written as RFC 3161 wants it")
    year, month, day, hour, minute, second, fraction = found.groups(default="")
    whole = f"{year}-{month}-{day}T{hour}:{minute}:{second}"
    if whole != reply.tst_info.gen_time.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0"):
        raise StampError("the token's time reads in two ways")
    return f"{whole}{fraction}Z"


def _verified(
    reply: TimeStampResponse, imprint: bytes, nonce: int, trusts: Mapping[str, Trust]
) -> tuple[Trust, x509.Certificate]:
    """The first authority and root that the signature chains to; everything else is checked once more."""
    failures = []
    for trust in sorted(trusts.values(), key=lambda trust: (not trust.is_self_run, trust.name)):
        for root in trust.roots:
            try:
                VerifierBuilder(roots=[root], nonce=nonce).build().verify(reply, imprint)
            except BaseException as error:
                failures.append(f"{trust.name}: {_rejected('', error)}")
            else:
                return trust, root
    raise StampError(f"the token does not verify under a pinned root ({'; '.join(failures)})")


def _rejected(what: str, error: BaseException) -> StampError:
    """In our words. rfc3161-client raises a panic of its Rust part as a BaseException without a module."""
    if isinstance(error, StampError):
        return error
    if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
        raise error
    found = _VERIFY_ERROR.search(str(error))
    why = printable((found[1] if found else str(error)).strip()[:200])
    return StampError(f"{what} ({why})" if what else why)
