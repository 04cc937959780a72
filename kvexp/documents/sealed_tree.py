"""The tree that a study was sealed with, restored from git or from `locks/core` (leaf: stdlib and git)."""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from tempfile import TemporaryDirectory

from kvexp.documents.forms import CORE_COPY
from kvexp.documents.manifest import Manifest, differences, home_prefix
from kvexp.documents.seals import Seals
from kvexp.errors import IntegrityError, KvexpError
from kvexp.files import write_whole

COPIED_HERE = ("preregistration", "results")  # of the tree: what stands there now, not what a commit had
SHOWN = 20


class NoCommit(IntegrityError):
    """No commit holds the code that was sealed."""


def sealed_code(homes: Iterable[Path]) -> dict[str, str]:
    """Path and digest of every file of code that the standing seals list.

    Args:
        homes: folders of registrations; of two with one id, that of the first folder judges.

    Raises KvexpError if nothing is sealed, IntegrityError if two seals list different code.
    """
    standing: dict[str, Path] = {}
    for home in homes:
        for path in sorted(home.glob("*.toml")):
            standing.setdefault(path.stem, home)
    code: dict[str, str] = {}
    for name, home in sorted(standing.items()):
        seals = Seals(home / "seals", name)
        if not seals.is_sealed():
            continue
        sealed = seals.read_manifest()
        papers = f"{home_prefix(sealed, name)}/"
        for path, digest in sealed.files.items():
            if not path.startswith(papers) and code.setdefault(path, digest) != digest:
                raise IntegrityError(
                    f"the registrations {', '.join(sorted(standing))} were sealed or amended under different "
                    f"code ({path} of {name} is another): no one tree judges them, so use --anew --out DIR"
                )
    if not code:
        raise KvexpError("no registration is sealed here, so there is no sealed code: leave --as-sealed out")
    return code


@contextmanager
def restored(root: Path, results: Path, homes: Sequence[Path], needed: str = "") -> Iterator[Path]:
    """A temporary folder with the sealed code, and copies of results and registrations as they are here.

    Args:
        root: of the repository.
        results: results/<study>, copied to the same name below the tree.
        homes: see `sealed_code`.
        needed: a file that the caller runs; `locks/core` alone may lack it.
    """
    code, kept = sealed_code(homes), results / CORE_COPY
    lacking = differences(kept, Manifest(code, "")) if kept.exists() else ["missing  all"]
    if changed := [line for line in lacking if line.startswith("changed")]:
        raise IntegrityError(f"{kept} is not the code that was sealed: restore it", changed[:SHOWN])
    with TemporaryDirectory(prefix="kvexp-as-sealed-") as name:
        tree = Path(name).resolve()
        with _Objects(root) as objects:
            try:
                commit = _newest(root, objects, code)
                _restore(root, objects, commit, tree)
                print(f"as sealed: by the code of commit {commit[:12]}", file=sys.stderr)
            except NoCommit:
                if lacking or (needed and needed not in code):
                    raise
                print(f"as sealed: by the code in {kept}", file=sys.stderr)
        for path in code:
            if (kept / path).is_file():
                _write(tree, path, (kept / path).read_bytes())
        check(tree, code)
        _copy(root / "preregistration", tree / "preregistration")
        _copy(results, tree / "results" / results.resolve().name)
        yield tree


def check(tree: Path, code: Mapping[str, str]) -> None:
    """Raises IntegrityError if restored files are not what was sealed."""
    if wrong := differences(tree, Manifest(code, "")):
        raise IntegrityError(
            f"{len(wrong)} restored files are not as sealed: nothing was done", wrong[:SHOWN]
        )


def run(tree: Path, module: str, arguments: Sequence[str]) -> int:
    """The exit code of a module of the tree, run there by this interpreter."""
    sys.stdout.flush()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, check=False).returncode


def bring_back(copied: Path, results: Path, patterns: Iterable[str]) -> None:
    """Put what was written into the copy of a results folder, or removed there, into the folder itself."""
    for pattern in patterns:
        names = {path.relative_to(folder) for folder in (copied, results) for path in folder.glob(pattern)}
        for name in sorted(names):
            made, there = copied / name, results / name
            if not made.exists():
                there.unlink()
            elif made.is_file() and (not there.is_file() or made.read_bytes() != there.read_bytes()):
                there.parent.mkdir(exist_ok=True)
                write_whole(there, made.read_bytes())


@dataclass
class _Objects:
    """The blobs of a git repository by name, read by one process."""

    root: Path
    digests: dict[bytes, str] = field(default_factory=dict)  # by object id

    def __enter__(self) -> "_Objects":
        try:
            command = ["git", "-C", str(self.root), "cat-file", "--batch"]
            self._git = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            raise NoCommit(f"git cannot be started ({error.strerror}): install it") from None
        return self

    def __exit__(self, *_: object) -> None:
        self._git.communicate()

    def read(self, name: str) -> tuple[bytes, bytes] | None:
        """Object id and bytes of a blob; None if there is none of this name."""
        assert self._git.stdin is not None and self._git.stdout is not None
        self._git.stdin.write(f"{name}\n".encode())
        self._git.stdin.flush()
        head = self._git.stdout.readline().split()
        if len(head) != 3 or not head[2].isdigit():
            return None
        body = self._git.stdout.read(int(head[2]) + 1)[:-1]
        return (head[0], body) if head[1] == b"blob" else None

    def digest(self, name: str) -> str:
        found = self.read(name)
        if found is None:
            return ""
        return self.digests.setdefault(found[0], hashlib.sha256(found[1]).hexdigest())


def _newest(root: Path, objects: _Objects, code: Mapping[str, str]) -> str:
    """The newest commit reachable from HEAD whose every sealed path has its sealed digest."""
    order = list(code)
    for commit in _git(root, "rev-list", "HEAD").decode().split():
        wrong = next((path for path in order if objects.digest(f"{commit}:{path}") != code[path]), None)
        if wrong is None:
            return commit
        order.sort(key=wrong.__ne__)  # what differs in one commit is asked first of the next
    if _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise NoCommit(
            f"no commit that {root} has holds the sealed code, and its history is cut: git fetch --unshallow"
        )
    raise NoCommit(
        f"no commit reachable from HEAD of {root} holds the sealed code: fetch the branch that it was sealed "
        "on, or judge by the code that is here with --anew --out DIR"
    )


def _restore(root: Path, objects: _Objects, commit: str, tree: Path) -> None:
    """Every regular file of a commit but those that are copied from here, byte for byte."""
    for entry in _git(root, "ls-tree", "-r", "-z", "--full-tree", commit).split(b"\0")[:-1]:
        about, path = entry.split(b"\t", 1)
        mode, _, name = about.decode().split()
        place = PurePosixPath(os.fsdecode(path))
        if not mode.startswith("100") or place.parts[0] in COPIED_HERE or ".." in place.parts:
            continue
        found = objects.read(name)
        if found is None:
            raise NoCommit(f"git lacks {place} of commit {commit[:12]}: git fsck says more")
        _write(tree, str(place), found[1])


def _git(root: Path, *arguments: str) -> bytes:
    run = subprocess.run(["git", "-C", str(root), *arguments], capture_output=True, check=False)
    if run.returncode:
        said = os.fsdecode(run.stderr).strip().partition("\n")[0]
        raise NoCommit(f"{root} shows no commits ({said}): judge in a clone of the repository")
    return run.stdout


def _write(tree: Path, path: str, body: bytes) -> None:
    (tree / path).parent.mkdir(parents=True, exist_ok=True)
    (tree / path).write_bytes(body)


def _copy(source: Path, target: Path) -> None:
    """A folder with what it holds; links stay links, so that whoever reads refuses them."""
    try:
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        found = [f"{one[0]}: {one[2]}" for one in error.args[0]]
        raise IntegrityError(f"{source} cannot be copied: move away what is no file", found[:SHOWN]) from None
