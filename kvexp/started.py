"""Has anything of a study been run? From its files alone; leaf: verbs that only judge ask it too."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from kvexp.errors import IncompleteError

GRID = "grid.jsonl"


def begun(results: Path) -> list[str]:
    """Suites that have an attempt: until then, nothing depends on what was prepared."""
    return sorted({path.parent.parent.name for path in results.glob("*/*/attempt-*.json")})


def refuse_unstarted(results: Path, overrides: Sequence[str]) -> None:
    """Raises IncompleteError, with the command that starts it, for a study without grid and attempts."""
    if not (results / GRID).exists() and not begun(results):
        words = [word for word in overrides if not word.lstrip("+").startswith("cluster")]
        raise IncompleteError(f"nothing has been run: {shlex.join(['kvexp', 'submit', *words])}")
