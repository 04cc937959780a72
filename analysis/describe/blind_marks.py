"""What a blind run says on everything that it writes: no table or figure of it can pass for a result."""

import re
from collections.abc import Sequence
from dataclasses import replace

from analysis.describe.parts import Part, Picture
from analysis.describe.table import Table

MARK = "BLIND"
CAUTION = f"{MARK}: outcomes are permuted, so nothing here is a result."
ENDING = ".blind"  # of the names of files, before .csv, .md and .svg
STRIP = 12  # of the units of a drawing, above it: its mark lies over none of its words
_HEAD = re.compile(r"<svg\b[^>]*>")
_BOX = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')
_HEIGHT = re.compile(r'\bheight="([\d.]+)')


def marked_parts(parts: Sequence[Part]) -> list[Part]:
    """Parts whose tables, pictures and files say that they are blind."""
    return [
        replace(
            part,
            tables=tuple(map(marked_table, part.tables)),
            pictures=tuple(map(_picture, part.pictures)),
        )
        for part in parts
    ]


def marked_table(table: Table) -> Table:
    """A table with its mark in the file's name, before the title and before the caution."""
    title = table.title if MARK in table.title else f"{MARK}: {table.title}"  # one that says it by itself
    caution = f"{CAUTION} {table.caution}"
    brief = tuple(map(marked_table, table.brief))
    return replace(table, name=table.name + ENDING, title=title, caution=caution, brief=brief)


def _picture(one: Picture) -> Picture:
    sentence = one.sentence and f"{CAUTION} {one.sentence}"
    svg = None if one.svg is None else marked_svg(one.svg)
    return replace(one, name=one.name + ENDING, title=f"{MARK}: {one.title}", sentence=sentence, svg=svg)


def marked_svg(svg: str) -> str:
    """A drawing with the mark in a strip of its own above it; over its corner if it says no size."""
    before, end, after = svg.rpartition("</svg>")
    head = _HEAD.search(before)
    box = _BOX.search(head[0]) if head else None
    strip, place = "", 'x="4" y="9"'
    if head and box:
        width, height = (float(number) for number in box.groups())
        before = before[: head.start()] + _taller(head[0], height) + before[head.end() :]
        strip = f'<rect x="0" y="{-STRIP}" width="{width:g}" height="{STRIP}" style="fill: #ffffff"/>'
        place = f'x="{width - 4:g}" text-anchor="end" y="-3"'
    words = f'<text {place} style="font: bold 9px sans-serif; fill: #d55e00">{MARK}</text>'
    return f"{before} {strip}{words}\n{end}{after}" if end else svg


def _taller(head: str, height: float) -> str:
    """The opening tag of a drawing of this height with room for the strip."""
    high = height + STRIP
    head = _BOX.sub(lambda found: f'viewBox="0 {-STRIP} {found[1]} {high:g}"', head)
    return _HEIGHT.sub(lambda found: f'height="{float(found[1]) * high / height:g}', head)
