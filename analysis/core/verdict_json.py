"""Verdicts as JSON.

Bytes depend on the logs, registrations, seals, locks and evidence alone: no clock, no path of the machine.
"""

import json
import math
from dataclasses import asdict
from typing import Any

import msgspec
import pandas as pd

from analysis.core.decide import Answer, MissingRows, Verdict, not_planned
from analysis.core.estimates import Estimate
from analysis.core.seals import AmendmentStep
from analysis.core.verdicts import Report
from kvexp.documents.registration import Registered


def dumped(body: dict[str, Any]) -> str:
    """Indented JSON whose bytes depend on the values alone."""
    return json.dumps(body, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def estimate(found: Estimate) -> dict[str, Any]:
    """A number with its interval."""
    return {**asdict(found), **{name: rounded(getattr(found, name)) for name in ("value", "lo", "hi")}}


def rounded(value: float | None) -> float | None:
    """6 significant digits, and no minus zero."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}") + 0.0


def to_json(report: Report) -> str:
    """Everything that was decided, for machines."""
    study = report.study
    body = {
        "format": "kvexp-verdicts/2",
        "study": study.name,
        "preview": any(map(report.provisional, report.verdicts)) or not report.verdicts,
        "blind": report.is_blind,
        "witnessed": report.bound.shown.is_witnessed,
        "rows": _size(study.table),
        **({"cells": _size(study.cells)} if len(study.cells) else {}),
        "problems": [problem.message for problem in study.problems],
        "registrations": [_registration(report, one) for one in report.registrations],
        **({"notes": list(report.bound.notes)} if report.bound.notes else {}),
        "locks": {suite: one.manifest for suite, one in report.bound.locks.items()},
        "claims": [_claim(report, verdict) for verdict in report.verdicts],
        "evidence": _evidence(report),
        **({"evidence_note": report.bound.shown.note} if report.bound.shown.note else {}),
    }
    return dumped(body)


def _size(table: pd.DataFrame) -> dict[str, int]:
    return {"expected": len(table), "present": int(table["present"].sum())}


def _registration(report: Report, registered: Registered) -> dict[str, Any]:
    content = registered.content
    seal = report.bound.seals.get(content.id)
    return {
        "id": content.id,
        "title": content.title,
        "sha256": registered.digest,
        "parent": content.parent,
        "suites": content.suites,
        "existing_data": content.existing_data,
        "existing_data_note": content.existing_data_note,
        "seal": None if seal is None else seal.id,
        "amendments": [] if seal is None else list(map(_amendment, seal.steps)),
    }


def _amendment(step: AmendmentStep) -> dict[str, Any]:
    touches = {"shared": step.shared, "claims": step.claims}
    return {**msgspec.to_builtins(step.stated), "touches": touches, "lines": step.lines}


def _claim(report: Report, verdict: Verdict) -> dict[str, Any]:
    claim = verdict.registered.content.claim[verdict.claim_id]
    answer, fragile = verdict.answer, verdict.fragile
    return {
        "id": verdict.claim_id,
        "registration": verdict.registered.content.id,
        "statement": claim.statement,
        "state": report.prefixed(report.state(verdict)),
        "preview": bool(report.provisional(verdict)),
        "provisional": report.provisional(verdict),
        "history": report.history(verdict),
        "label": report.label(verdict),
        "fragile": None if fragile is None else asdict(fragile),
        "kill_condition": claim.kill,
        "support_condition": claim.support,
        **_answer(answer),
        "commands": report.commands(answer),
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
        "quantities": {name: estimate(number) for name, number in answer.quantities.items()},
        "missing": [*map(_unplanned, answer.unplanned), *map(_missing, answer.missing)],
        "problems": list(answer.problems),
    }


def _missing(part: MissingRows) -> dict[str, Any]:
    return {name: value for name, value in asdict(part).items() if name != "nouns"}


def _unplanned(suite: str) -> dict[str, Any]:
    """A suite of which neither shards nor their rows are known."""
    return {"suite": suite, "shard_id": None, "rows": None, "of": None, "reason": not_planned(suite)}


def _evidence(report: Report) -> dict[str, Any] | None:
    """All of it but the digests of what it was judged from, which stand in evidence.json."""
    found = report.bound.shown.evidence
    body = None if found is None else msgspec.to_builtins(found)
    return None if body is None else {key: value for key, value in body.items() if key != "read"}
