"""`kvexp new-study`: copy a study and its registrations under a new name."""

import argparse

from rich.console import Console
from rich.text import Text

from kvexp.compose import project_root
from kvexp.prereg.scaffold import new_study


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Write the files, and say what comes next."""
    root = project_root()
    for path in new_study(root, parsed.name, parsed.source):
        console.print(Text(f"wrote {path.relative_to(root)}"))
    console.print(
        Text(
            f"fill in what says FILL IN, git add and commit; then: kvexp plan {parsed.name}, "
            f"kvexp seal {parsed.name}"
        )
    )
    return 0
