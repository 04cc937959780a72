"""tables/columns.csv: what every column of the tables and every field of the JSON files means."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Literal

import msgspec

from analysis.describe.blind_marks import ENDING
from analysis.describe.table import Column, Table, Value
from analysis.render.csv import ENDINGS

FILE = Path(__file__).parent / "columns.toml"
NAME = "columns"
ESTIMATE = "an estimate"  # a unit that stands for the fields of one
EVERY = "*"  # the words that hold in every table
UNITS = {"share": "share", "budget": "share", "number": "number", "plain": ""}
COLUMNS = tuple(Column(key, key) for key in ("file", "field", "words", "meaning", "unit"))
Meanings = Mapping[str, tuple[str, str]]  # by name: meaning and unit


class Glossary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """columns.toml.

    Attributes:
        format: kvexp-columns/1.
        estimate: by field of an estimate.
        tables: by table, then by column.
        json: by file, then by path.
    """

    format: Literal["kvexp-columns/1"]
    estimate: dict[str, tuple[str, str]]
    tables: dict[str, dict[str, tuple[str, str]]]
    json: dict[str, dict[str, tuple[str, str]]]


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


def known(table: str, key: str) -> tuple[str, str] | None:
    """Meaning and unit of a column; None: columns.toml does not have it.

    Tables of an attention suite have its name before theirs; those of a blind run are marked in their names.
    """
    every, table = glossary().tables, table.replace(ENDING, "")
    own = every.get(table) or every.get(f"*.{table.rpartition('.')[2]}", {})
    if found := own.get(key) or every[EVERY].get(key):
        return found
    for pattern, (meaning, unit) in own.items():
        if match := re.fullmatch(re.escape(pattern).replace(r"\*", "(.+)"), key):
            return meaning.replace("{}", ".".join(match.groups())), unit
    return None


def _of_table(table: Table) -> Iterator[tuple[Value, ...]]:
    for column in table.columns:
        # A table that somebody added says at least what its heads say.
        meaning, unit = known(table.name, column.key) or (column.words, UNITS.get(column.form, ""))
        yield f"{table.name}.csv", column.key, column.words, meaning, unit
        for ending in ENDINGS[1:] if column.is_estimate else ():
            meaning, other = glossary().estimate[ending.removeprefix("_")]
            words = f"of {column.key}: {meaning}"
            yield f"{table.name}.csv", column.key + ending, "", words, other or unit


def _of_json(file: str, fields: Meanings) -> Iterator[tuple[Value, ...]]:
    for path, (meaning, unit) in fields.items():
        if unit != ESTIMATE:
            yield file, path, "", meaning, unit
            continue
        for name, (words, other) in glossary().estimate.items():
            yield file, f"{path}.{name}", "", f"{meaning}: {words}", other
