"""Task families, one file each; a family is found by the name of its file and listed nowhere."""

import importlib
from difflib import get_close_matches
from pathlib import Path

from kvexp import plugins
from kvexp.errors import ConfigError
from kvexp.tasks.base import PromptText, Question, Task

__all__ = ["PromptText", "Question", "Task", "families", "task", "task_family"]

_NOT_FAMILIES = {"__init__", "base", "haystack"}


def families() -> list[str]:
    """Names of the families in this folder; files that begin with an underscore are helpers."""
    stems = {path.stem for path in Path(__file__).parent.glob("*.py")} - _NOT_FAMILIES
    return sorted(stem for stem in stems if not stem.startswith("_"))


def task_family(name: str) -> type[Task]:
    """The Task class in `kvexp/tasks/<name>.py`."""
    # Only names of existing files reach the import system, so a config cannot import anything else.
    if name not in (known := families()):
        guess = get_close_matches(name, known, n=1)
        hint = f"did you mean {guess[0]!r}?" if guess else f"there are {', '.join(known)}"
        raise ConfigError(f"there is no task family {name!r} (no kvexp/tasks/{name}.py): {hint}")
    module = importlib.import_module(f"{__name__}.{name}")
    own = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, Task) and value.__module__ == module.__name__
    ]
    if len(own) != 1:
        raise ConfigError(
            f"kvexp/tasks/{name}.py defines {len(own)} task classes, but a family is exactly one"
        )
    return own[0]


def task(name: str, **params: object) -> Task:
    """The task that `tasks/<name>.py` defines, with its parameters set."""
    return plugins.build(__name__, name, Task, params)
