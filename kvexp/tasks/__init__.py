"""Task families, one file each; a family is found by the name of its file and listed nowhere."""

from kvexp import plugins
from kvexp.tasks.base import PromptText, Question, Task

__all__ = ["PromptText", "Question", "Task", "families", "task", "task_family"]


def families() -> list[str]:
    """Names of the families in this folder; files that begin with an underscore are helpers."""
    return plugins.names(__name__)


def task_family(name: str) -> type[Task]:
    """The Task class in `tasks/<name>.py`."""
    return plugins.part(__name__, name, Task)


def task(name: str, **params: object) -> Task:
    """The task that `tasks/<name>.py` defines, with its parameters set."""
    return plugins.build(__name__, name, Task, params)
