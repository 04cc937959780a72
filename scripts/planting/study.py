"""A whole results folder drawn to targets, shard by shard."""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from kvexp.records import SIGNALS, Expected, Generation, Timings
from scripts.planting.answers import Answers, Level, Outcomes, Questions, digits, noises, raw, scores, texts
from scripts.planting.draws import normals
from scripts.planting.means import Planted, solve
from scripts.planting.rates import CLASSES, FAILURES, Component, Place, Rates, components, next_budget
from scripts.planting.rows import ABSENT, expected, generation, lines, write_shard
from scripts.planting.targets import Suite, Targets, TargetsError
from scripts.planting.wanted import Floats, below

TOKENS = 8  # of every answer
Cell = tuple[str, str, str, Place]


class Study:
    """Targets made ready to draw.

    Attributes:
        planted: every target with what the rows have in expectation.
    """

    def __init__(self, targets: Targets, seed: int) -> None:
        """Solve for the means. Raises TargetsError where targets cannot be had."""
        self.planted: list[Planted] = []
        self._targets, self._seed, self._rates = targets, seed, Rates(targets)
        self._outcomes = Outcomes(self._rates, targets.spread, seed)
        self._means = dict[tuple[str, Component], float]()
        self._groups = dict[Cell, dict[str, Component]]()
        for arm in dict.fromkeys(arm for suite in targets.suite for arm, *_ in suite.places()):
            self._solve(arm)
        self._levels = {suite.name: self._level(suite.name) for suite in targets.suite}

    def write(self, folder: Path) -> int:
        """A complete results folder; returns its rows. Raises TargetsError where something stands there."""
        if folder.exists():
            raise TargetsError(f"{folder} is there already: name a folder that is not")
        folder.mkdir(parents=True)
        count = 0
        with (folder / "grid.jsonl").open("wb") as grid:
            for suite in self._targets.suite:
                for model in suite.models:
                    for task in suite.tasks:
                        rows = expected(suite.name, model, task, suite.examples, list(suite.places()))
                        grid.write(lines(rows))
                        write_shard(folder, rows, self._generations(suite, model, task, rows))
                        count += len(rows)
        return count

    def _solve(self, arm: str) -> None:
        groups = components(self._targets, self._rates, arm)
        for group in groups:
            self._groups.setdefault((group.suite, group.model, group.task, group.place), {})[group.kind] = (
                group
            )
        told = [*self._targets.auc, *self._targets.gain, *self._targets.selective]
        for signal in SIGNALS:
            if signal not in ABSENT.get(arm, frozenset()):
                means, planted = solve(self._targets, signal, groups)
                self._means |= {(signal, group): mean for group, mean in means.items()}
                self.planted += planted
            elif any(one.signal == signal and one.at.arms == [arm] for one in told):
                raise TargetsError(f"a target asks for {signal} of {arm}, which has none")

    def _level(self, suite: str) -> Level:
        for one in self._targets.median:
            if one.at.suites is None or suite in one.at.suites:
                groups = [g for kinds in self._groups.values() for g in kinds.values() if g.inside(one.at)]
                failed = self._median([group for group in groups if group.kind in FAILURES])
                fine = self._median([group for group in groups if group.kind not in FAILURES])
                scale = math.log(one.failures / one.successes) / (failed - fine)
                if scale <= 0:
                    raise TargetsError(
                        f"the medians of suite {suite} are not in the order of its signal's AUC"
                    )
                return Level(math.log(one.successes) - scale * fine, scale)
        return Level()

    def _median(self, groups: Sequence[Component]) -> float:
        """Of the certificate's risk over groups."""
        means = np.array([self._means["certificate", group] for group in groups])
        count = np.array([group.count for group in groups])
        low, high = float(means.min()) - 10, float(means.max()) + 10
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if count @ below(middle - means) > count.sum() / 2 else (middle, high)
        return (low + high) / 2

    def _generations(self, suite: Suite, model: str, task: str, rows: list[Expected]) -> Iterator[Generation]:
        asked = self._outcomes.questions(suite, model, task)
        places = suite.places()
        score_name = self._targets.scores.get(task, "token_f1")
        ids = [row.example_id for row in rows[:: len(places)]]
        columns = [self._column(asked, place, ids, score_name) for place in places]
        for at, row in enumerate(rows):
            example, place = divmod(at, len(places))
            score, fields, signals = columns[place]
            yield generation(
                row,
                score_name,
                score[example],
                {name: values[example] for name, values in signals.items()},
                seconds=self._timings(row.arm),
                **{name: values[example] for name, values in fields.items()},
            )

    def _column(
        self, asked: Questions, place: Place, ids: list[str], score_name: str
    ) -> tuple[list[float], dict[str, list[Any]], dict[str, list[float]]]:
        """Scores, fields and signals of one place."""
        suite, n = asked.suite, len(ids)
        key = (self._seed, suite.name, asked.model, asked.task, *place)
        larger = next_budget(place, suite.places())
        answers = Answers(
            self._outcomes.success(asked, place),
            asked.full,
            None if larger is None else self._outcomes.success(asked, larger),
        )
        kept = np.full(n, 1000.0 * (place[2] or 1))
        if place[3] is not None:
            kept = kept + 5.0 * normals(n, *key, "kept")
        score = scores(answers, key) if score_name == "token_f1" else answers.success.astype(float).tolist()
        risks = noises(self._targets.spread.signal, n, self._seed, asked.task, key)
        risks = {name: noise + self._shift(name, asked, place, answers) for name, noise in risks.items()}
        fields = {"text": texts(answers, ids, key), "realised_kept": digits(kept)}
        return score, fields, raw(risks, self._levels[suite.name])

    def _shift(self, signal: str, asked: Questions, place: Place, answers: Answers) -> Floats:
        """(examples,) means of the groups that the rows are in."""
        groups = self._groups.get((asked.suite.name, asked.model, asked.task, place), {})
        means = [self._means.get((signal, groups[kind]), 0.0) if kind in groups else 0.0 for kind in CLASSES]
        return np.array(means)[answers.classes()]

    def _timings(self, arm: str) -> Timings:
        decode = self._targets.seconds.get(arm, 0.02) * TOKENS
        return Timings(prefill=1.0, plan=0.1, decode=decode, decode_arms=1)
