"""Tables as a page shows them: cells with their text and with what they are sorted by."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from analysis.core.estimates import Estimate
from analysis.describe.table import Column, Table, Value, shown

UNDEFINED = "Undefined: "
LONGEST = 24  # characters of a name that is kept on one line
LONG = 24  # rows above which a table is folded


@dataclass(frozen=True)
class Cell:
    """One cell."""

    text: str  # as people see it
    # The number that it is sorted by; None: by its text, or last where the column has numbers.
    sort: float | None = None
    is_code: bool = False  # an expression, a command or a digest
    is_missing: bool = False  # there is no value; the text says so, and a name with the same letters does not

    @property
    def is_whole(self) -> bool:
        """Whether it is one short name, which is not broken."""
        return "-" in self.text and " " not in self.text and len(self.text) <= LONGEST

    @property
    def key(self) -> str:
        """The sort key as an attribute; no digit is lost."""
        return "" if self.sort is None else repr(self.sort)


NONE = Cell("-", is_missing=True)


@dataclass(frozen=True)
class Head:
    """The head of a column."""

    text: str
    is_number: bool = False


@dataclass(frozen=True)
class Grid:
    """A table of the page."""

    title: str  # its caption
    heads: tuple[Head, ...]  # in order; the first cell of each row is the head of the row
    rows: tuple[tuple[Cell, ...], ...]  # one cell for each head
    remarks: tuple[str, ...] = ()  # sentences below it
    files: tuple[str, ...] = ()  # paths beside the page with the same numbers
    is_turned: bool = False  # a line for each column; it is not sorted
    rest: int = 0  # rows that only the files have
    is_open: bool = False  # never folded

    @property
    def is_long(self) -> bool:
        """Whether it is folded until somebody asks."""
        return len(self.rows) > LONG and not self.is_open


def of_table(table: Table) -> Grid:
    """A table that also lies in tables/, as the page shows it."""
    rows = table.rows if table.excerpt is None else table.excerpt
    cells = [[_cell(*pair) for pair in zip(row, table.columns, strict=True)] for row in rows]
    heads = [Head(column.words, _has_numbers(rows, at)) for at, column in enumerate(table.columns)]
    remarks = (*table.remarks, *(f"{UNDEFINED}{reason}." for reason in table.reasons()))
    files = files_of(table)
    rest = len(table.rows) - len(rows)
    if not table.is_tall:
        return Grid(table.title, tuple(heads), tuple(map(tuple, cells)), remarks, files, rest=rest)
    lines = [[Cell(head.text) for head in heads], *cells]
    first, *others = (tuple(line) for line in zip(*lines, strict=True))
    turned = tuple(Head(cell.text, at > 0) for at, cell in enumerate(first))
    return Grid(table.title, turned, tuple(others), remarks, files, is_turned=True)


def files_of(table: Table) -> tuple[str, ...]:
    """Paths of a table's files beside the page."""
    return tuple(f"tables/{table.name}.{ending}" for ending in ("csv", "md"))


def remarks_of(grids: Iterable[Grid]) -> tuple[str, ...]:
    """Every remark of some tables, once."""
    return tuple(dict.fromkeys(remark for one in grids for remark in one.remarks))


def repeated(groups: Iterable[Iterable[str]]) -> tuple[str, ...]:
    """Remarks that stand in more than one group; what is undefined is said where it is."""
    counts = Counter(remark for group in groups for remark in group)
    return tuple(one for one, count in counts.items() if count > 1 and not one.startswith(UNDEFINED))


def without(remarks: Sequence[str], grids: Iterable[Grid]) -> tuple[Grid, ...]:
    """The tables without some remarks, which stand before them all."""
    return tuple(
        replace(one, remarks=tuple(text for text in one.remarks if text not in remarks)) for one in grids
    )


def grid(
    title: str,
    heads: Sequence[str],
    rows: Iterable[Sequence[Cell | str | int | float | bool | Estimate | None]],
    remarks: Iterable[str] = (),
    *,
    is_open: bool = False,
) -> Grid:
    """A table that only the page has: values as `Table` has them, or cells. Empty columns are left out."""
    made = [tuple(map(_of_value, row)) for row in rows]
    filled = [at for at in range(len(heads)) if any(row[at].text for row in made)]
    heads, made = [heads[at] for at in filled], [tuple(row[at] for at in filled) for row in made]
    numbers = [_is_numeric([row[at] for row in made]) for at in range(len(heads))]
    found = tuple(Head(*pair) for pair in zip(heads, numbers, strict=True))
    return Grid(title, found, tuple(made), tuple(remarks), is_open=is_open)


def estimate(found: Estimate | None, *, is_count: bool = False) -> Cell:
    """A number with its interval; a count as a whole number."""
    if found is None:
        return NONE
    if is_count and found.value is not None:
        return Cell(f"{found.value:g}", found.value)
    return Cell(
        shown(found, Column("", "", "share", is_estimate=True)), found.value, is_missing=found.value is None
    )


def truth(value: bool | None) -> Cell:
    """A three-valued truth."""
    return Cell({True: "true", False: "false", None: "unknown"}[value], is_missing=value is None)


def code(text: str) -> Cell:
    """An expression, a command or a digest."""
    return Cell(text, is_code=True)


def _of_value(value: Cell | str | int | float | bool | Estimate | None) -> Cell:
    if isinstance(value, Cell):
        return value
    if isinstance(value, Estimate):
        return estimate(value)
    if value is None:
        return NONE
    return _cell(value, Column("", ""))


def _cell(value: Value, column: Column) -> Cell:
    number = value.value if isinstance(value, Estimate) else value
    is_number = isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number)
    sort = float(number) if is_number and number is not None else None
    is_missing = sort is None and not isinstance(number, str | bool)
    return Cell(shown(value, column), sort, is_missing=is_missing or value == "")


def _has_numbers(rows: Iterable[Sequence[Value]], at: int) -> bool:
    return _is_numeric([_cell(row[at], Column("", "")) for row in rows])


def _is_numeric(cells: Sequence[Cell]) -> bool:
    """Whether a column holds numbers, and beside them nothing but what is undefined."""
    told = [cell for cell in cells if cell.text and not cell.is_missing]
    return bool(told) and all(cell.sort is not None for cell in told)
