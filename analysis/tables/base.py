"""What a table is, whatever it is written as."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from analysis.statistics import Estimate
from kvexp.terminal import printable

Value = str | int | float | Estimate | None
CAUTION = "Descriptive numbers; no verdict reads them."
NOT_ASKED = Estimate(None)  # there is no such number to have, as a signal that an arm does not log


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: its name for machines.
        words: its name for people.
        form: how people see its numbers: "share" 0.969, "percent" 96.9 %, "number" 3 significant digits,
            "plain" as it is. Machines get them as they are.
        is_estimate: it holds estimates, which take four columns in a CSV.
        has_interval: people see the interval too.
    """

    key: str
    words: str
    form: str = "plain"
    is_estimate: bool = False
    has_interval: bool = True


BUDGET = Column("budget", "budget", "percent")
# What stands beside every pooled AUC; tables say it in the same words, so that a page can say it once.
POOLED_MEANS = "pooled: AUC of all pairs, across models, tasks, conditions and budgets."
STRATIFIED_MEANS = "stratified: AUC of pairs within the same model, task, condition and budget."
LABEL_MEANS = "label alone: AUC of the bare condition x budget label, which needs no signal."


@dataclass(frozen=True)
class Table:
    """Rows of values, None where one is undefined.

    Attributes:
        name: of the file, without its ending.
        title: one line.
        columns: in order.
        rows: one value for each column.
        remarks: what a reader must know to read the columns.
        is_tall: few rows of many columns: people see it turned, a line for each column.
        excerpt: the rows that people see where all are too many; machines get all.
        caution: what the numbers are, in one sentence before them.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Value, ...], ...]
    remarks: tuple[str, ...] = ()
    is_tall: bool = False
    excerpt: tuple[tuple[Value, ...], ...] | None = None
    caution: str = CAUTION

    def only(self, keys: Sequence[str], remarks: Sequence[str]) -> "Table":
        """The table with these columns alone, and with remarks that fit them."""
        at = [[column.key for column in self.columns].index(key) for key in keys]
        columns = tuple(self.columns[i] for i in at)
        rows = tuple(tuple(row[i] for i in at) for row in self.rows)
        return replace(self, columns=columns, rows=rows, remarks=tuple(remarks))

    def shown(self, *, has_intervals: bool = True) -> list[list[str]]:
        """Heads and rows as people see them; without `has_intervals` no column shows any."""
        columns = [replace(c, has_interval=c.has_interval and has_intervals) for c in self.columns]
        lines = [[column.words for column in columns]]
        rows = self.rows if self.excerpt is None else self.excerpt
        lines += [[shown(*pair) for pair in zip(row, columns, strict=True)] for row in rows]
        return [list(line) for line in zip(*lines, strict=True)] if self.is_tall else lines

    def reasons(self) -> Iterator[str]:
        """Why values or intervals are undefined, each reason once."""
        seen = dict[str, list[str]]()
        for row in self.rows:
            for value, column in zip(row, self.columns, strict=True):
                if isinstance(value, Estimate) and value.undefined:
                    names = seen.setdefault(value.undefined, [])
                    names += [column.words] if column.words not in names else []
        yield from (f"{reason} ({'; '.join(names)})" for reason, names in seen.items())


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
        return printable(value)
    return f"{value:,}" if isinstance(value, int) else digits(value, column.form)


def percent(share: float) -> str:
    """A share as people write it: 12.5 %."""
    return digits(share, "percent")


def digits(value: float, form: str) -> str:
    """A number in one of the forms of `Column`."""
    if form == "share":
        return f"{value:.3f}"
    if form == "percent":
        return f"{100 * value:.4g} %"
    if form == "number":
        return f"{value:#.3g}".removesuffix(".")
    return f"{value:g}"
