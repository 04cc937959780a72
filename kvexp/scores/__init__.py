"""Importance scores, one file each: which query rows a score needs and how they become a score."""

from kvexp.scores.base import Layer, Score, Spans

__all__ = ["Layer", "Score", "Spans"]
