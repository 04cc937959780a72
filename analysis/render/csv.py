"""CSV: numbers with 6 significant digits, budgets with all; an empty field where there is none, and why.

Text that a spreadsheet would take for a formula has an apostrophe before it.
"""

import csv
import io
import math

from analysis.core.estimates import Estimate
from analysis.describe.table import Column, Table, Value, exactly, told
from kvexp.errors import printable

ENDINGS = ("", "_lo", "_hi", "_undefined")  # of the columns of an estimate
FORMULA = ("=", "+", "-", "@")


def to_csv(table: Table) -> str:
    """The whole file. An estimate `x` takes the columns x, x_lo, x_hi and x_undefined."""
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_defused(name) for column in table.columns for name in _heads(column)])
    for row in table.rows:
        cells = zip(row, table.columns, strict=True)
        writer.writerow([text for value, column in cells for text in _texts(value, column)])
    return file.getvalue()


def _heads(column: Column) -> list[str]:
    endings = ENDINGS if column.is_estimate else ("",)
    return [column.key + ending for ending in endings]


def _texts(value: Value, column: Column) -> list[str]:
    if not column.is_estimate:
        return [_text(value, column)]
    if not isinstance(value, Estimate):
        raise TypeError(f"column {column.key} holds estimates")
    numbers = [_text(one, column) for one in (value.value, value.lo, value.hi)]
    return [*numbers, _defused(value.undefined)]


def _text(value: Value, column: Column) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return exactly(value) if column.form == "budget" else f"{value + 0.0:.6g}"  # no minus zero
    return _defused(told(value, column)) if isinstance(value, str) else str(value)


def _defused(text: str) -> str:
    """Printable text that starts no formula, also behind spaces."""
    shown = printable(text)
    return f"'{shown}" if shown.lstrip().startswith(FORMULA) else shown
