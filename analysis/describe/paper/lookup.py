"""Finds in the tables of a study what stands where the paper has a number."""

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import Annotated, Literal

import msgspec

from analysis.core.estimates import Estimate
from analysis.describe.table import Column, Table, Value, exactly, told

# The numbers that the paper prints, and where this analysis has its own (paper_numbers.toml).


FILE = Path(__file__).parent / "paper_numbers.toml"
Pick = Literal["smallest", "second smallest", "mean", "largest", "largest size"]
Finite = Annotated[float, msgspec.Meta(ge=-1e9, le=1e9)]


class Number(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One number of the paper.

    Attributes:
        section: of the paper, or its table.
        words: what it is.
        value: as printed; shares and points as shares.
        interval: lower and upper end, where one is printed.
        table: name of ours; `@role` at its start stands for a suite.
        row: values of columns that find the row, `@role` for a suite; a list names several.
        column: key of ours; `@role` at its end stands for a suite.
        pick: which of several rows; null: there is one. largest size: the largest without its sign.
        is_count: of rows, cells or failures, which only the same grid can repeat: no difference elsewhere.
        why: instead of a place, why there is none.
    """

    section: str
    words: str
    value: Finite
    interval: tuple[Finite, Finite] | None = None
    table: str = ""
    row: dict[str, str | float | list[str]] = {}
    column: str = ""
    pick: Pick | None = None
    is_count: bool = False
    why: str = ""

    def __post_init__(self) -> None:
        """Refuse what is neither bound nor explained."""
        if bool(self.table and self.column) == bool(self.why):
            raise ValueError(f"'{self.words}' needs either a table and a column, or why it has none")


class Numbers(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The whole file.

    Attributes:
        format: kvexp-paper-numbers/1.
        roles: the suites that stand for each other, the paper's own first.
        grid: generations of each suite of the paper's grid, and cells.
        models: of all its suites.
        number: in the paper's order.
    """

    format: Literal["kvexp-paper-numbers/1"]
    roles: dict[str, Annotated[list[str], msgspec.Meta(min_length=1)]]
    grid: dict[str, int]
    models: list[str]
    number: list[Number]


def read() -> Numbers:
    """The file as it ships."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), Numbers)


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
            return _none(number.why)
        for role in roles_of(number):
            if role not in self._suites:
                return _none(f"the study has no suite that stands for {self._names[role]}")
        name, column = self._named(number.table), self._named(number.column)
        table = self._tables.get(name)
        if table is None:
            return _none(f"the study has no table {name}")
        keys = [one.key for one in table.columns]
        if absent := next((key for key in (column, *number.row) if key not in keys), None):
            return _none(f"table {name} has no column {absent}")
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
            return _none(f"table {name} has no row with {where}")
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
        return found[0] if len(found) == 1 else _none(f"{len(found)} rows fit")
    ranked = list[tuple[float, Estimate]]()
    for one in found:
        if one.value is not None:
            sized = _size(one) if pick == "largest size" else one
            ranked.append((sized.value or 0.0, sized))
        elif one.undefined:
            return one
    if not ranked:
        return _none("no row has such a number")
    ranked.sort(key=lambda pair: pair[0])
    if pick == "mean":
        return Estimate(fmean(value for value, _ in ranked), n=sum(one.n for _, one in ranked))
    at = {"smallest": 0, "second smallest": 1, "largest": -1, "largest size": -1}[pick]
    return ranked[at][1] if at < len(ranked) else _none(f"{len(found)} rows fit")


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
    return _none("not defined there")


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


def _none(reason: str) -> Estimate:
    return Estimate(None, undefined=reason)
