"""CSV: numbers with 6 significant digits, budgets with all; an empty field where there is none, and why.

Text that a spreadsheet would take for a formula has an apostrophe before it. columns.csv explains columns.
"""

import csv
import io
import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from analysis.core.estimates import Estimate
from analysis.describe.table import Column, Row, Table, Value, column, exactly, told
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


# tables/columns.csv: what every column of the tables and every field of the JSON files means.


FILE = Path(__file__).parent / "json_fields.toml"
NAME = "columns"
ESTIMATE = "an estimate"  # a unit that stands for the fields of one
COLUMNS = (
    column("file", meaning="file in tables/, or beside it", unit="name"),
    column(
        "field",
        meaning="column of a CSV, or path in a JSON: [] an entry of a list, * any name, ** anything below",
        unit="name",
    ),
    column("words", meaning="its name in tables for people", unit="text"),
    column("meaning", meaning="what it is", unit="text"),
    column("unit", meaning="its unit, or what kind of value it is", unit="text"),
)
Meanings = Mapping[str, tuple[str, str]]  # by name: meaning and unit


class Glossary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """json_fields.toml."""

    format: Literal["kvexp-json-fields/1"]  # kvexp-json-fields/1
    estimate: dict[str, tuple[str, str]]  # by field of an estimate
    json: dict[str, dict[str, tuple[str, str]]]  # by file, then by path


@cache
def glossary() -> Glossary:
    """The file as it ships."""
    return msgspec.convert(tomllib.loads(FILE.read_text(encoding="utf-8")), Glossary)


def dictionary(tables: Iterable[Table]) -> Table:
    """A line for each column of these tables, of its own, and for each field of the JSON files."""
    own = Table(NAME, "", COLUMNS, ())
    rows = [row for table in (*tables, own) for row in _of_table(table)]
    rows += [row for file, fields in glossary().json.items() for row in _of_json(file, fields)]
    return Table(NAME, "What every column means", COLUMNS, tuple(rows))


def _of_table(table: Table) -> Iterator[Row]:
    for one in table.columns:
        meaning, unit = one.explained
        yield f"{table.name}.csv", one.key, one.words, meaning, unit
        for ending in ENDINGS[1:] if one.is_estimate else ():
            told, other = glossary().estimate[ending.removeprefix("_")]
            yield f"{table.name}.csv", one.key + ending, "", f"of {one.key}: {told}", other or unit


def _of_json(file: str, fields: Meanings) -> Iterator[Row]:
    for path, (meaning, unit) in fields.items():
        if unit != ESTIMATE:
            yield file, path, "", meaning, unit
            continue
        for name, (words, other) in glossary().estimate.items():
            yield file, f"{path}.{name}", "", f"{meaning}: {words}", other
