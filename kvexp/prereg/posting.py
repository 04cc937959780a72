"""One HTTP request to a time-stamp authority. What it answers is checked elsewhere."""

import time
import urllib.error
import urllib.request
from http.client import HTTPException, HTTPResponse
from typing import cast

from kvexp import __version__
from kvexp.prereg.trust import CannotStamp, check_url
from kvexp.terminal import printable

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
