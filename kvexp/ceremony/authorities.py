"""Time-stamp authorities whose root certificates are pinned: preregistration/trust/, and <home>/trust/.

Nothing of the machine's own certificate store is trusted, because that changes and this is sealed.
"""

import os
import re
import secrets
import shutil
import subprocess
import time
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Literal, cast
from urllib.parse import urlsplit

import msgspec
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvexp import __version__
from kvexp.documents.forms import Kind, is_public
from kvexp.documents.manifest import read_bytes
from kvexp.errors import KvexpError, printable
from kvexp.files import write_whole

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
    self_run: bool  # true: the author's word; false: decided by kvexp.documents.forms
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
        """Whose word a token under one of its roots is; `kvexp.documents.forms.KINDS` says it in words."""
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


# One HTTP request to a time-stamp authority. What it answers is checked elsewhere.


MAX_REPLY = 256 * 1024  # bytes; public tokens have 3 to 8 kB
SILENCE_SECONDS = 20.0  # without a byte
TOTAL_SECONDS = 60.0
_CHUNK = 16 * 1024


def post(url: str, tsq: bytes, *, silence: float = SILENCE_SECONDS, total: float = TOTAL_SECONDS) -> bytes:
    """What the authority answers to a query.

    Raises CannotStamp without an answer, for a redirection (name the new address in the trust file), for an
    answer that is too long or takes too long, and for one that is text.
    """
    check_url(url)
    request = urllib.request.Request(
        url,
        data=tsq,
        method="POST",
        headers={
            "Content-Type": "application/timestamp-query",
            "Accept": "application/timestamp-reply",
            "User-Agent": f"kvexp/{__version__}",
        },
    )
    deadline = time.monotonic() + total
    try:
        with _opener().open(request, timeout=min(silence, total)) as opened:
            response = cast(HTTPResponse, opened)
            kind = response.headers.get_content_type()
            if kind.startswith("text/"):
                raise _no_answer(url, f"it sent {kind}, no time stamp")
            return _body(url, response, deadline)
    except urllib.error.HTTPError as error:
        with error:
            raise _no_answer(url, f"{error.code} {error.reason}{_elsewhere(error)}") from None
    except (OSError, HTTPException, ValueError) as error:
        raise _no_answer(url, str(getattr(error, "reason", "") or error) or type(error).__name__) from None


def _opener() -> urllib.request.OpenerDirector:
    """Knows http, https and proxies: no file:, no ftp:, no redirection to anywhere."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.HTTPDefaultErrorHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _body(url: str, response: HTTPResponse, deadline: float) -> bytes:
    body = b""
    while chunk := response.read1(_CHUNK):
        body += chunk
        if len(body) > MAX_REPLY:
            raise _no_answer(url, f"it sent more than {MAX_REPLY:,} bytes")
        if time.monotonic() > deadline:
            raise _no_answer(url, "it took too long")
    if response.length:
        raise _no_answer(url, "it was cut off")
    return body


def _elsewhere(error: urllib.error.HTTPError) -> str:
    address = error.headers.get("Location") if error.headers else None
    return f", it names another address: {address[:200]}" if address else ""


def _no_answer(url: str, why: str) -> CannotStamp:
    return CannotStamp(
        f"no answer from {url} ({printable(why[:400])}): write the query with --query, post it from a "
        "machine with network, and give the reply with --reply"
    )


# A time-stamp authority of one's own, for the demo and the tests: it proves nothing to anybody else.
#
# Tokens are made by `openssl ts`. Such an authority is grade 1, the author's word, wherever its root lies.


NAME = "own"
KEY = "signer.key"  # private
SIGNER = "signer.pem"
YEARS = 20
SECONDS = 60  # for one run of openssl
# `certs` must stay away: OpenSSL would embed a second certificate, in an order that is not DER.
_CONFIG = """\
[tsa]
default_tsa = own
[own]
serial = serial
default_policy = 1.3.6.1.4.1.99999.1
digests = sha256
signer_digest = sha256
ess_cert_id_alg = sha256
accuracy = secs:1
clock_precision_digits = 0
ordering = no
tsa_name = yes
"""


def create(folder: Path, home: Path) -> None:
    """Make an authority: its signing key in `folder`, its root below `home`/trust. Both must be new.

    The root's key is thrown away, so nobody can issue a second signer under it.
    """
    trust = home / "trust"
    for path in (folder / KEY, folder / SIGNER, trust / f"{NAME}.toml", trust / f"{NAME}.pem"):
        if os.path.lexists(path):
            raise CannotStamp(f"{path} is there already: keep that authority, or move it away")
    now = datetime.now(UTC).replace(microsecond=0) - timedelta(hours=1)
    until = now + timedelta(days=365 * YEARS)
    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root_name, name = _named("kvexp self-run root"), _named("kvexp self-run time stamps (grade 1)")
    root = _certificate(root_name, root_name, root_key.public_key(), now, until)
    root = root.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
    signer = _certificate(name, root_name, key.public_key(), now, until)
    signer = signer.add_extension(
        x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING]), critical=True
    ).add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    write_signer(folder, key, signer.sign(root_key, SHA256()))
    write_trust(trust, NAME, root.sign(root_key, SHA256()))


def answer(folder: Path, tsq: bytes) -> bytes:
    """The authority's reply to a query, with a random serial number of 128 bits.

    Raises CannotStamp where openssl is missing or refuses.
    """
    program = shutil.which("openssl")
    if program is None:
        raise CannotStamp("openssl is not on the PATH: install it, a self-run authority signs with it")
    for name in (KEY, SIGNER):
        if not (folder / name).is_file():
            raise CannotStamp(f"{folder / name} is missing: there is no self-run authority in that folder")
    with TemporaryDirectory() as scratch:
        work = Path(scratch)
        (work / "tsa.cnf").write_text(_CONFIG)
        (work / "serial").write_text(f"{secrets.randbits(127) | 1 << 127:032X}\n")
        (work / "query.tsq").write_bytes(tsq)
        command = [program, "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query.tsq"]
        command += ["-inkey", str((folder / KEY).resolve()), "-signer", str((folder / SIGNER).resolve())]
        command += ["-out", "reply.tsr"]
        try:
            run = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=SECONDS)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise CannotStamp(f"openssl ts gave no answer ({error})") from None
        if run.returncode or not (work / "reply.tsr").is_file():
            raise CannotStamp(f"openssl ts refuses ({_last_line(run.stderr)})")
        return (work / "reply.tsr").read_bytes()


def write_signer(folder: Path, key: ec.EllipticCurvePrivateKey, signer: x509.Certificate) -> None:
    """Key (readable by its owner only) and certificate of the one who signs."""
    folder.mkdir(parents=True, exist_ok=True)
    body = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    descriptor = os.open(folder / KEY, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(body)
    write_whole(folder / SIGNER, signer.public_bytes(serialization.Encoding.PEM))


def write_trust(folder: Path, name: str, root: x509.Certificate) -> None:
    """Pin a root as a self-run authority."""
    folder.mkdir(parents=True, exist_ok=True)
    pem = root.public_bytes(serialization.Encoding.PEM).decode()
    about = f"# subject: {root.subject.rfc4514_string()}\n# sha256: {fingerprint(root)}\n"
    write_whole(folder / f"{name}.pem", (about + pem).encode())
    text = (
        f'format = "{FORMAT}"\nname = "{name}"\nroot = "{name}.pem"\nself_run = true\n'
        'note = "Run by the author of this study; its tokens are the author\'s word, signed."\n'
    )
    write_whole(folder / f"{name}.toml", text.encode())


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, start: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(end)
    )


def _last_line(text: str) -> str:
    return (text.strip().splitlines() or ["it says nothing"])[-1][:300]
