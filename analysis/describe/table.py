"""What a table is, whatever it is written as; each column says once what it holds."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from operator import attrgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from analysis.core.estimates import Estimate
from kvexp.errors import printable

Value = str | int | float | Estimate | None
Row = tuple[Value, ...]
CAUTION = "Descriptive numbers; no verdict reads them."


class Word(str):
    """A word of ours in a column of names, such as `pooled` for all models together; no name is one."""

    __slots__ = ()


ALL, MAIN, POOLED = Word("all"), Word("main"), Word("pooled")
WORDS = {"model": (POOLED,), "task": (ALL, MAIN)}  # by key of a column: names that could pass for them
NOT_ASKED = Estimate(None)  # there is no such number to have, as a signal that an arm does not log

CHANCE = 0.5  # the AUC of a signal without information
AUC, SHARE, ERROR = "AUC, 0 to 1", "share", "relative error"
DIFFERENCE, RANKED = "difference of shares", "from -1 to 1"
# What a column of such a key holds in every table that says nothing else: meaning and unit.
MEANINGS: dict[str, tuple[str, str]] = {
    "suite": ("suite of the study", "name"),
    "suites": ("suites that are pooled", "names"),
    "model": (
        "model; pooled: all models of the suite together, a model called so is written `pooled (a model)`",
        "name",
    ),
    "task": (
        "task; main: the main tasks together; all: all tasks; a task called so is written `main (a task)`",
        "name",
    ),
    "tasks": ("tasks that are pooled; main: the main ones", "name"),
    "arm": ("eviction method; full: the whole cache", "name"),
    "condition": ("aware: eviction after the question is known; stream: before it", "name"),
    "budget": (
        "share of the cached tokens that is kept; all: all budgets together; empty: none",
        SHARE,
    ),
    "seed": ("seed of the draw; mean: the mean over all seeds", "number"),
    "signal": (
        "quantity that is to tell failures, oriented so that larger means more likely a failure",
        "name",
    ),
    "label": (
        "what is positive: own_failure, induced_failure (among what the full cache answers), attribution "
        "(among failures)",
        "name",
    ),
    "rows": ("answers that are counted", "count"),
    "positives": ("of these, positive ones: failures of the kind that the label names", "count"),
    "failures": ("answers that fail", "count"),
    "successes": ("answers that succeed", "count"),
    "auc": (
        "probability that the signal ranks a positive answer above another one, all pairs (ties half)",
        AUC,
    ),
    "pooled": ("the AUC over all pairs, across models, tasks, conditions and budgets", AUC),
    "stratified": ("the AUC over pairs within the same model, task, condition and budget", AUC),
    "baseline": ("the AUC of the bare condition x budget label, without any signal", AUC),
    "cell": ("the AUC of the bare condition x budget label, without any signal", AUC),
    "coverage": ("share of cells whose true error is no larger than the certificate says", SHARE),
    "spearman": ("rank correlation of certificate and true error, all cells together", RANKED),
    "ratio": ("median certificate over median error of Poisson eviction", "ratio"),
    "hajek": ("error of the attention output under Poisson eviction with the offset", ERROR),
    "no_offset": ("median error under Poisson eviction without the offset", ERROR),
    "topk": ("error of the attention output under top-k eviction", ERROR),
    "uniform": ("median error under uniform sampling, with the offset", ERROR),
    "certificate": ("certified relative error of the attention output", ERROR),
    "score": ("importance score that pi and top-k are made from", "name"),
    "cells": ("cells: one query head of one layer at one query of one prompt", "count"),
    "layer": ("layer of the model, from 0", "number"),
    "head": ("query head of the layer, from 0", "number"),
    "promised": ("coverage that the certificate is made for, 1 - delta", SHARE),
    "induced": ("failures among what the full cache answers", SHARE),
    "rescued": ("successes among what the full cache does not answer", SHARE),
    "base": ("accuracy of the arm alone", SHARE),
    "full": ("accuracy of the full cache", SHARE),
    "random": ("accuracy with as many queries recomputed, chosen at random: the exact expectation", SHARE),
}
UNITS = {"share": SHARE, "budget": SHARE, "number": "number", "plain": ""}  # of a column that has no other


@dataclass(frozen=True)
class Column:
    """One column."""

    key: str  # its name for machines
    words: str  # its name for people
    # How people see its numbers: "share" 0.969, "percent" 96.9 %, "number" 3 significant digits, "budget"
    # 12.5 % with all its digits, "plain" as it is. Machines get them with 6 significant digits, a budget with
    # all.
    form: str = "plain"
    is_estimate: bool = False  # it holds estimates, which take four columns in a CSV
    has_interval: bool = True  # people see the interval too
    meaning: str = ""  # what it holds; empty: what MEANINGS says of its key
    unit: str = ""  # of its numbers, or what kind of value it is

    @property
    def explained(self) -> tuple[str, str]:
        """Meaning and unit; a column that nobody explains means at least what its head says."""
        if self.meaning:
            return self.meaning, self.unit
        return MEANINGS.get(self.key, (self.words, UNITS.get(self.form, "")))


def column(key: str, words: str = "", meaning: str = "", unit: str = "", form: str = "plain") -> Column:
    """A column of names, counts or numbers without intervals."""
    return Column(key, words or key, form, meaning=meaning, unit=unit)


def share(key: str, words: str = "", meaning: str = "", unit: str = SHARE, *, bare: bool = False) -> Column:
    """A column of estimates between 0 and 1; `bare`: people do not see their intervals."""
    return Column(key, words or key, "share", True, not bare, meaning, unit)


def number(key: str, words: str = "", meaning: str = "", unit: str = "", form: str = "number") -> Column:
    """A column of estimates on any scale."""
    return Column(key, words or key, form, True, meaning=meaning, unit=unit)


def columns(*keys: str) -> tuple[Column, ...]:
    """Columns whose heads are their keys."""
    return tuple(BUDGET if key == "budget" else column(key) for key in keys)


BUDGET = Column("budget", "budget", "budget")
# What stands beside every pooled AUC; tables say it in the same words, so that a page can say it once.
POOLED_MEANS = "pooled: AUC of all pairs, across models, tasks, conditions and budgets."
STRATIFIED_MEANS = "stratified: AUC of pairs within the same model, task, condition and budget."
LABEL_MEANS = "label alone: AUC of the bare condition x budget label, which needs no signal."
AUCS = (share("auc", "AUC"), share("stratified"), share("cell", "label alone"))


@dataclass(frozen=True)
class Table:
    """Rows of values, None where one is undefined."""

    name: str  # of the file, without its ending
    title: str  # one line
    columns: tuple[Column, ...]  # in order
    rows: tuple[Row, ...]  # one value for each column
    remarks: tuple[str, ...] = ()  # what a reader must know to read the columns
    is_tall: bool = False  # few rows of many columns: people see it turned, a line for each column
    # The rows that people see where all are too many; machines get all.
    excerpt: tuple[Row, ...] | None = None
    caution: str = CAUTION  # what the numbers are, in one sentence before them
    brief: tuple["Table", ...] = ()  # what the terminal shows of it after a run

    def only(self, keys: Sequence[str], remarks: Sequence[str]) -> "Table":
        """The table with these columns alone, and with remarks that fit them."""
        at = [[column.key for column in self.columns].index(key) for key in keys]
        columns = tuple(self.columns[i] for i in at)
        rows = tuple(tuple(row[i] for i in at) for row in self.rows)
        return replace(self, columns=columns, rows=rows, remarks=tuple(remarks))

    def bare(self) -> "Table":
        """The table without its intervals."""
        return replace(self, columns=tuple(replace(one, has_interval=False) for one in self.columns))

    def briefly(self, *tables: "Table") -> "Table":
        """The table, of which a terminal shows these after a run."""
        return replace(self, brief=tables)

    def shown(self) -> list[list[str]]:
        """Heads and rows as people see them."""
        lines = [[column.words for column in self.columns]]
        rows = self.rows if self.excerpt is None else self.excerpt
        lines += [[shown(*pair) for pair in zip(row, self.columns, strict=True)] for row in rows]
        return [list(line) for line in zip(*lines, strict=True)] if self.is_tall else lines

    def reasons(self) -> Iterator[str]:
        """Why values, or intervals that people see, are undefined; each reason once."""
        seen = dict[str, list[str]]()
        for row in self.rows:
            for value, column in zip(row, self.columns, strict=True):
                is_asked = column.has_interval or not isinstance(value, Estimate) or value.value is None
                if isinstance(value, Estimate) and value.undefined and is_asked:
                    names = seen.setdefault(value.undefined, [])
                    names += [column.words] if column.words not in names else []
        yield from (f"{reason} ({'; '.join(names)})" for reason, names in seen.items())


# Records of numbers as lines of a table: fields and properties whose types are annotated with a Column.


def columns_of(record: type, keys: Sequence[str] = ()) -> tuple[Column, ...]:
    """The columns that a record's fields and properties declare; `keys`: these alone, in this order."""
    found = dict(_declared(record))
    return tuple(found[key][0] for key in (keys or found))


def rows_of(record: type, records: Iterable[Any], keys: Sequence[str] = ()) -> tuple[Row, ...]:
    """Records as rows of `columns_of`."""
    found = dict(_declared(record))
    reads = [attrgetter(found[key][1]) for key in (keys or found)]
    return tuple(tuple(read(one) for read in reads) for one in records)


def _declared(record: type, path: str = "") -> Iterator[tuple[str, tuple[Column, str]]]:
    """By key: the column, and where the record has its value; a record in a record has its columns there."""
    hints = get_type_hints(record, include_extras=True)
    made = {name: one for name, one in vars(record).items() if isinstance(one, property)}
    hints |= {name: get_type_hints(one.fget, include_extras=True)["return"] for name, one in made.items()}
    for name, hint in hints.items():
        if get_origin(hint) is Annotated:
            kind, told = get_args(hint)
            if isinstance(told, Column):
                column = replace(told, key=told.key or name, is_estimate=kind is Estimate)
                yield column.key, (column, path + name)
            else:
                yield from _declared(kind, f"{path}{name}.")


# Values as people see them.


def shown(value: Value, column: Column) -> str:
    """One value as people see it."""
    if isinstance(value, Estimate):
        if value.value is None:
            return "undefined" if value.undefined else "-"
        if value.lo is None or value.hi is None or not column.has_interval:
            return digits(value.value, column.form)
        low, high = digits(value.lo, column.form), digits(value.hi, column.form)
        return f"{digits(value.value, column.form)} [{low}, {high}]"
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "undefined"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return printable(told(value, column))
    return f"{value:,}" if isinstance(value, int) else digits(value, column.form)


def told(name: str, column: Column) -> str:
    """A name as tables say it: one that is spelt like a word of ours in its column says that it is a name."""
    is_alike = not isinstance(name, Word) and name in WORDS.get(column.key, ())
    return f"{name} (a {column.key})" if is_alike else name


def exactly(number: float) -> str:
    """A number of a plan with as few digits as tell it from every other: 0.125, 0.1234561."""
    short = f"{number + 0.0:.6g}"
    return short if float(short) == number else repr(number)


def budget_words(share: float) -> str:
    """A budget as people write it, with all its digits: 12.5 %, 12.34561 %."""
    return f"{(100 * Decimal(repr(float(share)))).normalize():f} %"


def percent(share: float, decimals: int | None = None) -> str:
    """A share as people write it: 12.5 %; with a fixed number of decimals if one is given."""
    return digits(share, "percent") if decimals is None else f"{100 * share:.{decimals}f} %"


def digits(value: float, form: str) -> str:
    """A number in one of the forms of `Column`."""
    if form == "share":
        return f"{value:.3f}"
    if form == "percent":
        return f"{100 * value:.4g} %"
    if form == "budget":
        return budget_words(value)
    if form == "number":
        return f"{value:#.3g}".removesuffix(".")
    return f"{value:g}"
