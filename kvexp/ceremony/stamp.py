"""Time stamps (RFC 3161) of seals and locks: asked of authorities, checked, and kept beside the manifest.

The files are plain: `<stem>.tsq` is the query, `<stem>.tsr` the reply of the authority. Without kvexp:

    openssl ts -verify -data R.sha256 -in R.tsr -CAfile preregistration/trust/<name>.pem \
        -attime "$(date -d '<time of the token>' +%s)"

(-attime because the signing certificate may have expired since; the token needs it at its own time.) Whether
an authority has revoked a certificate is not asked: that needs a network and changes with time.

What is signed in a token, and the anchor that is made of it, is read by `kvexp.documents.anchor`.
"""

import hashlib
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
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

from kvexp.ceremony import authorities
from kvexp.ceremony.authorities import (
    MAX_REPLY,
    CannotStamp,
    StampError,
    Trust,
    fingerprint,
    load_trust,
    post,
)
from kvexp.ceremony.home import Home
from kvexp.documents.anchor import DerError, Stated, inside, parts, stated
from kvexp.documents.forms import Kind, Stamp
from kvexp.documents.manifest import read_bytes
from kvexp.documents.seals import UNANCHORED, keying
from kvexp.errors import printable
from kvexp.files import write_whole

# Tokens, checked: proof by somebody else that a manifest existed at a time.


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


# Time stamps of manifests, as files beside them: asked for, kept once they verify, and read.


MANIFEST = ".sha256"
Answer = Callable[[bytes], bytes]  # from a query to the authority's reply
OWN_FOLDER = "own-tsa"  # below results/<study>; holds a private key, which git must not see


class StampPaths(NamedTuple):
    """Query and reply beside a manifest."""

    query: Path
    reply: Path


def stamp_paths(manifest: Path, witness: str | None = None) -> StampPaths:
    """Of a manifest's first token (None), or of the one by a further witness, named like its authority."""
    stem = manifest.name.removesuffix(MANIFEST)
    beside = stem if witness is None else f"{stem}.{witness}"
    return StampPaths(manifest.with_name(f"{beside}.tsq"), manifest.with_name(f"{beside}.tsr"))


def write_query(manifest: Path, witness: str | None = None) -> Path:
    """Write a query, or leave one that is about these bytes: it may be on its way to the authority."""
    message, paths = read_bytes(manifest), stamp_paths(manifest, witness)
    if os.path.lexists(paths.query) and _is_about(paths.query, message):
        return paths.query
    if os.path.lexists(paths.reply):
        raise CannotStamp(
            f"{paths.reply} answers a query that is not {paths.query.name}: restore that one, "
            "or move the reply away"
        )
    write_whole(paths.query, query(message))
    return paths.query


def _is_about(path: Path, message: bytes) -> bool:
    try:
        asked_nonce(read_bytes(path, MAX_REPLY), hashlib.sha256(message).digest())
    except StampError:
        return False
    return True


def store(
    manifest: Path,
    tsr: bytes,
    trusts: Mapping[str, Trust],
    witness: str | None = None,
) -> Token:
    """Keep the reply to the query that `write_query` wrote, once it verifies.

    A token that verifies is never replaced: raises CannotStamp. Nothing is written for a bad reply.
    """
    paths = stamp_paths(manifest, witness)
    if not paths.query.exists():
        raise CannotStamp(f"{paths.query} is missing: write a query with --query and post that one")
    allowed = _allowed(trusts, witness)
    token = check(read_bytes(manifest), read_bytes(paths.query, MAX_REPLY), tsr, allowed)
    try:
        there = _read(manifest, trusts, witness)
    except StampError:
        there = None  # damaged: it proves nothing, the new one does
    if there is not None and there != token:
        raise CannotStamp(f"{paths.reply} is there already, from {there.time} by {there.witness}: keep it")
    if there is None:
        write_whole(paths.reply, tsr)
    return token


def read_token(manifest: Path, trusts: Mapping[str, Trust]) -> Token | None:
    """The verified token of a manifest, whose anchor counts; None if there is no reply.

    Raises StampError for one that does not verify.
    """
    return _read(manifest, trusts, None)


def read_tokens(manifest: Path, trusts: Mapping[str, Trust]) -> list[Token]:
    """Every verified token of a manifest: the first one, then further witnesses sorted by name."""
    first = read_token(manifest, trusts)
    further = [_read(manifest, trusts, witness) for witness in _witnesses(manifest)]
    return [token for token in (first, *further) if token is not None]


def _read(manifest: Path, trusts: Mapping[str, Trust], witness: str | None) -> Token | None:
    paths = stamp_paths(manifest, witness)
    if not os.path.lexists(paths.reply):
        return None
    if not paths.query.exists():
        raise StampError(f"{paths.reply} has no query {paths.query.name} beside it: restore it")
    bodies = (read_bytes(manifest), read_bytes(paths.query, MAX_REPLY), read_bytes(paths.reply, MAX_REPLY))
    try:
        return check(*bodies, _allowed(trusts, witness))
    except StampError as error:
        raise type(error)(f"{paths.reply}: {error}") from None


def _witnesses(manifest: Path) -> list[str]:
    """Names in `<stem>.<name>.tsr`, but not where `<stem>.<name>` is a manifest of its own."""
    stem = manifest.name.removesuffix(MANIFEST)
    names = {
        path.name[len(stem) + 1 : -len(".tsr")]
        for path in manifest.parent.iterdir()
        if path.name.startswith(f"{stem}.") and path.name.endswith(".tsr") and path.name != f"{stem}.tsr"
    }
    return sorted(n for n in names if not manifest.with_name(f"{stem}.{n}{MANIFEST}").exists())


def _allowed(trusts: Mapping[str, Trust], witness: str | None) -> Mapping[str, Trust]:
    """A further witness must be the one whose name its files carry."""
    if witness is None:
        return trusts
    if witness not in trusts:
        raise CannotStamp(
            f"no authority '{printable(witness)}' is pinned: add it to preregistration/trust, or take one "
            f"of: {', '.join(sorted(trusts)) or 'none'}"
        )
    return {witness: trusts[witness]}


def keying_anchor(home: Home, registration_id: str) -> str:
    """The anchor that keys a registration's draws: of its stamp, or of the seal under which data began."""
    token = read_token(keying(home.folder, registration_id).manifest, load_trust(home.root, home.folder))
    return UNANCHORED if token is None else token.anchor


def own_answer(home: Home) -> Answer:
    """The author's own authority, made at its first use. Its word is the author's."""
    folder = home.results / OWN_FOLDER
    if not (folder / authorities.KEY).is_file():
        authorities.create(folder, home.folder)
    return lambda tsq: authorities.answer(folder, tsq)


def network_answer(trusts: Mapping[str, Trust], name: str | None) -> Answer:
    """The named authority, or the first public one that has an address."""
    with_url = {trust.name: trust.url for trust in trusts.values() if trust.url and not trust.is_self_run}
    if name is not None and trusts.get(name) is None:
        raise CannotStamp(f"no authority {name!r} is pinned (known: {', '.join(sorted(trusts)) or 'none'})")
    chosen = name or min(with_url, default=None)
    url = None if chosen is None else trusts[chosen].url
    if chosen is None or url is None:
        raise CannotStamp(f"the authority {chosen or ''} has no address: use --query and --reply")
    return lambda tsq: post(url, tsq)


def stamp(manifest: Path, home: Home, answer: Answer, witness: str | None = None) -> Token:
    """Ask and keep the reply, once it verifies. Raises StampError; nothing is written for a bad reply."""
    path = write_query(manifest, witness)
    return store(manifest, answer(read_bytes(path, MAX_REPLY)), load_trust(home.root, home.folder), witness)


def take_reply(manifest: Path, home: Home, reply: Path, name: str, witness: str | None = None) -> Token:
    """Keep a reply that was fetched elsewhere. `name`: of the seal or lock, for the sentences.

    Raises StampError for a file that is not the answer to the query that is there; nothing is written then.
    """
    asked = stamp_paths(manifest, witness).query
    if not asked.exists():
        command = f"{home.command('stamp', name)}{'' if witness is None else f' --witness {witness}'} --query"
        raise CannotStamp(f"{name} has no query yet, which a reply could answer: `{command}` writes it")
    body, where = read_bytes(reply, MAX_REPLY), asked.relative_to(home.root)
    if body == read_bytes(asked, MAX_REPLY):
        raise CannotStamp(f"{reply} is the query itself: post it to an authority and give what that answers")
    try:
        return store(manifest, body, load_trust(home.root, home.folder), witness)
    except CannotStamp:
        raise
    except StampError as error:
        raise StampError(
            f"{reply} is not taken for {name}: {error}; nothing was written, give the answer to {where}"
        ) from None
