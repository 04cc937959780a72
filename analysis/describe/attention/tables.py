"""The tables of an attention suite, and the one that sets a study's attention suites side by side."""

from collections.abc import Iterable
from dataclasses import replace

from analysis.describe.attention.describe import Attention
from analysis.describe.attention.errors import ESTIMATORS
from analysis.describe.attention.heads import LEAST, LINE, Head, Heads, heads_of
from analysis.describe.table import BUDGET, Column, Table, Value, budget_words

COVERAGE = Column("coverage", "covered", "share", is_estimate=True)
SPEARMAN = Column("spearman", "Spearman", "share", is_estimate=True)
RATIO = Column("ratio", "ratio", "number", is_estimate=True)
RATIO_MEANS = "ratio: median certificate over median error of Poisson."
COVERED_MEANS = "covered: share of cells whose true error is no larger than the certificate says."
PROMISED = Column("promised", "promised", "share")
OF_WORLDS = ("demonstration", "worlds")
TALL = ("budgets", "demonstration")  # few rows of many columns
SPENT_ALL = 0.99  # an allocation that spends this share of the budget is the iterated one


def tables_of(one: Attention) -> list[Table]:
    """Every table of a suite; without rows, and with the reason, where the suite has no numbers."""
    least = tuple(_head(of, row) for of in one.heads for row in of.least)
    excerpts = {"heads": least}
    return [
        replace(_table(one, *parts), excerpt=excerpts.get(parts[0]))
        for parts in (
            _budgets(one),
            _errors(one),
            _calibration(one),
            _layers(one),
            _heads(one),
            _rare(one),
            _deployed(one),
        )
        + ((_demonstration(one), _worlds(one)) if one.demonstrations or one.undefined else ())
    ]


def ablations(suites: Iterable[Attention]) -> Table:
    """One line per suite and budget, so that choices can be compared."""
    medians = [_median(name, words.split(", ")[-1], has_interval=False) for name, words in ESTIMATORS.items()]
    columns = (
        Column("suite", "suite"),
        Column("task", "task"),
        Column("score", "score"),
        Column("allocation", "allocation"),
        BUDGET,
        COVERAGE,
        SPEARMAN,
        RATIO,
        *medians,
    )
    suites = list(suites)
    rows = tuple(
        (
            one.name,
            " ".join(one.tasks),
            " ".join(one.scores),
            _allocation(row.spent),
            row.budget,
            row.coverage,
            row.spearman,
            row.ratio,
            *(getattr(row, name) for name in ESTIMATORS),
        )
        for one in suites
        for row in one.budgets
    )
    remarks = [
        COVERED_MEANS,
        RATIO_MEANS,
        "Poisson, top-k, no offset, uniform: median relative error of the attention output.",
    ]
    remarks.append("allocation: single_clip where less than 99 % of the budget is spent, otherwise iterated.")
    remarks += [f"{one.name} has no numbers: {one.undefined}." for one in suites if one.undefined]
    return Table("ablations", "Attention suites side by side", columns, rows, tuple(remarks))


def _allocation(spent: float | None) -> Value:
    return None if spent is None else "iterated" if spent >= SPENT_ALL else "single_clip"


_Parts = tuple[str, str, tuple[Column, ...], list[tuple[Value, ...]], tuple[str, ...]]


def _table(
    one: Attention,
    what: str,
    title: str,
    columns: tuple[Column, ...],
    rows: list[tuple[Value, ...]],
    remarks: tuple[str, ...],
) -> Table:
    scores = f", score {', '.join(one.scores)}" if one.scores else ""
    about = f"{one.model}, {', '.join(one.tasks)}"
    if what not in OF_WORLDS:  # which have scores and prompts of their own
        about += f"{scores}, {one.prompts} prompts"
    if one.undefined:
        rows, remarks = [], (f"No numbers: {one.undefined}.",)
    title = f"{title}, {one.name} ({about})"
    return Table(f"{one.name}.{what}", title, columns, tuple(rows), remarks, is_tall=what in TALL)


def _budgets(one: Attention) -> _Parts:
    columns = (
        BUDGET,
        Column("cells", "cells"),
        PROMISED,
        COVERAGE,
        Column("spearman", "Spearman, all cells", "share", is_estimate=True),
        Column("spearman_within", "Spearman within heads", "share"),
        Column("groups", "heads of all layers"),
        Column("groups_undefined", "heads without Spearman"),
        RATIO,
        *(_median(name, f"error: {words}") for name, words in ESTIMATORS.items()),
        Column("lost", "lost without offset", "share", is_estimate=True),
        Column("spent", "budget spent", "share"),
        Column("silent", "silent cells", "share"),
    )
    rows: list[tuple[Value, ...]] = [
        (
            row.budget,
            row.cells,
            one.promised,
            row.coverage,
            row.spearman,
            row.within.median,
            row.within.groups,
            row.within.undefined,
            row.ratio,
            *(getattr(row, name) for name in ESTIMATORS),
            row.lost,
            row.spent,
            row.silent,
        )
        for row in one.budgets
    ]
    remarks = (
        COVERED_MEANS,
        "promised: 1 - delta, the coverage that the certificate is made for.",
        "Spearman: of certificate and error. Within heads: median over the (layer, head) of the model.",
        RATIO_MEANS,
        "error: median relative error of the attention output. Uniform draws have the offset too.",
        "lost: (no offset - Poisson) / (top-k - Poisson), what the offset is worth; above 1 no gain is left.",
        "budget spent: mean of the expected number of kept tokens over what the budget allows.",
        "silent cells: variance 0 although tokens were evicted. Intervals resample prompts.",
    )
    return "budgets", "Certificate and true error by budget", columns, rows, remarks


def _errors(one: Attention) -> _Parts:
    quantiles = ("q05", "q25", "q50", "q75", "q95")
    columns = (
        BUDGET,
        Column("estimator", "estimator"),
        *(Column(name, f"{int(name[1:])} %", "number") for name in quantiles),
    )
    rows: list[tuple[Value, ...]] = [
        (row.budget, ESTIMATORS[row.estimator], *(getattr(row, name) for name in quantiles))
        for row in one.errors
    ]
    return "errors", "Quantiles of the relative error", columns, rows, ()


def _calibration(one: Attention) -> _Parts:
    columns = (
        BUDGET,
        Column("delta", "delta"),
        Column("promised", "promised"),
        COVERAGE,
        Column("without_b", "covered without the b term", "share", is_estimate=True),
    )
    rows: list[tuple[Value, ...]] = [
        (row.budget, row.delta, 1 - row.delta, row.coverage, row.without_b) for row in one.calibration
    ]
    return "calibration", "Coverage by delta", columns, rows, (COVERED_MEANS,)


def _layers(one: Attention) -> _Parts:
    columns = (
        BUDGET,
        Column("layer", "layer"),
        COVERAGE,
        _median("hajek", "median error"),
        _median("certificate", "median certificate"),
    )
    rows: list[tuple[Value, ...]] = [
        (row.budget, row.layer, row.coverage, row.hajek, row.certificate) for row in one.layers
    ]
    return "layers", "Coverage and error by layer", columns, rows, (COVERED_MEANS,)


def _heads(one: Attention) -> _Parts:
    columns = (
        BUDGET,
        Column("layer", "layer"),
        Column("head", "head"),
        Column("cells", "cells"),
        Column("coverage", "covered", "share"),
        Column("hajek", "median error", "number"),
        Column("certificate", "median certificate", "number"),
    )
    rows = [_head(of, row) for of in one.heads for row in heads_of(of.every)]
    remarks = (
        f"Shown: the {LEAST} least covered heads of each budget; the CSV has all.",
        *(
            f"Budget {budget_words(of.budget)}: {of.below_line} of {of.heads} heads are covered in less "
            f"than {100 * LINE:g} % of their cells{_below_promise(one, of)}."
            for of in one.heads
        ),
        COVERED_MEANS,
    )
    return "heads", "Coverage by query head", columns, rows, remarks


def _head(of: Heads, row: Head) -> tuple[Value, ...]:
    return of.budget, row.layer, row.head, row.cells, row.coverage, row.hajek, row.certificate


def _below_promise(one: Attention, of: Heads) -> str:
    if one.promised is None or of.below_promise is None:
        return ""
    return f", {of.below_promise} in less than the promised {100 * one.promised:g} %"


def _rare(one: Attention) -> _Parts:
    columns = (BUDGET, Column("low", "from"), Column("high", "to"), Column("cells", "cells"), COVERAGE)
    rows: list[tuple[Value, ...]] = [
        (row.budget, row.low, row.high, row.cells, row.coverage) for row in one.rare
    ]
    remarks = ("from, to: share of the full cache's attention on tokens with pi < 1e-3.", COVERED_MEANS)
    return "rare", "Coverage by the share of attention on tokens with pi below 0.001", columns, rows, remarks


def _deployed(one: Attention) -> _Parts:
    columns = (
        BUDGET,
        Column("stride", "every n-th head"),
        Column("steps", "steps"),
        Column("certificate", "mean certificate", "number"),
        SPEARMAN,
    )
    rows: list[tuple[Value, ...]] = [
        (row.budget, row.stride, _steps(row.steps, row.queries), row.certificate, row.spearman)
        for row in one.deployed
    ]
    remarks = (
        "Mean over layers and every n-th head, largest of the first steps; one number per prompt and draw.",
        "Spearman: with the mean error over all layers, heads and steps, across prompts.",
    )
    return "deployed", "Certificate of a generation by head stride and steps", columns, rows, remarks


def _steps(steps: int | None, queries: int) -> Value:
    """A number of steps, or in words what was done with queries that are not consecutive."""
    if steps is not None:
        return steps
    return "1 query" if queries == 1 else f"mean of {queries} queries"


def _demonstration(one: Attention) -> _Parts:
    columns = (
        Column("change", "change"),
        Column("score", "score"),
        BUDGET,
        Column("prompts", "prompts"),
        Column("changed_worlds", "changed worlds"),
        Column("identical", "(prompt, layer) identical"),
        Column("compared", "of"),
        Column("cells", "cells"),
        Column("smallest", "smallest error", "number"),
        Column("largest", "largest error", "number"),
        Column("median_span", "span, median cell", "number"),
        Column("largest_span", "span, largest", "number"),
        Column("without_span", "cells without span"),
        Column("median_rise", "rise, largest of the worlds, median cell", "number"),
        Column("largest_rise", "rise, largest of the worlds, largest", "number"),
        Column("median_mean_rise", "rise, mean of the worlds, median cell", "number"),
    )
    rows: list[tuple[Value, ...]] = [
        (
            row.change,
            row.score,
            row.budget,
            row.prompts,
            row.changed,
            row.identical,
            row.compared,
            row.cells,
            row.smallest,
            row.largest,
            row.median_span,
            row.largest_span,
            row.without_span,
            row.median_rise,
            row.largest_rise,
            row.median_mean_rise,
        )
        for row in one.demonstrations
    ]
    remarks = (
        "In each changed world the values of top-k's evicted tokens are others; no key or kept value is.",
        "identical: everything that top-k can compute online is the same bytes in all worlds.",
        "Errors are top-k's; span: largest over smallest of one cell over the changed worlds.",
        "rise: largest, or mean, of one cell over the changed worlds, as a multiple of its error in world 0.",
        "Changes with different scores have different keep sets: do not compare their numbers.",
    )
    return "demonstration", "What top-k cannot see", columns, rows, remarks


def _worlds(one: Attention) -> _Parts:
    columns = (
        Column("change", "change"),
        Column("score", "score"),
        Column("world", "world"),
        COVERAGE,
        Column("certificate", "certificate", "number"),
        Column("hajek", "error", "number"),
        Column("certificate_exceeds", "above"),
        Column("topk", "top-k error", "number"),
    )
    rows: list[tuple[Value, ...]] = [
        (
            of.change,
            of.score,
            row.world,
            row.coverage,
            row.certificate,
            row.hajek,
            row.certificate_exceeds,
            row.topk,
        )
        for of in one.demonstrations
        for row in of.worlds
    ]
    remarks = (
        "World 0 is the unchanged one; Poisson's keep set is the same in all worlds of one change.",
        "certificate, error, top-k error: means over cells; above: the certificate exceeds Poisson's error.",
        *(f"{of.change}: {of.prompts} of the suite's {one.prompts} prompts." for of in one.demonstrations),
        COVERED_MEANS,
    )
    return "worlds", "Certificate and true error in each world", columns, rows, remarks


def _median(key: str, words: str, has_interval: bool = True) -> Column:
    return Column(key, words, "number", is_estimate=True, has_interval=has_interval)
