"""What the analysis writes and says: files in folders of their own, blocks of text, complaints."""

import errno
import sys
import textwrap
from pathlib import Path

from kvexp.errors import printable
from kvexp.files import write_whole


def put(path: Path, text: str | None) -> None:
    """Write a file in a folder of its own, or see to it that it is not there."""
    if path.parent.is_symlink():
        raise OSError(errno.ENOTDIR, f"{path.parent.name} is a link", str(path.parent))
    path.parent.mkdir(exist_ok=True)
    if text is None:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, text.encode())


def block(title: str, text: str) -> str:
    """Markdown of a text as it is. Indented, not fenced: no text can end an indented block."""
    return f"# {title}\n\n{textwrap.indent(text, '    ')}"


def complain(text: str) -> None:
    """One line on stderr, whatever the names and messages in it hold."""
    print(printable(text), file=sys.stderr)
