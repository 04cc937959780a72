"""The commit in which the files that a seal covers can be found again."""

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kvexp import provenance


@dataclass(frozen=True)
class Commit:
    """What git says of some files."""

    name: str | None  # of the commit; None outside of git
    is_dirty: bool  # tracked files differ from it
    lacking: tuple[str, ...] = ()  # files that git does not know

    @property
    def holds_all(self) -> str | None:
        """The commit, if every file can be found in it as it is now."""
        return None if self.is_dirty or self.lacking else self.name


def commit_of(root: Path, paths: Iterable[str]) -> Commit:
    """The commit that is checked out, and which of the paths, relative to `root`, it cannot have."""
    name, is_dirty = provenance.git_state(root)
    if name is None:
        return Commit(None, is_dirty=False)
    wanted = sorted(set(paths))
    try:
        done = subprocess.run(
            ["git", "-C", str(root), "--literal-pathspecs", "ls-files", "-z", "--", *wanted],
            capture_output=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return Commit(name, is_dirty=True)
    known = set(done.stdout.decode(errors="replace").split("\0"))
    return Commit(name, is_dirty is not False, tuple(path for path in wanted if path not in known))
