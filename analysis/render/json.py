"""Descriptive numbers as JSON, by the same rules as the verdicts."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import pandas as pd

from analysis.core import verdict_json
from analysis.core.estimates import Estimate
from analysis.describe.description import Attention, Description

FACTS = ("suite", "model", "name", "tasks", "scores", "prompts", "cells", "promised", "undefined")


def to_json(found: Description) -> str:
    """Everything descriptive, for machines."""
    body = {
        "format": "kvexp-details/1",
        "study": found.study.name,
        "blind": found.is_blind,
        "details": _plain(found.details),
        **({"attention": [_attention(one) for one in found.attention]} if found.attention else {}),
    }
    return verdict_json.dumped(body)


def _attention(one: Attention) -> dict[str, Any]:
    return {**{name: _plain(getattr(one.suite, name)) for name in FACTS}, **_plain(one.numbers)}


def _plain(value: Any) -> Any:
    """A record of numbers by field name; frames stay out, and `estimate` is spelt out in its place."""
    if isinstance(value, Estimate):
        return verdict_json.estimate(value)
    if is_dataclass(value):
        value = {field.name: getattr(value, field.name) for field in fields(value)}
    if isinstance(value, Mapping):
        found = {name: _plain(one) for name, one in value.items() if not isinstance(one, pd.DataFrame)}
        spelt = found.pop("estimate", {})
        return {**found, **spelt}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return verdict_json.rounded(value) if isinstance(value, float) else value
