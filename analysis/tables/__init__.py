"""Tables of descriptive numbers, each written as CSV for machines and as Markdown for people."""

from analysis.tables import dictionary
from analysis.tables.as_csv import to_csv
from analysis.tables.as_markdown import to_markdown
from analysis.tables.attention import ablations, tables_of
from analysis.tables.base import Column, Table

__all__ = ["Column", "Table", "ablations", "dictionary", "tables_of", "to_csv", "to_markdown"]
