"""Descriptive numbers as JSON, by the same rules as the verdicts."""

from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import pandas as pd

from analysis.core import as_json
from analysis.core.estimates import Estimate
from analysis.describe.details import PanelRow, Rate

if TYPE_CHECKING:
    from analysis.describe.description import Description


def to_json(found: "Description") -> str:
    """Everything descriptive, for machines."""
    sections = found.sections
    body = {
        "format": "kvexp-details/1",
        "study": found.study.name,
        "blind": found.is_blind,
        "details": {
            "panel": [_panel_row(row) for one in sections for row in one.details.panel],
            "accuracy": [_rate(row) for one in sections for row in one.details.accuracy],
            "induced": [_rate(row) for one in sections for row in one.details.induced],
            "rescued": [_rate(row) for one in sections for row in one.details.rescued],
            **({"control": _control(found)} if _has_control(found) else {}),
        },
        **({"attention": [_plain(one) for one in found.attention]} if found.attention else {}),
    }
    return as_json.dumped(body)


def _panel_row(row: PanelRow) -> dict[str, Any]:
    return {
        "suite": row.suite,
        "tasks": row.tasks,
        "arm": row.arm,
        "signal": row.signal,
        "label": row.label,
        "positives": row.positives,
        "pooled": as_json.estimate(row.pooled),
        "stratified": as_json.estimate(row.stratified),
        "cell_label": as_json.estimate(row.cell_label),
    }


def _rate(row: Rate) -> dict[str, Any]:
    return {
        "suite": row.suite,
        "task": row.task,
        "arm": row.arm,
        "condition": row.condition,
        "budget": row.budget,
        **as_json.estimate(row.estimate),
    }


def _has_control(found: "Description") -> bool:
    registered = [one.registered.content.details for one in found.sections]
    return any(details is not None and details.control is not None for details in registered)


def _control(found: "Description") -> list[Any]:
    return [_plain(row) for one in found.sections for row in one.details.control]


def _plain(value: Any) -> Any:
    """A record of numbers by field name; the frames that figures are drawn from stay out."""
    if isinstance(value, Estimate):
        return as_json.estimate(value)
    if is_dataclass(value):
        found = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: _plain(one) for name, one in found.items() if not isinstance(one, pd.DataFrame)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return as_json.rounded(value) if isinstance(value, float) else value
