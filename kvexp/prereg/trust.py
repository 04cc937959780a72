"""Time-stamp authorities whose root certificates are pinned: preregistration/trust/, and <home>/trust/.

Nothing of the machine's own certificate store is trusted, because that changes and this is sealed.
"""

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.hashes import SHA256

from kvexp.errors import KvexpError
from kvexp.prereg.authorities import Kind, is_public
from kvexp.prereg.seal import read_bytes

FORMAT = "kvexp-trust/1"
MAX_TOML = 8 * 1024
MAX_PEM = 64 * 1024
MAX_ROOTS = 4
NAME_PATTERN = r"\A[a-z][a-z0-9-]{0,39}\Z"  # no dot: R.<name>.tsr must split in one way
_UNFIT_FOR_A_URL = re.compile(r"[^!-~]")


class StampError(KvexpError):
    """A time stamp that does not prove what it should."""

    exit_code = 4


class CannotStamp(StampError):
    """There is nothing to judge: no answer from an authority, or one that is not set up."""

    exit_code = 2


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """preregistration/trust/<name>.toml."""

    format: Literal["kvexp-trust/1"]
    name: Annotated[str, msgspec.Meta(pattern=NAME_PATTERN)]
    root: str  # the file with the root certificate, <name>.pem
    self_run: bool  # true: the author's word; false: decided by kvexp.prereg.authorities
    note: Annotated[str, msgspec.Meta(max_length=4000)]  # where this is known from, what was tried
    url: str | None = None  # absent: it answers no HTTP; for `kvexp stamp --query` and `--reply`


@dataclass(frozen=True)
class Trust:
    """An authority whose word is taken for the time, because its root certificate is here."""

    name: str
    url: str | None
    roots: tuple[x509.Certificate, ...]
    is_self_run: bool

    def kind(self, root_sha256: str) -> Kind:
        """Whose word a token under one of its roots is; `kvexp.prereg.authorities.KINDS` says it in words."""
        if self.is_self_run:
            return "self-run"
        return "public" if is_public(root_sha256) else "pinned"


def load_trust(root: Path, home: Path) -> dict[str, Trust]:
    """Every authority by name. Those below `home`/trust are self-run, whatever their files say."""
    public = read_trust(root / "preregistration" / "trust")
    own = read_trust(home / "trust", is_own=True)
    if both := sorted(public.keys() & own.keys()):
        raise CannotStamp(
            f"{home / 'trust' / both[0]}.toml: preregistration/trust has an authority of that name, "
            "give this one another"
        )
    return {**public, **own}


def read_trust(folder: Path, *, is_own: bool = False) -> dict[str, Trust]:
    """The authorities of one folder, sorted by name. A folder that does not exist holds none."""
    found = (_read(path, is_own) for path in sorted(folder.glob("*.toml")))
    return {trust.name: trust for trust in found}


def check_url(url: str) -> None:
    """Raise CannotStamp unless it is plain http or https, without a password in it."""
    try:
        split = urlsplit(url)
        is_fit = split.scheme in ("http", "https") and bool(split.hostname) and split.port != 0
    except ValueError:
        is_fit, split = False, urlsplit("")
    if not is_fit or "@" in split.netloc or _UNFIT_FOR_A_URL.search(url):
        raise CannotStamp(f"{url!a} is no address of an authority: http:// or https://, a host and a path")


def fingerprint(certificate: x509.Certificate) -> str:
    """Sha256 of the DER bytes, as `openssl x509 -fingerprint -sha256` gives it."""
    return certificate.fingerprint(SHA256()).hex()


def _read(path: Path, is_own: bool) -> Trust:
    try:
        content = msgspec.convert(tomllib.loads(read_bytes(path, MAX_TOML).decode()), _File)
    except (ValueError, RecursionError, msgspec.MsgspecError) as error:
        raise CannotStamp(f"{path} cannot be used: {error}") from None
    if content.name != path.stem or content.root != f"{path.stem}.pem":
        raise CannotStamp(
            f"{path}: name must be '{path.stem}' and root '{path.stem}.pem', as the file is called"
        )
    if content.url is not None:
        check_url(content.url)
    roots = _roots(path.with_suffix(".pem"))
    return Trust(content.name, content.url, roots, is_own or content.self_run)


def _roots(path: Path) -> tuple[x509.Certificate, ...]:
    try:
        found = x509.load_pem_x509_certificates(read_bytes(path, MAX_PEM))
        for certificate in found:
            certificate.verify_directly_issued_by(certificate)
    except Exception as error:  # of cryptography, which names no common class for a bad certificate
        if isinstance(error, KvexpError):
            raise
        raise CannotStamp(f"{path} holds no root certificate that signs itself ({error})") from None
    if len(found) > MAX_ROOTS:
        raise CannotStamp(f"{path} holds {len(found)} certificates, {MAX_ROOTS} are the most")
    return tuple(found)
