"""Time-stamp authorities for tests: real tokens by `openssl ts`, over HTTP too, and ways to spoil them."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kvexp.ceremony import authorities
from kvexp.ceremony.authorities import Trust
from kvexp.documents.anchor import parts

STAMPING = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.TIME_STAMPING])
SERVING = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
CERTIFICATES = (0, 1, 1, 0, 3)  # reply > token > [0] > SignedData > certificates


def now() -> datetime:
    return datetime.now(UTC).replace(microsecond=0)


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@dataclass
class Issuer:
    """A root or intermediate and its key."""

    text: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def issue(
        self,
        text: str,
        key: ec.EllipticCurvePrivateKey,
        *,
        start: datetime | None = None,
        end: datetime | None = None,
        usage: x509.ExtendedKeyUsage | None = None,
        critical: bool = True,
        is_ca: bool = False,
        serial: int | None = None,
    ) -> x509.Certificate:
        return _issue(self.text, self.key, text, key, start, end, usage, critical, is_ca, serial)


def _issue(issuer, issuer_key, text, key, start, end, usage, critical, is_ca, serial) -> x509.Certificate:
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(text))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(serial or x509.random_serial_number())
        .not_valid_before(start or now() - timedelta(days=1))
        .not_valid_after(end or now() + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if usage is not None:
        builder = builder.add_extension(usage, critical=critical)
    return builder.sign(issuer_key, SHA256())


def root(text: str = "test root", *, start: datetime | None = None, end: datetime | None = None) -> Issuer:
    key = ec.generate_private_key(ec.SECP256R1())
    return Issuer(text, key, _issue(text, key, text, key, start, end, None, True, True, None))


@dataclass
class Authority:
    """Who answers queries."""

    folder: Path
    name: str
    root: Issuer
    issuer: Issuer  # of the signer: the root, or an intermediate
    key: ec.EllipticCurvePrivateKey
    signer: x509.Certificate

    def answer(self, tsq: bytes) -> bytes:
        return authorities.answer(self.folder, tsq)

    def trust(self, *, is_self_run: bool = True) -> dict[str, Trust]:
        return {self.name: Trust(self.name, None, (self.root.certificate,), is_self_run)}


def authority(folder: Path, called: str = "test", *, above: Issuer | None = None, **dates: Any) -> Authority:
    """An authority with a signer of its own; `dates` are the signer's start and end."""
    issuer = above or root(f"{called} root")
    key = ec.generate_private_key(ec.SECP256R1())
    signer = issuer.issue(f"{called} signer", key, usage=STAMPING, **dates)
    authorities.write_signer(folder, key, signer)
    return Authority(folder, called, issuer, issuer, key, signer)


# Spoiling ----------------------------------------------------------------------------------------


def edited(body: bytes, path: tuple[int, ...], change: Callable[[bytes], bytes]) -> bytes:
    """The DER with the value at `path` changed, and every length above it made right again."""
    found = list(parts(body, 0, len(body)))
    at = found[path[0]]
    if len(path) == 1:
        new = change(body[at.start : at.end])
    else:
        new = wrapped(at.tag, edited(body[at.content : at.end], path[1:], change))
    return body[: at.start] + new + body[at.end :]


def wrapped(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    width = (size.bit_length() + 7) // 8
    return bytes([tag, 0x80 + width]) + size.to_bytes(width, "big") + content


def with_certificates(reply: bytes, *certificates: x509.Certificate) -> bytes:
    """The reply with these certificates in this order instead of those that it holds."""
    bodies = b"".join(certificate.public_bytes(Encoding.DER) for certificate in certificates)
    return edited(reply, CERTIFICATES, lambda _: wrapped(0xA0, bodies))


# HTTP --------------------------------------------------------------------------------------------


@dataclass
class Served:
    """What an authority sends: `body` may be an iterator, and a wrong length may be declared."""

    body: bytes | Iterator[bytes]
    status: int = 200
    kind: str = "application/timestamp-reply"
    headers: dict[str, str] = field(default_factory=dict)
    length: int | None = None


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    reply: ClassVar[Callable[[bytes], Served]]
    asked: ClassVar[list[tuple[str, str | None, bytes]]]

    def do_GET(self) -> None:
        self.asked.append(("GET", None, b""))
        self.send_error(405)

    def do_POST(self) -> None:
        tsq = self.rfile.read(int(self.headers["Content-Length"]))
        self.asked.append(("POST", self.headers.get("Content-Type"), tsq))
        served = type(self).reply(tsq)
        self.send_response(served.status)
        self.send_header("Content-Type", served.kind)
        for key, value in served.headers.items():
            self.send_header(key, value)
        chunks = [served.body] if isinstance(served.body, bytes) else served.body
        length = len(served.body) if isinstance(served.body, bytes) else None
        if served.length is not None or length is not None:
            self.send_header("Content-Length", str(served.length if served.length is not None else length))
        self.send_header("Connection", "close")
        self.end_headers()
        self.close_connection = True
        with suppress(OSError):
            for chunk in chunks:
                self.wfile.write(chunk)

    def log_message(self, *_: Any) -> None:
        pass


@dataclass
class Address:
    """Where it answers and what it was asked."""

    url: str
    asked: list[tuple[str, str | None, bytes]]


@contextmanager
def serving(reply: Callable[[bytes], Served]) -> Iterator[Address]:
    asked: list[tuple[str, str | None, bytes]] = []
    handler = type("Bound", (Handler,), {"reply": staticmethod(reply), "asked": asked})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Address(f"http://127.0.0.1:{server.server_port}/tsa", asked)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
