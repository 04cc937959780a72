"""The numbers that the paper prints, and where this analysis has its own (paper_numbers.toml)."""

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

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
