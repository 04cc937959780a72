"""A planted study whose rows differ in all that descriptive numbers read, and its rows as plain JSON."""

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from analysis.core.study import load
from analysis.core.verdicts import Report
from analysis.describe.scope import Scope
from kvexp.documents.registration import Registered
from kvexp.records import Generation
from tests import planted

MODELS = ("model-a", "model-b")
WORDS = "alpha Beta, gamma the a an delta. (epsilon) zeta 7 1934 Élan naïve".split()
WORLD = planted.World(
    blame={"certificate": 1.0, "evicted_mass": 0.7}, difficulty={"output_logprob": 1.0, "entropy": 0.3}
)


@dataclass
class Varied:
    """A folder, the rows in it and how the analysis sees them."""

    folder: Path
    rows: list[dict[str, Any]]
    registrations: list[Registered]
    scope: Scope

    def changed(self, **columns: Any) -> Scope:
        """The same study with other columns in its table."""
        report = self.scope.report
        study = replace(report.study, table=report.study.table.assign(**columns))
        return Scope(Report(study, report.registrations, []))


def write(folder: Path, registrations: list[Registered], examples: int = 8) -> Varied:
    """Two suites, three tasks and two models."""
    planted.write(folder, planted.plan(models=MODELS, examples=examples), told)
    rows = []
    for path in sorted(folder.glob("*/*/generations.jsonl")):
        here = [{**row, **varied(row)} for row in map(json.loads, path.read_bytes().splitlines())]
        path.write_bytes(planted.lines(msgspec.convert(here, list[Generation])))
        planted.close(path.parent)
        rows += here
    return Varied(folder, rows, registrations, scope_of(folder, registrations))


def scope_of(folder: Path, registrations: Iterable[Registered]) -> Scope:
    """What descriptive code is given of a folder."""
    registrations = list(registrations)
    owners = {suite: one.content.id for one in registrations for suite in one.content.suites}
    study = load(folder, owners)
    assert not study.problems, study.problems[0]
    return Scope(Report(study, registrations, []))


def told(row: Any) -> dict[str, Any]:
    """Facts are scored between 0 and 1; signals take few values, so that there are ties."""
    answer = WORLD(row)
    luck = random.Random(f"score {row.key}").random()
    if row.task == "facts":
        answer["score"] = round((0.5 + luck / 2) if answer["success"] else luck * 0.49, 3)
    return {**answer, **{name: round(value, 1) for name, value in answer.items() if "_" in name}}


def varied(row: dict[str, Any]) -> dict[str, Any]:
    """Other fields of a row; those of a batch are the batch's."""
    names = ("suite", "model", "task", "example_id")
    question = [row[name] for name in names]
    batch = random.Random(f"{question} {row['budget'] or 1.0}")
    own = random.Random(f"{question} {row['arm']} {row['condition']} {row['budget']} {row['seed']}")
    evictable = 900 + own.randrange(200)
    expected = (row["budget"] or 1) * evictable
    kept = min(evictable, expected + (own.uniform(-9, 9) if row["arm"] == "poisson" else 0.0))
    return {
        "n_evictable": evictable,
        "expected_kept": expected,
        "realised_kept": kept,
        "tail_kept": own.uniform(0, 99) if row["arm"] == "poisson" else None,
        "n_generated": 1 + own.randrange(30),
        "text": " ".join(own.choices(WORDS, k=own.randrange(4))),
        "seconds": {
            "prefill": random.Random(str(question)).random(),
            "plan": own.random(),
            "decode": 1 + batch.random(),
            "decode_arms": 1 if row["arm"] == "full" else 8,
        },
    }
