"""Bytes of a file that is one: a pipe or device under the name of a log would never end."""

import errno
import stat
from pathlib import Path


def read(path: Path) -> bytes:
    """The whole file. Raises OSError for anything but a regular file, before it is opened."""
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_bytes()
