"""A small hub on localhost: the part of its API that fetching needs, with its ways of failing."""

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar


@dataclass
class Repo:
    """Files at one commit; `gated` shows the list and refuses the files."""

    commit: str
    files: dict[str, bytes]
    kind: str = "model"
    gated: bool = False


@dataclass
class Hub:
    """What is served, what was asked (method, path, range), what is cut (name -> bytes at each request)."""

    repos: dict[str, Repo]
    asked: list[tuple[str, str, str | None]] = field(default_factory=list)
    cuts: dict[str, list[int]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    url: str = ""

    def downloads(self) -> list[str]:
        return [
            path.rpartition("/")[2]
            for method, path, _ in self.asked
            if method == "GET" and "/resolve/" in path
        ]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: ClassVar[Hub]

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def log_message(self, *_: Any) -> None:
        pass

    def refuse(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def answer(self) -> None:
        path = self.path.partition("?")[0]
        self.hub.asked.append((self.command, path, self.headers.get("Range")))
        info = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/(?:revision|tree)/(.+))?", path)
        file = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = info or file
        if found is None:
            return self.refuse(404, "EntryNotFound")
        repo = self.hub.repos.get(found[2])
        kind = "dataset" if (found[1] or "").startswith("datasets") else "model"
        if repo is None or repo.kind != kind:
            return self.refuse(404, "RepoNotFound")
        if found[3] not in (repo.commit, "main", None):
            return self.refuse(404, "RevisionNotFound")
        if info:
            tree = [
                {"type": "file", "path": name, "size": len(body), "oid": hashlib.sha1(body).hexdigest()}
                for name, body in repo.files.items()
            ]
            told: Any = tree if "/tree/" in path else {"id": found[2], "sha": repo.commit}
            body = json.dumps(told).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return None
        if repo.gated:
            return self.refuse(403, "GatedRepo")
        if found[4] not in repo.files:
            return self.refuse(404, "EntryNotFound")
        return self.send_file(found[4], repo)

    def send_file(self, name: str, repo: Repo) -> None:
        body, start = repo.files[name], 0
        if asked := re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range") or ""):
            start = int(asked[1])
        self.send_response(206 if start else 200)
        self.send_header("X-Repo-Commit", repo.commit)
        self.send_header("ETag", f'"{hashlib.sha256(body).hexdigest()}"')
        self.send_header("Accept-Ranges", "bytes")
        self.send_header("Content-Length", str(len(body) - start))
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
        self.end_headers()
        if self.command == "HEAD":
            return
        rest = body[start:]
        cuts = self.hub.cuts.get(name)
        if cuts:
            rest = rest[: cuts.pop(0)]
            self.close_connection = True
        self.wfile.write(rest)
        self.hub.sent[name] = self.hub.sent.get(name, 0) + len(rest)


@contextmanager
def serving(repos: dict[str, Repo]) -> Iterator[Hub]:
    hub = Hub(repos)
    handler = type("Bound", (Handler,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if path.is_file()}
