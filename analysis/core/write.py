"""How the analysis puts text into Markdown, and how it complains."""

import sys
import textwrap

from kvexp.errors import printable


def block(title: str, text: str) -> str:
    """Markdown of a text as it is. Indented, not fenced: no text can end an indented block."""
    return f"# {title}\n\n{textwrap.indent(text, '    ')}"


def complain(text: str) -> None:
    """One line on stderr, whatever the names and messages in it hold."""
    print(printable(text), file=sys.stderr)
