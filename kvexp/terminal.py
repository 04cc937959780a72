"""Text of unknown origin (answers, paths, other programs' output) made fit for a terminal (leaf)."""

import unicodedata

# Cc: control characters, escape sequences begin with one. Cf: invisible, some reverse the reading
# direction. Cs: halves of a character, which cannot be printed. Zl, Zp: line breaks in disguise.
_UNFIT = ("Cc", "Cf", "Cs", "Zl", "Zp")


def printable(text: str) -> str:
    r"""The text on one line, unfit characters as escapes: a bell reads \x07 and rings nothing."""
    return "".join(
        c.encode("unicode_escape").decode() if unicodedata.category(c) in _UNFIT else c for c in text
    )
