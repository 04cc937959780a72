"""Files that the analysis wrote into a folder before and does not make any more, told by their digests."""

import hashlib
import re
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path

from analysis.verdict import write

INDEX = "described.sha256"  # for `sha256sum -c`, like the seals
MOST = 1 << 24  # bytes of an index that is read
_LINE = re.compile(r"([0-9a-f]{64})  ((?:tables|figures)/[^/\x00-\x1f]+\.(?:csv|md|svg)|report\.html)")


def tidy(folder: Path, files: Mapping[str, str | None]) -> None:
    """Write what there is, by relative path, and an index of it; remove what the last index has beside it.

    A file is removed only if it is still the bytes that were written: nothing of anybody else's is.

    Raises OSError where a file cannot be written.
    """
    made = {name: text for name, text in files.items() if text is not None}
    forget(folder, but=made)
    for name, text in files.items():
        if text is not None and "/" not in name:
            write.replace(folder / name, text)  # `folder` itself may be a link
        else:
            write.put(folder / name, text)
    lines = (f"{_digest(text.encode())}  {name}\n" for name, text in sorted(made.items()))
    write.replace(folder / INDEX, "".join(lines))


def forget(folder: Path, but: Iterable[str] = ()) -> None:
    """Remove the files of the last index, those named in `but` excepted, where they are still ours."""
    kept = frozenset(but)
    for line in _read(folder / INDEX).splitlines():
        match = _LINE.fullmatch(line)
        if match and match[2] not in kept:
            path = folder / match[2]
            if not path.parent.is_symlink() and _is_file(path) and _digest(path.read_bytes()) == match[1]:
                path.unlink()


def _read(path: Path) -> str:
    if not _is_file(path) or path.stat().st_size > MOST:
        return ""
    return path.read_text(encoding="utf-8", errors="replace")


def _is_file(path: Path) -> bool:
    """Whether it is a regular file, and no link to one."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()
