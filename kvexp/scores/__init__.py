"""Importance scores, one file each: which query rows a score needs and how they become a score."""

from kvexp import plugins
from kvexp.scores.base import Score, Spans

__all__ = ["Score", "Spans", "score"]


def score(name: str, **params: object) -> Score:
    """The score that `scores/<name>.py` defines, with its parameters set."""
    return plugins.build(__name__, name, Score, params)
