"""The paper's numbers beside those of a study: one table, a line a number."""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet

from analysis.core.estimates import Estimate
from analysis.describe.paper.lookup import Lookup, Number, Numbers, read, roles_of, standing
from analysis.describe.paper.rest import rest
from analysis.describe.parts import Part
from analysis.describe.scope import Scope
from analysis.describe.table import Column, Table, Value

DIGITS = 4  # after the point; the numbers stand in their own tables with all that they have
COLUMNS = (
    Column("section", "section"),
    Column("what", "what"),
    Column("paper", "the paper's"),
    Column("paper_interval", "its interval"),
    Column("ours", "ours", is_estimate=True),
    Column("difference", "difference"),
    Column("remark", "why not"),
)
OTHER_GRID = "a count on a grid of another size: no difference"
REMARKS = (
    "P. Xie, Error Certificates for KV-Cache Eviction via Randomized Design, 2026. Shares, not percent. "
    "Difference: ours minus the paper's. Intervals are 95 % cluster bootstrap in both.",
)


def beside(tables: Iterable[Table], scope: Scope) -> Part | None:
    """The table of all numbers; None for a study without a suite that stands for one of the paper's.

    Args:
        tables: of every part of the pages, and of the attention suites.
        scope: the study.
    """
    numbers, study = read(), scope.report.study
    frames = (study.table, study.cells)
    suites, models = (
        {name for frame in frames for name in frame[axis].cat.categories} for axis in ("suite", "model")
    )
    found = standing(numbers.roles, suites)
    if not found:
        return None
    more = rest(scope, found)
    lookup = Lookup([*tables, more], numbers.roles, found)
    counts = [(str(name), int(n)) for frame in frames for name, n in frame["suite"].value_counts().items()]
    sizes = {name: count for name, count in counts if count}
    repeated = {role for role, suite in found.items() if _is_repeated(numbers, role, sizes.get(suite, 0))}
    rows = tuple(_row(number, lookup.ours(number), repeated) for number in numbers.number)
    table = Table("paper", "The paper's numbers and ours", COLUMNS, rows, REMARKS)
    words = _words(numbers, found, sizes, sorted(models))
    return Part("paper", "The paper's numbers, beside ours", words, tables=(table, more))


def _is_repeated(numbers: Numbers, role: str, size: int) -> bool:
    """Whether a suite is as large as the one of the paper that it stands for."""
    return size == numbers.grid.get(numbers.roles[role][0])


def _row(number: Number, ours: Estimate, repeated: AbstractSet[str]) -> tuple[Value, ...]:
    """A line of the table; `repeated`: roles of suites as large as the paper's."""
    interval = "" if number.interval is None else f"[{number.interval[0]:g}, {number.interval[1]:g}]"
    place = (number.section, number.words, number.value, interval)
    if ours.value is None:
        return (*place, ours, "", ours.undefined)
    lo, hi = (None if end is None else round(end, DIGITS) for end in (ours.lo, ours.hi))
    shown = Estimate(round(ours.value, DIGITS), lo, hi, ours.n, ours.clusters)
    if number.is_count and not set(roles_of(number)) <= repeated:
        return (*place, shown, "", OTHER_GRID)
    difference = round(ours.value - number.value, DIGITS) + 0.0  # no minus before a zero
    return (*place, shown, difference, "")


def _words(numbers: Numbers, suites: Mapping[str, str], sizes: Mapping[str, int], models: list[str]) -> str:
    """What a reader must know before comparing: by the models and the size of each suite, not by a name."""
    others = [
        f"{suite} for {numbers.roles[role][0]}"
        for role, suite in suites.items()
        if suite != numbers.roles[role][0]
    ]
    foreign = [model for model in models if model not in numbers.models]
    if not foreign and not others:
        return _same_models(numbers, sizes)
    if not foreign or len(foreign) < len(models):
        among = f"Beside the paper's models: {', '.join(foreign)}." if foreign else "The paper's models."
        stand = ", ".join(others) or "none"
        return f"{among} Suites stand in: {stand}. A difference says nothing against either."
    stand = f" Suites stand in: {', '.join(others)}." if others else ""
    return (
        f"Another model stands beside the paper's: {', '.join(models)}, not Qwen2.5, Llama-3.1 and Mistral "
        f"of 1.5B to 8B.{stand} A difference says nothing against either."
    )


def _same_models(numbers: Numbers, sizes: Mapping[str, int]) -> str:
    """How much of the paper's grid a study on its models has."""
    if sizes == numbers.grid:
        return "The same grid on the same models: a difference is sampling error, the harness or the paper's."
    have = [f"{suite} {sizes.get(suite, 0):,} of {of:,}" for suite, of in numbers.grid.items()]
    return (
        f"The paper's models on another grid: {', '.join(have)} rows. Beside sampling error, the harness and "
        "the paper's, a difference may come from what is not the same."
    )
