"""The code that a study was sealed with, restored as a tree from git or `locks/core`."""

import hashlib
import io
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from kvexp import files
from kvexp.documents.forms import CORE_COPY, LOOKS
from kvexp.documents.manifest import Manifest, differences, home_prefix
from kvexp.documents.seals import Seals
from kvexp.errors import IntegrityError, KvexpError

SHOWN = 20
COMMITS = 50  # looked at by one process of git


class NoCommit(IntegrityError):
    """No commit that can be read holds the code that was sealed."""


def code_of(seals: Seals) -> dict[str, str]:
    """Path and digest of every file that a seal lists beside the papers of its registration."""
    sealed = seals.read_manifest()
    papers = f"{home_prefix(sealed, seals.id)}/"
    return {path: digest for path, digest in sealed.files.items() if not path.startswith(papers)}


def sealed_code(homes: Iterable[Path]) -> dict[str, str]:
    """Path and digest of every file of code that the seals of a study list, those that stand.

    Args:
        homes: folders of registrations; of two with one id, that of the first folder judges.

    Raises KvexpError if nothing is sealed, IntegrityError if two seals list different code.
    """
    standing: dict[str, Seals] = {}
    for home in homes:
        for path in sorted(home.glob("*.toml")):
            standing.setdefault(path.stem, Seals(home / "seals", path.stem))
    code: dict[str, str] = {}
    for name, seals in sorted(standing.items()):
        for file, digest in code_of(seals).items() if seals.is_sealed() else ():
            if code.setdefault(file, digest) != digest:
                raise IntegrityError(
                    f"{', '.join(sorted(standing))} were sealed or amended under different code ({file} of "
                    f"{name} is another), so no one tree judges them: judge anew with --anew --out DIR"
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
    lacking = differences(kept, Manifest(code, ""))
    if changed := [line for line in lacking if line.startswith("changed")]:
        raise IntegrityError(f"{kept} is not the code that was sealed: restore it", changed[:SHOWN])
    with TemporaryDirectory(prefix="kvexp-as-sealed-") as name:
        tree = Path(name).resolve()
        try:
            commit = _newest(root, code)
            _restore(root, commit, tree)
            print(f"as sealed: by the code of commit {commit[:12]}", file=sys.stderr)
        except NoCommit:
            if lacking or (needed and needed not in code):
                raise
            print(f"as sealed: by the code in {kept}", file=sys.stderr)
        for path in [] if lacking else code:
            (tree / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(kept / path, tree / path)
        check(tree, code)
        _copy(root / "preregistration", tree / "preregistration")
        _copy(results, tree / "results" / results.resolve().name)
        yield tree


def judge(root: Path, results: Path, homes: Sequence[Path], arguments: Sequence[str]) -> int:
    """The exit code of the sealed analysis. What it looked at is recorded where the results are."""
    with restored(root, results, homes) as tree:
        code = run(tree, "analysis", arguments)
        look = tree / "results" / results.resolve().name / LOOKS
        if look.is_file() and files.digest(look) != files.digest(results / LOOKS):
            files.write_whole(results / LOOKS, look.read_bytes())
    return code


def check(tree: Path, code: Mapping[str, str]) -> None:
    """Raises IntegrityError if restored files are not what was sealed."""
    if wrong := differences(tree, Manifest(code, "")):
        raise IntegrityError("the restored files are not as sealed: look at git fsck", wrong[:SHOWN])


def run(tree: Path, module: str, arguments: Sequence[str]) -> int:
    """The exit code of a module of the tree, run there by this interpreter."""
    sys.stdout.flush()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONSAFEPATH"}
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, check=False).returncode


def _newest(root: Path, code: Mapping[str, str]) -> str:
    """The newest commit reachable from HEAD whose every sealed path has its sealed digest."""
    commits = _git(root, "rev-list", "HEAD").decode().split()
    digests: dict[str, str] = {}  # by object id
    for at in range(0, len(commits), COMMITS):
        some = commits[at : at + COMMITS]
        names = "".join(f"{commit}:{path}\n" for commit in some for path in code)
        ids = _git(root, "cat-file", "--batch-check=%(objectname)", said=names).decode().split("\n")[:-1]
        digests |= _digests(root, {one for one in ids if " " not in one} - digests.keys())
        for number, commit in enumerate(some):
            here = ids[number * len(code) : (number + 1) * len(code)]
            if [digests.get(one) for one in here] == list(code.values()):
                return commit
    missing = f"no commit reachable from HEAD of {root} holds the sealed code"
    if _git(root, "rev-parse", "--is-shallow-repository").strip() == b"true":
        raise NoCommit(f"{missing}, and its history is cut: git fetch --unshallow")
    raise NoCommit(f"{missing}: fetch the branch that it was sealed on")


def _digests(root: Path, ids: Iterable[str]) -> Iterator[tuple[str, str]]:
    """By object id, sha256 of its bytes."""
    body, at = _git(root, "cat-file", "--batch", said="".join(f"{one}\n" for one in sorted(ids))), 0
    while at < len(body):
        start = body.index(b"\n", at) + 1
        name, _, size = body[at:start].decode().split()
        at = start + int(size) + 1
        yield name, hashlib.sha256(body[start : at - 1]).hexdigest()


def _restore(root: Path, commit: str, tree: Path) -> None:
    """Every file of a commit but registrations and results, which are copied as they are now."""
    body = _git(root, "archive", "--format=tar", commit, "--", ".", ":!results", ":!preregistration")
    with tarfile.open(fileobj=io.BytesIO(body)) as archive:
        archive.extractall(tree, filter="data")


def _git(root: Path, *arguments: str, said: str = "") -> bytes:
    try:
        return subprocess.run(
            ["git", "-C", str(root), *arguments], input=said.encode(), capture_output=True, check=True
        ).stdout
    except OSError as error:
        raise NoCommit(f"git cannot be started ({error.strerror}): install it") from None
    except subprocess.CalledProcessError as error:
        said = os.fsdecode(error.stderr).strip().partition("\n")[0]
        raise NoCommit(f"git shows no code of {root} ({said}): judge in a clone of the repository") from None


def _copy(source: Path, target: Path) -> None:
    """A folder with what it holds; links stay links, so that whoever reads them refuses them."""
    if not source.exists():
        return
    try:
        shutil.copytree(source, target, symlinks=True)
    except shutil.Error as error:
        found = [f"{one[0]}: {one[2]}" for one in error.args[0]]
        raise IntegrityError(f"{source} cannot be copied: move away what is no file", found[:SHOWN]) from None
