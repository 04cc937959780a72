"""What the paper reports, number by number, beside what a study found: one table, a line a number."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

import msgspec
import pandas as pd

from analysis.core.decide import missing_rows, problems_touching
from analysis.core.estimates import Estimate
from analysis.core.study import Study
from analysis.describe.parts import Part
from analysis.describe.scope import Scope, Suite, floats, median, nothing, population
from analysis.describe.table import Column, Row, Table, Value, column, exactly, share, told
from analysis.describe.table import number as estimates
from kvexp.documents.schema import Label
from kvexp.records import Condition

# The numbers that the paper prints, and where this analysis has its own (paper_numbers.toml).


FILE = Path(__file__).parent / "paper_numbers.toml"
Pick = Literal["smallest", "second smallest", "mean", "largest", "largest size"]
Finite = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number of the paper."""

    section: str  # of the paper, or its table
    words: str  # what it is
    value: Finite  # as printed; shares and points as shares
    interval: tuple[Finite, Finite] | None = None  # lower and upper end, where one is printed
    table: str = ""  # name of ours; `@role` at its start stands for a suite
    # Values of columns that find the row, `@role` for a suite; a list names several.
    row: dict[str, str | float | list[str]] = {}
    column: str = ""  # key of ours; `@role` at its end stands for a suite
    # Which of several rows; null: there is one. largest size: the largest without its sign.
    pick: Pick | None = None
    # Of rows, cells or failures, which only the same grid can repeat: no difference elsewhere.
    is_count: bool = False
    why: str = ""  # instead of a place, why there is none

    def __post_init__(self) -> None:
        """Refuse what is neither bound nor explained."""
        if bool(self.table and self.column) == bool(self.why):
            raise ValueError(f"'{self.words}' needs either a table and a column, or why it has none")


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file."""

    format: Literal["kvexp-paper-numbers/1"]  # kvexp-paper-numbers/1
    # The suites that stand for each other, the paper's own first.
    roles: dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]]
    grid: dict[str, int]  # generations of each suite of the paper's grid, and cells
    models: list[str]  # of all its suites
    number: list[Number]  # in the paper's order


def read() -> Numbers:
    """The file as it ships."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), Numbers)


# The table.


DIGITS = 4  # after the point; the numbers stand in their own tables with all that they have
SAID = "as what says"
COLUMNS = (
    column("section", "", "section or table of the paper", "name"),
    column("what", "", "what the number is", "text"),
    column("paper", "the paper's", "the paper's number; shares, not percent", SAID),
    column("paper_interval", "its interval", "its interval, where one is printed", "text"),
    estimates("ours", "", "the same quantity of this study, from its table", SAID, "plain"),
    column(
        "difference",
        "",
        "ours minus the paper's; empty where either lacks, and for counts on a grid of another size",
        SAID,
    ),
    column("remark", "why not", "why there is no number of ours, or no difference", "text"),
)
OTHER_GRID = "a count on a grid of another size: no difference"
REMARKS = (
    "P. Xie, Error Certificates for KV-Cache Eviction via Randomized Design, 2026. Shares, not percent. "
    "Difference: ours minus the paper's. Intervals are 95 % cluster bootstrap in both.",
)


def beside(tables: Iterable[Table], scope: Scope) -> Part | None:
    """The table of all numbers; None for a study without a suite that stands for one of the paper's.

    Args:
        tables: of every part of the pages, and of the attention suites.
        scope: the study.
    """
    numbers, study = read(), scope.report.study
    frames = (study.table, study.cells)
    suites, models = (
        {name for frame in frames for name in frame[axis].cat.categories} for axis in ("suite", "model")
    )
    found = standing(numbers.roles, suites)
    if not found:
        return None
    more = rest(scope, found)
    lookup = Lookup([*tables, more], numbers.roles, found)
    counts = [(str(name), int(n)) for frame in frames for name, n in frame["suite"].value_counts().items()]
    sizes = {name: count for name, count in counts if count}
    repeated = {role for role, suite in found.items() if _is_repeated(numbers, role, sizes.get(suite, 0))}
    rows = tuple(_row(number, lookup.ours(number), repeated) for number in numbers.number)
    table = Table("paper", "The paper's numbers and ours", COLUMNS, rows, REMARKS)
    words = _words(numbers, found, sizes, sorted(models))
    return Part("paper", "The paper's numbers, beside ours", words, tables=(table, more))


def _is_repeated(numbers: Numbers, role: str, size: int) -> bool:
    """Whether a suite is as large as the one of the paper that it stands for."""
    return size == numbers.grid.get(numbers.roles[role][0])


def _row(number: Number, ours: Estimate, repeated: AbstractSet[str]) -> Row:
    """A line of the table; `repeated`: roles of suites as large as the paper's."""
    interval = "" if number.interval is None else f"[{number.interval[0]:g}, {number.interval[1]:g}]"
    place = (number.section, number.words, number.value, interval)
    if ours.value is None:
        return (*place, ours, "", ours.undefined)
    lo, hi = (None if end is None else round(end, DIGITS) for end in (ours.lo, ours.hi))
    shown = Estimate(round(ours.value, DIGITS), lo, hi, ours.n, ours.clusters)
    if number.is_count and not set(roles_of(number)) <= repeated:
        return (*place, shown, "", OTHER_GRID)
    difference = round(ours.value - number.value, DIGITS) + 0.0  # no minus before a zero
    return (*place, shown, difference, "")


def _words(numbers: Numbers, suites: Mapping[str, str], sizes: Mapping[str, int], models: list[str]) -> str:
    """What a reader must know before comparing: by the models and the size of each suite, not by a name."""
    others = [
        f"{suite} for {numbers.roles[role][0]}"
        for role, suite in suites.items()
        if suite != numbers.roles[role][0]
    ]
    foreign = [model for model in models if model not in numbers.models]
    if not foreign and not others:
        return _same_models(numbers, sizes)
    if not foreign or len(foreign) < len(models):
        among = f"Beside the paper's models: {', '.join(foreign)}." if foreign else "The paper's models."
        stand = ", ".join(others) or "none"
        return f"{among} Suites stand in: {stand}. A difference says nothing against either."
    stand = f" Suites stand in: {', '.join(others)}." if others else ""
    return (
        f"Another model stands beside the paper's: {', '.join(models)}, not Qwen2.5, Llama-3.1 and Mistral "
        f"of 1.5B to 8B.{stand} A difference says nothing against either."
    )


def _same_models(numbers: Numbers, sizes: Mapping[str, int]) -> str:
    """How much of the paper's grid a study on its models has."""
    if sizes == numbers.grid:
        return "The same grid on the same models: a difference is sampling error, the harness or the paper's."
    have = [f"{suite} {sizes.get(suite, 0):,} of {of:,}" for suite, of in numbers.grid.items()]
    return (
        f"The paper's models on another grid: {', '.join(have)} rows. Beside sampling error, the harness and "
        "the paper's, a difference may come from what is not the same."
    )


# Where ours stand: in the tables of a study.


def standing(roles: Mapping[str, list[str]], suites: Iterable[str]) -> dict[str, str]:
    """By role, the first of its suites that a study has."""
    have = set(suites)
    found = {role: next((name for name in names if name in have), "") for role, names in roles.items()}
    return {role: suite for role, suite in found.items() if suite}


class Lookup:
    """The tables of a study by name, and the suites that stand for the paper's."""

    def __init__(
        self, tables: Iterable[Table], roles: Mapping[str, list[str]], suites: Mapping[str, str]
    ) -> None:
        """Keep them; `suites`: what `standing` found."""
        self._tables = {table.name: table for table in tables}
        self._names = {role: names[0] for role, names in roles.items()}
        self._suites = suites

    def ours(self, number: Number) -> Estimate:
        """The estimate that stands beside a number of the paper, or why there is none."""
        if number.why:
            return nothing(number.why)
        for role in roles_of(number):
            if role not in self._suites:
                return nothing(f"the study has no suite that stands for {self._names[role]}")
        name, column = self._named(number.table), self._named(number.column)
        table = self._tables.get(name)
        if table is None:
            return nothing(f"the study has no table {name}")
        keys = [one.key for one in table.columns]
        if absent := next((key for key in (column, *number.row) if key not in keys), None):
            return nothing(f"table {name} has no column {absent}")
        conditions = {key: self._values(value) for key, value in number.row.items()}
        found = [
            row[keys.index(column)]
            for row in table.rows
            if all(
                _spelt(row, table.columns, keys.index(key)) in values for key, values in conditions.items()
            )
        ]
        if not found:
            where = ", ".join(f"{key} {' or '.join(values)}" for key, values in conditions.items())
            return nothing(f"table {name} has no row with {where}")
        return _picked([_estimate(value) for value in found], number.pick)

    def _named(self, text: str) -> str:
        for role in _roles(text):
            text = text.replace(f"@{role}", self._suites[role])
        return text

    def _values(self, value: str | float | list[str]) -> list[str]:
        every = value if isinstance(value, list) else [value]
        return [self._named(one) if isinstance(one, str) else _plain(one) for one in every]


def _picked(found: list[Estimate], pick: Pick | None) -> Estimate:
    if pick is None:
        return found[0] if len(found) == 1 else nothing(f"{len(found)} rows fit")
    ranked = list[tuple[float, Estimate]]()
    for one in found:
        if one.value is not None:
            sized = _size(one) if pick == "largest size" else one
            ranked.append((sized.value or 0.0, sized))
        elif one.undefined:
            return one
    if not ranked:
        return nothing("no row has such a number")
    ranked.sort(key=lambda pair: pair[0])
    if pick == "mean":
        return Estimate(fmean(value for value, _ in ranked), n=sum(one.n for _, one in ranked))
    at = {"smallest": 0, "second smallest": 1, "largest": -1, "largest size": -1}[pick]
    return ranked[at][1] if at < len(ranked) else nothing(f"{len(found)} rows fit")


def _size(found: Estimate) -> Estimate:
    """A number without its sign; the interval is turned with it."""
    if found.value is None or found.value >= 0:
        return found
    lo, hi = (None if end is None else -end for end in (found.hi, found.lo))
    return replace(found, value=-found.value, lo=lo, hi=hi)


def _estimate(value: Value) -> Estimate:
    if isinstance(value, Estimate):
        return value
    if isinstance(value, int | float):  # yes or no as well: their mean is a share
        return Estimate(float(value))
    return nothing("not defined there")


def roles_of(number: Number) -> list[str]:
    """The roles whose suites a number is looked up in."""
    wanted = [number.table, number.column, *_texts(number.row)]
    return [role for text in wanted for role in _roles(text)]


def _roles(text: str) -> list[str]:
    return re.findall(r"@(\w+)", text)


def _texts(row: Mapping[str, str | float | list[str]]) -> list[str]:
    return [
        one
        for value in row.values()
        for one in (value if isinstance(value, list) else [value])
        if isinstance(one, str)
    ]


def _plain(value: Value) -> str:
    """A value as the file spells it."""
    return exactly(float(value)) if isinstance(value, int | float) else str(value)


def _spelt(row: Sequence[Value], columns: Sequence[Column], at: int) -> str:
    """A value of a row; no name passes for a word of ours."""
    value = row[at]
    return told(value, columns[at]) if isinstance(value, str) else _plain(value)


# Numbers that no other table has: tasks that two suites share, whole suites, readings.


CONDITION: Condition = "aware"
REST = (
    column(
        "what",
        "",
        "what the number is: a rate on tasks that two suites share, a median, or a registered reading of a "
        "claim",
        "text",
    ),
    column("suite"),
    column("budget"),
    share("value", "estimate", "the number", SAID),
)
REST_REMARKS = (
    "The arm with the certificate, aware, unless another is named. induced, shared tasks: failures among "
    "what the full cache answers, on the main tasks that both suites ask (S1). accuracy, all tasks: anchors "
    "included (R4). median certificate, all cells: of the attention suite; no share. The rest are registered "
    "readings of claims, which have no verdict.",
)


def rest(scope: Scope, suites: dict[str, str]) -> Table:
    """All of them, where the study has them; `suites`: by role."""
    rows = (
        *_shared(scope, suites),
        *_accuracy(scope, suites),
        *_certificate(scope, suites),
        *_readings(scope),
    )
    return Table("paper_rest", "Numbers that stand in no other table", REST, rows, REST_REMARKS)


def _shared(scope: Scope, suites: dict[str, str]) -> Iterator[Row]:
    pair = [suite for role in ("six", "sixteen") for suite in scope.suites if suite.name == suites.get(role)]
    if len(pair) == 2:
        tasks = [task for task in pair[0].main if task in pair[1].main]
        for suite in pair if tasks else ():
            yield from _rates(scope, suite, "induced_failure", "induced, shared tasks", tasks)


def _accuracy(scope: Scope, suites: dict[str, str]) -> Iterator[Row]:
    for suite in scope.suites:
        if suite.name == suites.get("six"):
            yield from _rates(scope, suite, "success", "accuracy, all tasks", suite.tasks)


def _rates(scope: Scope, suite: Suite, label: Label, what: str, tasks: Sequence[str]) -> Iterator[Row]:
    arm, table = suite.wanted.arm, scope.table
    here = (table["suite"] == suite.name) & (table["arm"] == arm) & (table["condition"] == CONDITION)
    for budget in map(float, sorted(set(table.loc[here & table["task"].isin(tasks), "budget"]))):
        asked = population([suite], label, arms=[arm], tasks=tasks, conditions=[CONDITION], budgets=[budget])
        reason = scope.lacks_of(asked)
        data = scope.data([suite], asked, "paper")
        found = nothing(reason) if reason else data.estimate(data.rate(data.counted))
        yield what, suite.name, budget, found


def _certificate(scope: Scope, suites: dict[str, str]) -> Iterator[Row]:
    """The median certificate of each budget (section 4), of one model alone: layers of two are not alike."""
    study, name = scope.report.study, suites.get("attention")
    cells = study.cells[study.cells["suite"] == name]
    for budget in sorted(set(cells["budget"])):
        found = _median(study, cells[cells["budget"] == budget])
        yield "median certificate, all cells", str(name), float(budget), found


def _median(study: Study, rows: pd.DataFrame) -> Estimate:
    if problems_touching(study, rows):
        return nothing("its logs are invalid")
    if missing := missing_rows(study, rows):
        return nothing(f"{sum(part.rows for part in missing):,} of {len(rows):,} cells are missing")
    if rows["model"].nunique() > 1:
        return nothing("the suite has several models")
    return median(floats(rows, "certificate"))


def _readings(scope: Scope) -> Iterator[Row]:
    for verdict in scope.report.verdicts:
        for reading, answer in verdict.readings.items():
            for quantity, found in answer.quantities.items():
                yield f"{verdict.claim_id} {reading}: {quantity}", "", "", found
