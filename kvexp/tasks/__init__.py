"""Task families, one file each; a family is found by the name of its file and listed nowhere."""

from kvexp.tasks.base import Count, HubFile, PromptText, Question, Task

__all__ = ["Count", "HubFile", "PromptText", "Question", "Task"]
