"""The numbers of attention suites, against slow loops over small hand-made tables."""

import csv
import dataclasses
import io
import itertools
import re
import warnings
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest
from scipy.stats import spearmanr

from analysis.core.estimates import Estimate, multiplicities
from analysis.core.problems import Problem
from analysis.describe.description import Description, attention_of, attention_parts
from analysis.describe.table import Column, Table
from analysis.render.csv import to_csv
from analysis.render.markdown import to_markdown
from analysis.render.terminal import to_text
from tests import cell_frames

DRAWS = 40
BINS = (0.0, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 0.1, 1.0)
ERRORS = ("hajek", "no_offset", "topk", "uniform")
FACTS = ("suite", "model", "name", "tasks", "scores", "prompts", "cells", "undefined", "frame")


def described(study, registrations):
    """Attention suites: what they are, their numbers by name, their tables, and lines for a terminal."""
    found = attention_of(study, registrations)
    return [
        SimpleNamespace(
            **{name: getattr(one.suite, name) for name in FACTS},
            **one.numbers,
            tables=one.part.tables,
            whole=one,
        )
        for one in found
    ]


def ablations(told):
    (table,) = attention_parts([one.whole for one in told])[-1].tables
    return table


def text_of(told, *, is_full):
    found = [one.whole for one in told]
    parts = attention_parts(found) if len(found) > 1 else [found[0].part]
    study = Description(cell_frames.study(cell_frames.cells(prompts=1)), {}, found, parts)
    return to_text(study, is_full=is_full).splitlines()


@pytest.fixture(scope="module")
def registered(registrations):
    """A registration that keys the suites below, with few draws."""
    content = registrations[0].content
    plan = msgspec.structs.replace(content.statistics, draws=DRAWS)
    changed = msgspec.structs.replace(content, suites=["attention", "other"], statistics=plan)
    return dataclasses.replace(registrations[0], content=changed)


@pytest.fixture
def tell(registered):
    """A function that describes tables with one suite on one model."""

    def told(cells, worlds=None, **options):
        (one,) = described(cell_frames.study(cells, worlds, **options), [registered])
        return one

    return told


@pytest.fixture(scope="module")
def cells():
    rows = cell_frames.cells()
    rows.loc[rows.index % 50 == 0, "variance"] = 0.0
    rows.loc[rows.index % 100 == 0, "kept"] = rows["evictable"]  # half of these evicted nothing
    rows.loc[rows["budget"] == 0.5, "expected_kept"] *= 0.6
    one_head = (rows["layer"] == 1) & (rows["head"] == 4) & (rows["budget"] == 0.25)
    rows.loc[one_head, "certificate"] = 0.5  # does not vary
    return rows


@pytest.fixture(scope="module")
def worlds():
    return cell_frames.worlds()


@pytest.fixture(scope="module")
def told(cells, worlds, registered):
    (one,) = described(cell_frames.study(cells, worlds), [registered])
    return one


def resampled(rows, registered, of):
    """A statistic on every resample, prompts repeated row by row: the slow way to the same draws."""
    prompts = sorted(set(rows["example_id"]))
    weights = multiplicities(np.zeros(len(prompts), np.int64), DRAWS, registered.seed("attention"))
    own = {prompt: rows[rows["example_id"] == prompt] for prompt in prompts}
    values = []
    for draw in weights.astype(int):
        parts = [own[prompt] for prompt, times in zip(prompts, draw, strict=True) for _ in range(times)]
        values.append(of(pd.concat(parts)))
    return np.quantile(values, [0.025, 0.975])


def test_what_a_suite_is(told, cells):
    assert (told.suite, told.model, told.name, told.undefined) == ("attention", "small", "attention", "")
    assert (told.tasks, told.scores, told.prompts, told.cells) == (("prose",), ("window",), 12, len(cells))
    assert [row.budget for row in told.budgets] == [0.125, 0.25, 0.5]


def test_shares_and_medians_by_budget(told, cells):
    for row in told.budgets:
        here = cells[cells["budget"] == row.budget].to_dict("records")
        assert row.cells == len(here) == row.coverage.n
        assert row.coverage.value == pytest.approx(sum(r["covered"] for r in here) / len(here), abs=1e-12)
        for name in ERRORS:
            assert getattr(row, name).value == pytest.approx(np.median([r[name] for r in here]), rel=1e-12)
        certificate = np.median([r["certificate"] for r in here])
        assert row.ratio.value == pytest.approx(certificate / row.hajek.value, rel=1e-12)
        middle = {name: getattr(row, name).value for name in ERRORS}
        gain = middle["topk"] - middle["hajek"]
        assert row.lost.value == pytest.approx((middle["no_offset"] - middle["hajek"]) / gain, rel=1e-9)
        spent = [r["expected_kept"] / (r["budget"] * r["evictable"]) for r in here]
        assert row.spent == pytest.approx(sum(spent) / len(spent), rel=1e-12)
        silent = [r["variance"] == 0 and r["kept"] < r["evictable"] for r in here]
        assert row.silent == pytest.approx(sum(silent) / len(silent), abs=1e-12)
        assert 0 < row.silent < 0.02
    assert told.budgets[2].spent == pytest.approx(0.6)


def test_rank_correlations_by_budget(told, cells):
    for row in told.budgets:
        here = cells[cells["budget"] == row.budget]
        expected = spearmanr(here["certificate"], here["hajek"]).statistic
        assert row.spearman.value == pytest.approx(expected, abs=1e-12)
        found, undefined = [], 0
        for layer, head in itertools.product(range(3), range(9)):
            group = here[(here["layer"] == layer) & (here["head"] == head)]
            if group["certificate"].nunique() == 1:
                undefined += 1
            else:
                found.append(spearmanr(group["certificate"], group["hajek"]).statistic)
        assert (row.within.groups, row.within.undefined) == (27, undefined)
        assert undefined == (row.budget == 0.25)
        assert row.within.median == pytest.approx(np.median(found), abs=1e-12)


def test_ties_are_ranked_as_scipy_ranks_them(tell, cells):
    rows = cells.assign(hajek=cells["hajek"].round(1), certificate=cells["certificate"].round(1))
    for row in tell(rows).budgets:
        here = rows[rows["budget"] == row.budget]
        found = [
            spearmanr(group["certificate"], group["hajek"]).statistic
            for _, group in here.groupby(["layer", "head"])
            if group["certificate"].nunique() > 1 and group["hajek"].nunique() > 1
        ]
        assert row.within.undefined == 27 - len(found)
        assert row.within.median == pytest.approx(np.median(found), abs=1e-12)


def test_intervals_are_those_of_prompts_drawn_again(told, cells, registered):
    row = told.budgets[0]
    here = cells[cells["budget"] == row.budget]
    checked = {
        "coverage": lambda r: r["covered"].mean(),
        "hajek": lambda r: np.median(r["hajek"]),
        "ratio": lambda r: np.median(r["certificate"]) / np.median(r["hajek"]),
        "spearman": lambda r: spearmanr(r["certificate"], r["hajek"]).statistic,
        "lost": lambda r: (
            (np.median(r["no_offset"]) - np.median(r["hajek"]))
            / (np.median(r["topk"]) - np.median(r["hajek"]))
        ),
    }
    for name, of in checked.items():
        found = getattr(row, name)
        assert found.clusters == 12
        assert [found.lo, found.hi] == pytest.approx(resampled(here, registered, of), rel=1e-9), name


def test_what_is_lost_is_undefined_where_poisson_gains_nothing(tell, cells):
    rows = cells.assign(topk=np.where(cells["budget"] == 0.25, cells["hajek"] * 0.9, cells["topk"]))
    small, middle, _ = tell(rows).budgets
    assert small.lost.value is not None
    assert middle.lost.value is None
    assert "not below that of top-k" in middle.lost.undefined


def test_quantiles_of_errors(told, cells):
    assert len(told.errors) == 12
    for row in told.errors:
        here = np.sort(cells.loc[cells["budget"] == row.budget, row.estimator])
        for share, value in zip(
            (0.05, 0.25, 0.5, 0.75, 0.95), (row.q05, row.q25, row.q50, row.q75, row.q95), strict=True
        ):
            at = share * (len(here) - 1)
            low = int(at)
            between = here[low] + (at - low) * (here[min(low + 1, len(here) - 1)] - here[low])
            assert value == pytest.approx(between, rel=1e-12)


def test_calibration(told, cells):
    assert [row.delta for row in told.calibration[:8]] == [0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5]
    for row in told.calibration:
        whole, without, n = 0, 0, 0
        for r in cells[cells["budget"] == row.budget].to_dict("records"):
            root = (2 * r["variance"] * np.log(1 / row.delta)) ** 0.5
            error = r["hajek"] * (r["norm"] + 1e-9)
            whole += error <= root + r["largest"] * np.log(1 / row.delta)
            without += error <= root
            n += 1
        assert row.coverage.value == pytest.approx(whole / n, abs=1e-12)
        assert row.without_b.value == pytest.approx(without / n, abs=1e-12)
    for budget in (0.125, 0.25, 0.5):
        shares = [row.coverage.value for row in told.calibration if row.budget == budget]
        assert shares == sorted(shares, reverse=True)
        assert shares[0] > shares[-1]


def test_the_registered_delta_gives_the_logged_coverage(tell):
    one = tell(cell_frames.cells())
    for row in one.budgets:
        (same,) = [c for c in one.calibration if (c.budget, c.delta) == (row.budget, 0.1)]
        assert same.coverage == row.coverage


def test_layers(told, cells):
    assert [(row.budget, row.layer) for row in told.layers] == [
        (budget, layer) for budget in (0.125, 0.25, 0.5) for layer in range(3)
    ]
    for row in told.layers:
        here = cells[(cells["budget"] == row.budget) & (cells["layer"] == row.layer)].to_dict("records")
        assert row.coverage.value == pytest.approx(np.mean([r["covered"] for r in here]), abs=1e-12)
        assert row.hajek.value == pytest.approx(np.median([r["hajek"] for r in here]), rel=1e-12)
        assert row.certificate.value == pytest.approx(np.median([r["certificate"] for r in here]), rel=1e-12)


def test_heads(told, cells):
    assert [of.budget for of in told.heads] == [0.125, 0.25, 0.5]
    for of in told.heads:
        found = []
        for layer, head in itertools.product(range(3), range(9)):
            here = cells[(cells["budget"] == of.budget) & (cells["layer"] == layer) & (cells["head"] == head)]
            middle = [np.median(here[name]) for name in ("hajek", "certificate")]
            found.append((layer, head, len(here), here["covered"].mean(), *middle))
        every = np.array(list(of.every.itertuples(index=False, name=None)))
        assert every == pytest.approx(np.array(found), rel=1e-12)
        shares = [row[3] for row in found]
        assert of.heads == 27
        assert of.below_line == sum(share < 0.85 for share in shares)
        assert of.below_promise == sum(share < 0.9 for share in shares)
        least = sorted(found, key=lambda row: (row[3], *row[:2]))[:12]
        shown = np.array([dataclasses.astuple(row) for row in of.least])
        assert shown == pytest.approx(np.array(least), rel=1e-12)
    table = next(table for table in told.tables if table.name == "attention.heads")
    assert to_csv(table).count("\n") == 1 + 3 * 27
    text = to_markdown(table)
    assert sum(bool(re.match(r"\| [\d.]+ % ", line)) for line in text.splitlines()) == 3 * 12
    of = told.heads[0]
    line = f"Budget 12.5 %: {of.below_line} of 27 heads are covered in less than 85 % of their cells, "
    assert f"{line}{of.below_promise} in less than the promised 90 %." in text


def test_bins_of_attention_on_rare_tokens(tell, cells):
    # The borders themselves; 0.1 to 1 stays empty at one budget.
    shares = np.resize([*BINS[:-2], 5e-7, 0.005, 0.09], len(cells))
    at_one = (cells["budget"] != 0.25) & (np.arange(len(cells)) % 9 == 0)
    rows = cells.assign(rare_attention=np.where(at_one, 1.0, shares))
    found = tell(rows).rare
    assert [(row.low, row.high) for row in found] == [*itertools.pairwise(BINS)] * 3
    for row in found:
        inside = [
            r["covered"]
            for r in rows[rows["budget"] == row.budget].to_dict("records")
            if row.low <= r["rare_attention"] < row.high or (row.high == 1 == r["rare_attention"])
        ]
        assert row.cells == len(inside)
        if inside:
            assert row.coverage.value == pytest.approx(np.mean(inside), abs=1e-12)
        else:
            assert (row.budget, row.low, row.coverage.value) == (0.25, 0.1, None)
            assert "no cell" in row.coverage.undefined
    assert sum(row.cells for row in found) == len(rows)
    assert sum(row.cells == 0 for row in found) == 1


def generation(rows, column, stride):
    """Mean over layers and every stride-th head by (prompt, seed) and offset, in loops."""
    sums = {}
    for r in rows.to_dict("records"):
        if r["head"] % stride == 0:
            sums.setdefault((r["example_id"], r["seed"]), {}).setdefault(r["offset"], []).append(r[column])
    return {place: [np.mean(by_offset[at]) for at in sorted(by_offset)] for place, by_offset in sums.items()}


@pytest.mark.parametrize("offsets", [(0, 1, 2, 3), tuple(range(14)), (8, 24, 40), (5,)])
def test_the_certificate_of_a_generation(tell, offsets):
    rows = cell_frames.cells(offsets=offsets, seeds=(0, 1), budgets=(0.25, 0.5))
    found = tell(rows).deployed
    are_steps = offsets[0] == 0
    steps = range(1, min(12, len(offsets)) + 1) if are_steps else [None]
    expected = list(itertools.product((0.25, 0.5), (1, 2, 4, 8), steps))
    assert [(row.budget, row.stride, row.steps) for row in found] == expected
    slow = {
        (budget, stride, column): generation(rows[rows["budget"] == budget], column, stride)
        for budget, stride, column in itertools.product((0.25, 0.5), (1, 2, 4, 8), ("certificate", "hajek"))
    }
    for row in found:
        certificates = slow[row.budget, row.stride, "certificate"]
        targets = {place: np.mean(values) for place, values in slow[row.budget, 1, "hajek"].items()}
        one = {
            place: max(values[: row.steps]) if are_steps else np.mean(values)
            for place, values in certificates.items()
        }
        assert (row.queries, row.spearman.n, row.spearman.clusters) == (len(offsets), 24, 12)
        assert row.certificate == pytest.approx(np.mean(list(one.values())), rel=1e-12)
        ranks = spearmanr([one[place] for place in targets], list(targets.values())).statistic
        assert row.spearman.value == pytest.approx(ranks, abs=1e-12)


def test_the_demonstration(told, worlds):
    assert [of.change for of in told.demonstrations] == ["permutation", "rotation"]
    for of in told.demonstrations:
        here = worlds[worlds["change"] == of.change].to_dict("records")
        errors = {}
        for r in here:
            if r["world"] > 0:
                errors.setdefault((r["example_id"], r["layer"], r["head"]), []).append(r["topk"])
        spans = [max(values) / min(values) for values in errors.values()]
        assert (of.budget, of.changed, of.prompts, of.cells) == (0.25, 6, 2, len(errors))
        assert (of.identical, of.compared, of.without_span) == (6, 6, 0)
        assert of.smallest == min(min(values) for values in errors.values())
        assert of.largest == max(max(values) for values in errors.values())
        assert of.largest_span == pytest.approx(max(spans), rel=1e-12)
        assert of.median_span == pytest.approx(np.median(spans), rel=1e-12)
        unchanged = {(r["example_id"], r["layer"], r["head"]): r["topk"] for r in here if r["world"] == 0}
        rises = [max(values) / unchanged[place] for place, values in errors.items()]
        assert of.median_rise == pytest.approx(np.median(rises), rel=1e-12)
        assert of.largest_rise == pytest.approx(max(rises), rel=1e-12)
        means = [np.mean(values) / unchanged[place] for place, values in errors.items()]
        assert of.median_mean_rise == pytest.approx(np.median(means), rel=1e-12)
        assert [row.world for row in of.worlds] == list(range(7))
        for row in of.worlds:
            inside = [r for r in here if r["world"] == row.world]
            assert row.coverage.value == pytest.approx(np.mean([r["covered"] for r in inside]), abs=1e-12)
            for name in ("certificate", "hajek", "topk"):
                assert getattr(row, name) == pytest.approx(np.mean([r[name] for r in inside]), rel=1e-12)
            assert row.exceeds


def test_a_statistic_that_moves_in_one_world_is_counted(tell, cells, worlds):
    moved = (
        (worlds["change"] == "rotation")
        & (worlds["world"] == 4)
        & (worlds["layer"] == 2)
        & (worlds["example_id"] == "prose-0001")
    )
    changed = worlds.assign(
        statistics=worlds["statistics"].where(~moved, "f" * 64),
        hajek=np.where(worlds["world"] == 3, worlds["certificate"] * 2, worlds["hajek"]),
        topk=np.where((worlds["world"] == 2) & (worlds["head"] == 0), 0.0, worlds["topk"]),
    )
    permutation, rotation = tell(cells, changed).demonstrations
    assert (permutation.identical, permutation.compared) == (6, 6)
    assert (rotation.identical, rotation.compared) == (5, 6)
    assert [row.exceeds for row in rotation.worlds] == [world != 3 for world in range(7)]
    assert (rotation.smallest, rotation.without_span) == (0, 6)
    assert np.isfinite(rotation.largest_span)


def test_world_0_is_no_changed_world(tell, cells, worlds):
    rows = worlds.assign(topk=np.where(worlds["world"] == 0, 1e9, worlds["topk"]))
    assert tell(cells, rows).demonstrations[0].largest < 1e3


@pytest.mark.parametrize("what", ["cells", "worlds", "problem"])
def test_a_part_gives_no_numbers(tell, cells, worlds, what):
    options = {}
    if what == "problem":
        options["problems"] = [Problem("broken", "attention", "attention.small.prose.000")]
    elif what == "cells":
        cells = cells.assign(present=cells.index != 17)
        options["absences"] = {("attention", "attention.small.prose.000"): "not complete (no footer)"}
    else:
        worlds = worlds.assign(present=worlds.index != 17)
    one = tell(cells, worlds, **options)
    assert (one.budgets, one.errors, one.calibration, one.layers) == ((), (), (), ())
    assert (one.rare, one.deployed, one.demonstrations) == ((), (), ())
    assert len(one.frame) == len(one.whole.suite.worlds) == 0
    if what == "problem":
        assert one.undefined == "its logs are invalid"
    else:
        assert f"1 of {len(cells) + len(worlds):,} cells and worlds are missing" in one.undefined
    if what == "cells":
        assert "attention.small.prose.000 is not complete (no footer)" in one.undefined
    for table in one.tables:
        assert to_csv(table).count("\n") == 1  # heads only
        assert f"No numbers: {one.undefined}." in to_markdown(table)
    assert one.undefined in "".join(line.strip() + " " for line in text_of([one], is_full=False))


def test_a_suite_that_nobody_keys_is_named(tell):
    one = tell(cell_frames.cells(suite="stray", prompts=2))
    assert (one.name, one.undefined, one.budgets) == ("stray", "no registration keys the suite", ())


def test_a_problem_elsewhere_takes_no_numbers(tell, cells):
    assert tell(cells, problems=[Problem("broken", "embedded-1k", "s")]).budgets


def test_a_study_without_cells_has_nothing_to_tell(cells, registered):
    assert described(cell_frames.study(cells.iloc[:0]), [registered]) == []


def test_models_are_not_pooled_and_suites_keep_apart(registered):
    parts = [
        cell_frames.cells(model="a", layers=2),
        cell_frames.cells(model="b", layers=3, seed=1),
        cell_frames.cells(suite="other", score="question", seed=2),
    ]
    text = ("suite", "shard_id", "model", "task", "example_id", "score")
    rows = pd.concat([part.astype(dict.fromkeys(text, object)) for part in parts], ignore_index=True)
    rows = rows.astype(dict.fromkeys(text, "category"))
    found = described(cell_frames.study(rows), [registered])
    assert [one.name for one in found] == ["attention.a", "attention.b", "other"]
    assert [max(row.layer for row in one.layers) for one in found] == [1, 2, 2]
    assert [one.cells for one in found] == [len(part) for part in parts]
    table = ablations(found)
    assert [row[:4] for row in table.rows[::3]] == [
        ("attention.a", "prose", "window", "iterated"),
        ("attention.b", "prose", "window", "iterated"),
        ("other", "prose", "question", "iterated"),
    ]
    lines = text_of(found, is_full=False)
    assert "Attention suites side by side" in lines
    assert max(map(len, lines)) <= 100


def test_an_allocation_that_saves_is_named(told):
    assert [row[3] for row in ablations([told]).rows] == ["iterated", "iterated", "single_clip"]


def test_nothing_leaves_the_floats_and_nobody_is_warned(tell):
    """The largest and smallest numbers that a log can hold, in one suite."""
    ends = [1e30, 5e-324, 0.0, 1e-300, 1.0]
    cells, worlds = cell_frames.cells(prompts=12, layers=2, heads=2), cell_frames.worlds(layers=2, heads=2)
    names = ("hajek", "topk", "no_offset", "uniform", "certificate", "variance", "largest", "norm")
    for at, name in enumerate(names):
        cells[name] = np.resize(np.roll(ends, at), len(cells))
        if name in worlds:
            worlds[name] = np.resize(np.roll(ends, at), len(worlds))
    cells["budget"] = cells["budget"].replace(0.5, 5e-324)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        # The title of a panel has all digits of its budget, here hundreds.
        warnings.filterwarnings("ignore", "constrained_layout not applied")
        one = tell(cells, worlds)
    numbers = floats_of(tuple(one.whole.numbers.values()))
    assert len(numbers) > 500
    assert np.isfinite(numbers).all()
    assert one.budgets[0].spent is None
    assert one.demonstrations[0].without_span > 0


def floats_of(part):
    if dataclasses.is_dataclass(part):
        part = tuple(getattr(part, field.name) for field in dataclasses.fields(part))
    if isinstance(part, (tuple, list)):
        return [number for one in part for number in floats_of(one)]
    return [part] if isinstance(part, float) else []


def test_reasons_name_their_columns_readably():
    estimate = Estimate(None, undefined="too few")
    columns = [Column(words, words, is_estimate=True) for words in ("Spearman, all cells", "error: top-k")]
    table = Table("t", "t", tuple(columns), ((estimate, estimate),))
    assert list(table.reasons()) == ["too few (Spearman, all cells; error: top-k)"]


def test_the_order_of_rows_changes_nothing(told, cells, worlds, tell):
    mixed = tell(cells.sample(frac=1, random_state=3), worlds.sample(frac=1, random_state=4))
    for one, other in zip(told.tables, mixed.tables, strict=True):
        assert to_csv(one) == to_csv(other)


def test_csv_holds_what_was_found(told):
    tables = {table.name: list(csv.DictReader(io.StringIO(to_csv(table)))) for table in told.tables}
    assert list(tables) == [
        f"attention.{what}"
        for what in (
            *(
                "budgets",
                "errors",
                "calibration",
                "layers",
                "heads",
                "rare",
                "deployed",
                "demonstration",
                "worlds",
            ),
        )
    ]
    for row, one in zip(tables["attention.budgets"], told.budgets, strict=True):
        assert row["hajek"] == f"{one.hajek.value:.6g}"
        assert (row["hajek_lo"], row["hajek_hi"]) == (f"{one.hajek.lo:.6g}", f"{one.hajek.hi:.6g}")
        assert (row["hajek_undefined"], row["cells"]) == ("", str(one.cells))
    for row in tables["attention.worlds"]:
        assert (row["coverage_lo"], row["certificate_exceeds"]) == ("", "true")
        assert row["coverage_undefined"] == "no interval under 10 clusters, here 2"


def test_markdown_shows_them_and_says_what_they_are(told):
    tables = {table.name: to_markdown(table) for table in told.tables}
    text = tables["attention.budgets"]
    assert "Descriptive numbers; no verdict reads them." in text
    row = told.budgets[0]
    assert f"| covered | {row.coverage.value:.3f} [{row.coverage.lo:.3f}, {row.coverage.hi:.3f}] |" in text
    assert "Undefined: no interval under 10 clusters, here 2 (covered)." in tables["attention.worlds"]
    for body in tables.values():
        lines = [line for line in body.splitlines() if line.startswith("|")]
        assert len({line.count("|") for line in lines}) == 1


def test_nothing_breaks_out_of_a_table():
    bad = "a|b\n<script>`*_\\ \x1b[31m"
    table = Table("t", bad, (Column("x", "x"), Column("y", "y")), ((bad, 1.5), ("-0", -0.0)), (bad,))
    lines = to_markdown(table).splitlines()
    assert not any(sign in "".join(lines) for sign in ("<script", "\x1b"))
    rows = [line for line in lines if line.startswith("|")]
    assert len(rows) == 4
    assert rows[2] == "| a\\|b\\\\n&lt;script&gt;\\`\\*\\_\\\\ \\\\x1b[31m | 1.5 |"
    parsed = list(csv.reader(io.StringIO(to_csv(table))))
    assert parsed == [["x", "y"], ["a|b\\n<script>`*_\\ \\x1b[31m", "1.5"], ["'-0", "0"]]


def test_text_fits_a_terminal(told):
    short, full = (text_of([told], is_full=is_full) for is_full in (False, True))
    assert max(map(len, short + full)) <= 100
    assert len(short) <= 43
    assert not [line for line in short if "None" in line or "nan" in line]
    row = told.budgets[1]
    assert any(f"{row.ratio.value:.3g}" in line for line in short if line.startswith("ratio"))
    for words in ("change +permutation +rotation", r"\(prompt, layer\) identical +6 +6", "of +6 +6"):
        assert any(re.fullmatch(words, line) for line in short), words
    for title in ("Coverage by delta", "Certificate of a generation", "Certificate and true error in each"):
        assert any(line.startswith(title) for line in full)
        assert not any(line.startswith(title) for line in short)
