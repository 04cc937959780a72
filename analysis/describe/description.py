"""Everything descriptive, made after the verdicts: details.json, details.md, tables, figures, report.html.

No seal covers this module or what it imports, and no verdict reads any of it. A module of this folder with a
number ORDER and a function `describe`, which yields parts, takes part by being there; so does one of
attention/ for every attention suite.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np

from analysis import describe
from analysis.core.study import Study
from analysis.core.verdicts import Report
from analysis.describe import attention
from analysis.describe.attention.budgets import ablations
from analysis.describe.attention.cell_suite import CellSuite, cell_suites
from analysis.describe.blind_marks import marked_parts
from analysis.describe.control import controlled
from analysis.describe.paper import beside
from analysis.describe.parts import Part
from analysis.describe.rates import RATES, rates_of
from analysis.describe.scope import Scope
from analysis.describe.signals import panel_of
from kvexp.documents.registration import Registered


@dataclass(frozen=True)
class Attention:
    """An attention suite described: its records by their name in details.json, and its part of the pages."""

    suite: CellSuite
    numbers: dict[str, tuple[Any, ...]]
    part: Part


@dataclass(frozen=True)
class Description:
    """A study described.

    Attributes:
        study: that was read.
        details: records of the suites with generations by their name in details.json.
        attention: its attention suites.
        parts: of attention suites, descriptive ones, then what is post hoc, and the paper's numbers.
        is_blind: outcomes are permuted.
    """

    study: Study
    details: dict[str, tuple[Any, ...]]
    attention: list[Attention]
    parts: list[Part]
    is_blind: bool = False


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
