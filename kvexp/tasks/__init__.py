"""Task families, one file each; a family is found by the name of its file and listed nowhere."""

from kvexp import plugins
from kvexp.tasks.base import Count, HubFile, PromptText, Question, Task

__all__ = ["Count", "HubFile", "PromptText", "Question", "Task", "task"]


def task(name: str, **params: object) -> Task:
    """The task that `tasks/<name>.py` defines, with its parameters set."""
    return plugins.build(__name__, name, Task, params)
