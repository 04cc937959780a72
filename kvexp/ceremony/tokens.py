"""Tokens of time stamps (RFC 3161), checked: proof by somebody else that a manifest existed at a time.

The files are plain: `<stem>.tsq` is the query, `<stem>.tsr` the reply of the authority. Without kvexp:

    openssl ts -verify -data R.sha256 -in R.tsr -CAfile preregistration/trust/<name>.pem \
        -attime "$(date -d '<time of the token>' +%s)"

(-attime because the signing certificate may have expired since; the token needs it at its own time.) Whether
an authority has revoked a certificate is not asked: that needs a network and changes with time.

What is signed in a token, and the anchor that is made of it, is read by `kvexp.documents.anchor`.
"""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

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
from kvexp.documents.anchor import DerError, Stated, inside, parts, stated
from kvexp.documents.forms import Kind, Stamp
from kvexp.errors import printable

CERTIFICATES = 0xA0  # [0] IMPLICIT, the third or fourth part of SignedData
SHA256 = "2.16.840.1.101.3.4.2.1"
_VERIFY_ERROR = re.compile(r"Verify error: ?([^\"\]]+)")


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


@dataclass(frozen=True)
class Token:
    """What a verified reply says."""

    anchor: str  # see kvexp.documents.anchor
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
        said = _stated(reply, tsr, imprint, nonce)
    except BaseException as error:
        raise _rejected("the reply is no time stamp that can be read", error) from None
    trust, root = _verified(reply, imprint, nonce, trusts)
    return Token(
        anchor=said.anchor,
        time=said.time,
        serial=said.serial,
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


def _stated(reply: TimeStampResponse, tsr: bytes, imprint: bytes, nonce: int) -> Stated:
    """What the token says, read once more: rfc3161-client 1.0.9 drops the fraction of a second."""
    said, info = stated(tsr), reply.tst_info
    whole = info.gen_time.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0")
    if (said.imprint, said.serial, said.nonce) != (imprint.hex(), info.serial_number, nonce):
        raise StampError("the token reads in two ways")
    if said.time.removesuffix("Z").partition(".")[0] != whole:
        raise StampError("the token's time reads in two ways")
    return said


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
