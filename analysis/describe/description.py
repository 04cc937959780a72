"""All parts of a description, and the marks of a blind run on everything that it writes."""

import importlib
import pkgutil
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any

import numpy as np

from analysis import describe
from analysis.core.study import Study
from analysis.core.verdicts import Report
from analysis.describe import attention
from analysis.describe.attention.budgets import ablations
from analysis.describe.attention.cell_suite import CellSuite, cell_suites
from analysis.describe.control import controlled
from analysis.describe.paper import beside
from analysis.describe.parts import Part, Picture
from analysis.describe.rates import RATES, rates_of
from analysis.describe.scope import Scope
from analysis.describe.signals import panel_of
from analysis.describe.table import Table
from kvexp.documents.registration import Registered

# What a blind run says on everything that it writes: no table or figure of it can pass for a result.


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


# Everything descriptive, made after the verdicts: details.json, details.md, tables, figures, report.html.
#
# No seal covers this module or what it imports, and no verdict reads any of it. A module of this folder with
# a number ORDER and a function `describe`, which yields parts, takes part by being there; so does one of
# attention/ for every attention suite.


@dataclass(frozen=True)
class Attention:
    """An attention suite described: its records by their name in details.json, and its part of the pages."""

    suite: CellSuite
    numbers: dict[str, tuple[Any, ...]]
    part: Part


@dataclass(frozen=True)
class Description:
    """A study described."""

    study: Study  # that was read
    # Records of the suites with generations by their name in details.json.
    details: dict[str, tuple[Any, ...]]
    attention: list[Attention]  # its attention suites
    parts: list[Part]  # of attention suites, descriptive ones, then what is post hoc, and the paper's numbers
    is_blind: bool = False  # outcomes are permuted


def described(report: Report) -> Description:
    """Describe the study of a report."""
    scope = Scope(report)
    suites = attention_of(report.study, report.registrations)
    parts = [*attention_parts(suites), *parts_of(scope)]
    last = beside([table for part in parts for table in part.tables], scope)
    parts += [] if last is None else [last]
    parts = marked_parts(parts) if report.is_blind else parts
    return Description(report.study, details_of(scope), suites, parts, report.is_blind)


def parts_of(scope: Scope) -> list[Part]:
    """The parts about generations, in the order of their modules."""
    return [part for module in plugins(describe) for part in module.describe(scope)]


def plugins(package: ModuleType) -> list[ModuleType]:
    """The modules of a package, not of packages in it, that have a number ORDER, in that order."""
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__) if not one.ispkg)
    found = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return sorted((one for one in found if hasattr(one, "ORDER")), key=lambda one: float(one.ORDER))


def details_of(scope: Scope) -> dict[str, tuple[Any, ...]]:
    """What parts have computed, suite by suite; the control where one is registered."""
    found: dict[str, tuple[Any, ...]] = {
        "panel": tuple(row for suite in scope.planned for row in panel_of(scope, suite)),
        **{
            name: tuple(row for suite in scope.planned for row in rates_of(scope, suite, name))
            for name in RATES
        },
    }
    wanted = [one.content.details for one in scope.report.registrations]
    if any(one is not None and one.control is not None for one in wanted):
        found["control"] = tuple(one for suite in scope.planned for one in controlled(scope, suite))
    return found


def attention_of(study: Study, registrations: Iterable[Registered]) -> list[Attention]:
    """The attention suites of a study; empty for a study without any."""
    return [_attention(suite) for suite in cell_suites(study, registrations)]


def _attention(suite: CellSuite) -> Attention:
    with np.errstate(all="ignore"):  # what leaves the floats is undefined, with a reason
        found = [one for module in plugins(attention) for one in module.describe(suite)]
    part = Part(
        f"attention-{suite.name}",
        f"Attention suite {suite.name}",
        tables=tuple(table for one in found for table in one.tables),
        pictures=tuple(picture for one in found for picture in one.pictures),
        undefined=suite.undefined,
    )
    return Attention(suite, {one.name: one.records for one in found}, part)


def attention_parts(suites: Iterable[Attention]) -> list[Part]:
    """A part for each suite, and one that sets them side by side."""
    suites = list(suites)
    table = ablations((one.suite, one.numbers["budgets"]) for one in suites)
    beside = [Part("ablations", table.title, tables=(table,))] if suites else []
    return [*(one.part for one in suites), *beside]
