"""What a table is, whatever it is written as."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from analysis.core.estimates import Estimate
from kvexp.errors import printable

Value = str | int | float | Estimate | None
CAUTION = "Descriptive numbers; no verdict reads them."


class Word(str):
    """A word of ours in a column of names, such as `pooled` for all models together; no name is one."""

    __slots__ = ()


ALL, MAIN, POOLED = Word("all"), Word("main"), Word("pooled")
WORDS = {"model": (POOLED,), "task": (ALL, MAIN)}  # by key of a column: names that could pass for them
NOT_ASKED = Estimate(None)  # there is no such number to have, as a signal that an arm does not log


@dataclass(frozen=True)
class Column:
    """One column.

    Attributes:
        key: its name for machines.
        words: its name for people.
        form: how people see its numbers: "share" 0.969, "percent" 96.9 %, "number" 3 significant digits,
            "budget" 12.5 % with all its digits, "plain" as it is. Machines get them with 6 significant
            digits, a budget with all.
        is_estimate: it holds estimates, which take four columns in a CSV.
        has_interval: people see the interval too.
    """

    key: str
    words: str
    form: str = "plain"
    is_estimate: bool = False
    has_interval: bool = True


BUDGET = Column("budget", "budget", "budget")
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


def percent(share: float) -> str:
    """A share as people write it: 12.5 %."""
    return digits(share, "percent")


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
