"""A time-stamp authority of one's own, for the demo and the tests: it proves nothing to anybody else.

Tokens are made by `openssl ts`. Such an authority is grade 1, the author's word, wherever its root lies.
"""

import os
import secrets
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvexp.prereg.trust import FORMAT, CannotStamp, fingerprint
from kvexp.shard_log import replace

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
    replace(folder / SIGNER, signer.public_bytes(serialization.Encoding.PEM))


def write_trust(folder: Path, name: str, root: x509.Certificate) -> None:
    """Pin a root as a self-run authority."""
    folder.mkdir(parents=True, exist_ok=True)
    pem = root.public_bytes(serialization.Encoding.PEM).decode()
    about = f"# subject: {root.subject.rfc4514_string()}\n# sha256: {fingerprint(root)}\n"
    replace(folder / f"{name}.pem", (about + pem).encode())
    text = (
        f'format = "{FORMAT}"\nname = "{name}"\nroot = "{name}.pem"\nself_run = true\n'
        'note = "Run by the author of this study; its tokens are the author\'s word, signed."\n'
    )
    replace(folder / f"{name}.toml", text.encode())


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
