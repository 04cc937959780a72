"""Files are written whole, and nothing is written through a link."""

import secrets
import sys
import textwrap
from pathlib import Path

from kvexp.errors import printable


def replace(path: Path, text: str) -> None:
    """Write a file whole, by rename; a link in its place is replaced, and none is ever followed."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with temporary.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def block(title: str, text: str) -> str:
    """Markdown of a text as it is. Indented, not fenced: no text can end an indented block."""
    return f"# {title}\n\n{textwrap.indent(text, '    ')}"


def complain(text: str) -> None:
    """One line on stderr, whatever the names and messages in it hold."""
    print(printable(text), file=sys.stderr)
