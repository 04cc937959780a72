"""Parts of the descriptive pages: tables and pictures under one heading, whoever shows them."""

from dataclasses import dataclass

from analysis.tables.base import Table


@dataclass(frozen=True)
class Picture:
    """A figure.

    Attributes:
        name: of the file figures/NAME.svg.
        title: one line.
        sentence: what it supports, in one sentence with its numbers.
        svg: the drawing; None if the rows it needs are not there.
        undefined: why there is no drawing.
        more: details that the sentence leaves out, in a shorter line.
    """

    name: str
    title: str
    sentence: str
    svg: str | None
    undefined: str = ""
    more: str = ""


@dataclass(frozen=True)
class Part:
    """One heading of the pages. It has no verdict and no field for one.

    Attributes:
        key: anchor and name, letters, digits and dashes.
        title: one line.
        words: what a reader must know first, one or two sentences.
        tables: files tables/NAME.csv and tables/NAME.md.
        pictures: in order.
        is_posthoc: conceived after data were seen (in the paper, or here); shown in its own section.
    """

    key: str
    title: str
    words: str = ""
    tables: tuple[Table, ...] = ()
    pictures: tuple[Picture, ...] = ()
    is_posthoc: bool = False
