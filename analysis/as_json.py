"""Verdicts and details as JSON.

Bytes depend on the logs and registrations alone: no clock, no path of the machine, keys sorted, numbers
with 6 significant digits.
"""

import json
import math
from dataclasses import fields, is_dataclass
from typing import Any

import pandas as pd

from analysis.decide import Answer, Missing, Verdict, not_planned
from analysis.details import PanelRow, Rate
from analysis.load import Study
from analysis.report import Report, submit_commands
from analysis.statistics import Estimate
from kvexp.prereg.registration import Registered


def to_json(report: Report) -> str:
    """Everything, for machines."""
    study = report.study
    body = {
        "format": "kvexp-verdicts/1",
        "study": study.name,
        "preview": True,  # nothing is sealed or locked yet
        "rows": _size(study.table),
        **({"cells": _size(study.cells)} if len(study.cells) else {}),
        "problems": [problem.message for problem in study.problems],
        "registrations": [_registration(section.registered) for section in report.sections],
        "claims": [_claim(study, verdict) for verdict in report.verdicts],
        "details": {
            "panel": [_panel_row(row) for one in report.sections for row in one.details.panel],
            "accuracy": [_rate(row) for one in report.sections for row in one.details.accuracy],
            "induced": [_rate(row) for one in report.sections for row in one.details.induced],
            "rescued": [_rate(row) for one in report.sections for row in one.details.rescued],
            **({"control": _control(report)} if _has_control(report) else {}),
        },
        **({"attention": [_plain(one) for one in report.attention]} if report.attention else {}),
    }
    return json.dumps(body, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def _size(table: pd.DataFrame) -> dict[str, int]:
    return {"expected": len(table), "present": int(table["present"].sum())}


def _registration(registered: Registered) -> dict[str, Any]:
    content = registered.content
    return {
        "id": content.id,
        "title": content.title,
        "sha256": registered.digest,
        "parent": content.parent,
        "suites": content.suites,
        "existing_data": content.existing_data,
        "existing_data_note": content.existing_data_note,
    }


def _claim(study: Study, verdict: Verdict) -> dict[str, Any]:
    claim = verdict.registered.content.claim[verdict.claim_id]
    answer = verdict.answer
    return {
        "id": verdict.claim_id,
        "registration": verdict.registered.content.id,
        "statement": claim.statement,
        "state": answer.state.value,
        "label": verdict.label,
        "kill_condition": claim.kill,
        "support_condition": claim.support,
        **_answer(answer),
        "commands": submit_commands(study, answer),
        "readings": {name: _answer(other) for name, other in verdict.readings.items()},
        "sensitivity": {
            name: {**_answer(other), "moves": verdict.moves(name)}
            for name, other in verdict.sensitivity.items()
        },
    }


def _answer(answer: Answer) -> dict[str, Any]:
    """What holds. No state: a reading returns no verdict, and a claim adds its own."""
    return {
        "kill": answer.kill,
        "support": answer.support,
        "quantities": {name: _estimate(number) for name, number in answer.quantities.items()},
        "missing": [*map(_unplanned, answer.unplanned), *map(_missing, answer.missing)],
        "problems": list(answer.problems),
    }


def _missing(part: Missing) -> dict[str, Any]:
    return {
        "suite": part.suite,
        "shard_id": part.shard_id,
        "rows": part.rows,
        "of": part.of,
        "reason": part.reason,
    }


def _unplanned(suite: str) -> dict[str, Any]:
    """A suite of which neither shards nor their rows are known."""
    return {"suite": suite, "shard_id": None, "rows": None, "of": None, "reason": not_planned(suite)}


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {
        "value": _rounded(estimate.value),
        "lo": _rounded(estimate.lo),
        "hi": _rounded(estimate.hi),
        "n": estimate.n,
        "clusters": estimate.clusters,
        "undefined": estimate.undefined,
        "note": estimate.note,
    }


def _panel_row(row: PanelRow) -> dict[str, Any]:
    return {
        "suite": row.suite,
        "tasks": row.tasks,
        "arm": row.arm,
        "signal": row.signal,
        "label": row.label,
        "positives": row.positives,
        "pooled": _estimate(row.pooled),
        "stratified": _estimate(row.stratified),
        "cell_label": _estimate(row.cell_label),
    }


def _rate(row: Rate) -> dict[str, Any]:
    return {
        "suite": row.suite,
        "task": row.task,
        "arm": row.arm,
        "condition": row.condition,
        "budget": row.budget,
        **_estimate(row.estimate),
    }


def _has_control(report: Report) -> bool:
    registered = [one.registered.content.details for one in report.sections]
    return any(details is not None and details.control is not None for details in registered)


def _control(report: Report) -> list[Any]:
    return [_plain(row) for one in report.sections for row in one.details.control]


def _plain(value: Any) -> Any:
    """A record of numbers by field name; the frames that figures are drawn from stay out."""
    if isinstance(value, Estimate):
        return _estimate(value)
    if is_dataclass(value):
        found = {field.name: getattr(value, field.name) for field in fields(value)}
        return {name: _plain(one) for name, one in found.items() if not isinstance(one, pd.DataFrame)}
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    return _rounded(value) if isinstance(value, float) else value


def _rounded(value: float | None) -> float | None:
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}") + 0.0  # no minus zero
