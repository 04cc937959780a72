"""Figures and tables of a study, as files below the output folder."""

import logging
from collections.abc import Iterator, Sequence

from analysis.attention import Attention
from analysis.blind_marks import marked_svg, marked_table
from analysis.parts import Part
from analysis.tables import ablations, dictionary, tables_of, to_csv, to_markdown

FIGURES = ("scatter", "errors", "calibration", "layers", "rare", "worlds")


def outputs(
    suites: Sequence[Attention], parts: Sequence[Part], *, is_blind: bool = False
) -> Iterator[tuple[str, str | None]]:
    """Paths relative to the output folder, each with its text.

    None: the file must not be there. A figure of an earlier state would pass for one of these logs.
    With `is_blind`, suites and parts have their marks already; what is made of suites here gets them too.
    """
    for one in suites:
        drawn = dict(_figures(one)) if one.budgets else {}
        for name in FIGURES:
            svg = drawn.get(name)
            yield f"figures/{one.name}.{name}.svg", marked_svg(svg) if svg and is_blind else svg
    of_suites = [table for one in suites for table in tables_of(one)]
    of_suites += [ablations(suites)] if suites else []
    if is_blind:
        of_suites = [marked_table(table) for table in of_suites]
    tables = [*of_suites, *(table for part in parts for table in part.tables)]
    for table in tables:
        yield f"tables/{table.name}.csv", to_csv(table)
        yield f"tables/{table.name}.md", to_markdown(table)
    yield f"tables/{dictionary.NAME}.csv", to_csv(dictionary.dictionary(tables))
    for part in parts:
        for picture in part.pictures:
            yield f"figures/{picture.name}.svg", picture.svg


def _figures(one: Attention) -> Iterator[tuple[str, str]]:
    # Here, not above: half a second that a study without cells need not wait.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it talks of caches on stderr
    from analysis.figures import figures_of, to_svg

    for name, figure in figures_of(one):
        yield name, to_svg(figure)
