"""The no-context control: joins and rates against slow loops over planted answers, and what stops them."""

import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from analysis import __main__ as cli
from analysis.core.estimates import uniform_indices
from analysis.core.study import load
from analysis.core.verdicts import Report
from analysis.describe.control import describe
from analysis.describe.description import details_of
from analysis.describe.scope import Scope
from tests import planted
from tests.analysis import sealing
from tests.planted import CONTROL, INSTRUCT, PAPER, REAL, SIX, SIXTEEN

MODELS = INSTRUCT[:2]
MAIN = {SIX: PAPER[SIX][:4], SIXTEEN: PAPER[SIXTEEN]}
SUITES = (SIX, SIXTEEN)


@pytest.fixture(scope="module")
def answers():
    """Success of every planted row by key, and of the full cache by suite and question."""
    grid = planted.paper(models=MODELS, examples=6)
    by_key = {row.key: planted.forgetful(row)["success"] for row in grid}
    full = {suite: {} for suite in PAPER}
    for key, success in by_key.items():
        if key.arm == "full":
            full[key.suite][question(key)] = success
    return SimpleNamespace(by_key=by_key, full=full)


@pytest.fixture(scope="module")
def found(paper_template, of_paper):
    """What R and S say of their suites, by suite."""
    study = load(paper_template, {})
    return {one.suite: one for one in controls(study, of_paper)}


def controls(study, registrations):
    return details_of(Scope(Report(study, list(registrations), [])))["control"]


def r_among(registrations):
    return next(one for one in registrations if one.content.id == "R")


def question(key):
    return key.model, key.task, key.example_id


def asked_of(answers, suite, model, task):
    """The questions of a suite's main tasks, all of them or of one model and task."""
    return [
        one
        for one in answers.full[suite]
        if one[1] in MAIN[suite] and model in (None, one[0]) and task in (None, one[1])
    ]


def induced_rows(answers, row, suite, *, is_dependent):
    """(question, failed) of an arm's rows among what the full cache answers, by a walk over all keys."""
    full, control = answers.full[suite], answers.full[CONTROL]
    return [
        (question(key), not success)
        for key, success in answers.by_key.items()
        if (key.suite, key.arm, key.condition, key.budget) == (suite, row.arm, row.condition, row.budget)
        and key.task in MAIN[suite]
        and row.model in (None, key.model)
        and full[question(key)]
        and not (is_dependent and control[question(key)])
    ]


@pytest.mark.parametrize("suite", SUITES)
def test_what_is_known_without_the_context(found, answers, suite):
    full, control = answers.full[suite], answers.full[CONTROL]
    rows = found[suite].known
    tasks = [*sorted(MAIN[suite]), None]
    assert [(row.model, row.task) for row in rows] == [(m, t) for m in (*sorted(MODELS), None) for t in tasks]
    for row in rows:
        asked = asked_of(answers, suite, row.model, row.task)
        answered = [one for one in asked if full[one]]
        assert (row.accuracy.n, row.dependent.n) == (len(asked), len(answered))
        assert row.accuracy.value == pytest.approx(np.mean([control[one] for one in asked]), abs=1e-12)
        depends = np.mean([not control[one] for one in answered])
        assert row.dependent.value == pytest.approx(depends, abs=1e-12)
    pooled = rows[-1]
    assert 0.1 < pooled.accuracy.value < 0.4
    assert 0.6 < pooled.dependent.value < 0.9


@pytest.mark.parametrize("suite", SUITES)
def test_induced_failures_of_every_place_on_all_and_on_dependent_examples(found, answers, suite):
    rows = found[suite].induced
    places = {(k.arm, k.condition, k.budget) for k in answers.by_key if k.suite == suite and k.arm != "full"}
    assert len(rows) == len(places) * (len(MODELS) + 1)
    assert {(row.model, row.arm, row.condition, row.budget) for row in rows} == {
        (model, *place) for model in (*MODELS, None) for place in places
    }
    for row in rows:
        for estimate, is_dependent in ((row.every, False), (row.dependent, True)):
            slow = [failed for _, failed in induced_rows(answers, row, suite, is_dependent=is_dependent)]
            assert estimate.n == len(slow) > 0
            assert estimate.value == pytest.approx(np.mean(slow), abs=1e-12)
    assert any(row.every.value != row.dependent.value for row in rows)


def resampled(tasks, examples, key, draws=500):
    """Every resample as a list of (task, example), drawn within tasks in their order."""
    bits = np.random.PCG64(key)
    by_task = {task: uniform_indices(bits, draws, examples) for task in sorted(tasks)}
    return [
        [(task, f"{task}-{at:04d}") for task, drawn in by_task.items() for at in drawn[draw]]
        for draw in range(draws)
    ]


def test_intervals_equal_resamples_written_out(found, answers, of_paper):
    resamples = resampled(MAIN[SIX], 6, r_among(of_paper).seed("control"))
    control, full = answers.full[CONTROL], answers.full[SIX]
    place = (None, "poisson", "stream", 0.25)
    (row,) = [r for r in found[SIX].induced if (r.model, r.arm, r.condition, r.budget) == place]
    pooled = found[SIX].known[-1]
    asked = {one: control[one] for one in asked_of(answers, SIX, None, None)}
    cases = [
        (pooled.accuracy, list(asked.items())),
        (pooled.dependent, [(one, not known) for one, known in asked.items() if full[one]]),
        (row.every, induced_rows(answers, row, SIX, is_dependent=False)),
        (row.dependent, induced_rows(answers, row, SIX, is_dependent=True)),
    ]
    found_rates = []  # of the two last cases, which are paired
    for estimate, rows in cases:
        hits = {}
        for (_, *cluster), hit in rows:
            hits.setdefault(tuple(cluster), []).append(hit)
        rates = [np.mean([h for cluster in drawn for h in hits.get(cluster, [])]) for drawn in resamples]
        assert estimate.clusters == len(hits)
        assert estimate.lo == pytest.approx(np.quantile(rates, 0.025), abs=1e-12)
        assert estimate.hi == pytest.approx(np.quantile(rates, 0.975), abs=1e-12)
        assert estimate.lo < estimate.value < estimate.hi
        found_rates = [*found_rates[-1:], rates]
    shifts = np.array(found_rates[1]) - np.array(found_rates[0])
    assert row.shift.value == pytest.approx(row.dependent.value - row.every.value, abs=1e-12)
    assert [row.shift.lo, row.shift.hi] == pytest.approx(np.quantile(shifts, [0.025, 0.975]), abs=1e-12)


def test_the_part_has_the_same_numbers(found, paper_template, of_paper):
    scope = Scope(Report(load(paper_template, {}), of_paper, []))
    (part,) = describe(scope)
    known, induced = part.tables
    keys = [column.key for column in induced.columns]
    for row in induced.rows:
        line = dict(zip(keys, row, strict=True))
        model = None if line["model"] == "pooled" else line["model"]
        place = (model, line["arm"], line["condition"], float(line["budget"]))
        (own,) = [
            one
            for one in found[line["suite"]].induced
            if (one.model, one.arm, one.condition, one.budget) == place
        ]
        numbers = (line["every"], line["dependent"], line["shift"])
        assert numbers == (own.every, own.dependent, own.shift)
        assert (line["rows"], line["dependent_rows"]) == (own.every.n, own.dependent.n)
    assert len(induced.rows) == sum(len(one.induced) for one in found.values())
    assert len(known.rows) == sum(len(one.known) for one in found.values())
    assert {row[1] for row in induced.excerpt} == {"pooled"}


def test_a_study_without_a_control_has_no_such_part(varied_study):
    assert not list(describe(varied_study.scope))


def test_a_threshold_moves_the_control_too(tmp_path, of_paper):
    def half(row):
        told = planted.forgetful(row)
        is_near = row.suite == CONTROL and row.task != "passage_retrieval_en"
        return {**told, "score": 0.5 if is_near else float(told["success"])}

    grid = planted.paper(models=MODELS, examples=6)
    study = load(planted.write(tmp_path / "paper", grid, half), {})
    (one,) = controls(study, [r_among(of_paper)])
    by_task = {row.task: row for row in one.known if row.model == MODELS[0]}
    assert by_task["hotpotqa"].accuracy.value == 1.0  # F1 of one half is a success
    assert by_task["hotpotqa"].dependent.value == 0.0
    assert by_task["passage_retrieval_en"].accuracy.value < 1.0
    aware = [row for row in one.induced if row.model is None and row.condition == "aware"]
    assert all(row.dependent.n < row.every.n for row in aware)


# ---------------------------------------------------------------- never on a part


def undefined(found):
    """Reasons by what they are given for: accuracy and dependence, then every and dependent."""
    return (
        {(row.model, row.task): (row.accuracy.undefined, row.dependent.undefined) for row in found.known},
        {(row.model, row.arm): (row.every.undefined, row.dependent.undefined) for row in found.induced},
    )


def is_defined(reason):
    """Whether a number is there; few examples may leave it without an interval."""
    return not reason or reason.startswith("no interval")


def r_of(folder, of_paper):
    (one,) = controls(load(folder, {}), [r_among(of_paper)])
    return one


def test_missing_answers_of_the_control_leave_out_what_reads_them(paper, of_paper):
    (paper / CONTROL / f"{CONTROL}.{MODELS[0]}.hotpotqa.000" / "footer.json").unlink()
    known, induced = undefined(r_of(paper, of_paper))
    for (model, task), reasons in known.items():
        if model == MODELS[1] or task not in ("hotpotqa", None):
            assert all(map(is_defined, reasons)), (model, task)
        else:
            of = 6 * (1 if task else 4) * (1 if model else 2)
            lost = f"6 of {of} answers of the full cache in no-context are missing"
            assert reasons == (lost, lost)
    for (model, _), (every, dependent) in induced.items():
        assert is_defined(every)
        assert is_defined(dependent) is (model == MODELS[1])


def test_a_control_that_does_not_ask_an_example_is_no_control_of_it(tmp_path, of_paper):
    grid = planted.paper(models=MODELS, examples=6)
    odd = (CONTROL, MODELS[0], "hotpotqa", "hotpotqa-0003")
    grid = [row for row in grid if row.key[:4] != odd]
    one = r_of(planted.write(tmp_path / "paper", grid, planted.forgetful), of_paper)
    known, induced = undefined(one)
    lost = "no-context does not ask 1 of 6 examples of the full cache"
    assert known[MODELS[0], "hotpotqa"] == (lost, lost)
    assert all(map(is_defined, known[MODELS[1], None]))
    assert is_defined(induced[None, "h2o"][0])
    assert induced[None, "h2o"][1] == "no-context does not ask 1 of 48 examples of the full cache"


def test_a_control_on_other_models_or_not_planned_says_so(tmp_path, of_paper):
    grid = planted.paper([SIX], models=MODELS, examples=6)
    known, induced = undefined(r_of(planted.write(tmp_path / "a", grid, planted.forgetful), of_paper))
    assert {reason for reasons in known.values() for reason in reasons} == {
        "suite no-context is not in the grid yet"
    }
    assert all(is_defined(every) and not is_defined(dependent) for every, dependent in induced.values())
    grid += planted.paper([CONTROL], models=MODELS[1:], examples=6)
    known, _ = undefined(r_of(planted.write(tmp_path / "b", grid, planted.forgetful), of_paper))
    assert known[MODELS[0], None][0] == "no-context does not ask 24 of 24 examples of the full cache"
    assert all(map(is_defined, known[MODELS[1], None]))


def test_missing_rows_of_the_suite_leave_out_what_reads_them(paper, of_paper):
    log = paper / SIX / f"{SIX}.{MODELS[0]}.hotpotqa.000" / "generations.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    gone = next(line for line in lines if b'"arm":"snapkv"' in line and b'"budget":0.5' in line)
    log.write_bytes(b"".join(line for line in lines if line is not gone))
    planted.close(log.parent)
    one = r_of(paper, of_paper)
    assert all(map(is_defined, [row.dependent.undefined for row in one.known]))
    lost = {
        (r.model, r.arm, r.budget): r.every.undefined
        for r in one.induced
        if not is_defined(r.every.undefined)
    }
    assert lost == {
        (MODELS[0], "snapkv", 0.5): "1 of 24 rows of 6k are missing",
        (None, "snapkv", 0.5): "1 of 48 rows of 6k are missing",
    }


def test_a_missing_full_row_leaves_out_all_that_compares_with_it(paper, of_paper):
    log = paper / SIX / f"{SIX}.{MODELS[0]}.hotpotqa.000" / "generations.jsonl"
    lines = log.read_bytes().splitlines(keepends=True)
    gone = next(line for line in lines if b'"arm":"full"' in line)
    log.write_bytes(b"".join(line for line in lines if line is not gone))
    planted.close(log.parent)
    known, induced = undefined(r_of(paper, of_paper))
    assert is_defined(known[None, None][0])
    assert known[None, None][1] == "1 of 48 answers of the full cache in 6k are missing"
    for (model, _), reasons in induced.items():
        assert [is_defined(reason) for reason in reasons] == [model == MODELS[1]] * 2


def test_invalid_logs_of_either_side_leave_out_what_reads_them(paper, of_paper):
    log = paper / CONTROL / f"{CONTROL}.{MODELS[0]}.hotpotqa.000" / "generations.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"n_generated":8', b'"n_generated":9', 1))
    known, induced = undefined(r_of(paper, of_paper))
    assert known[MODELS[0], "hotpotqa"] == ("rows of no-context are invalid",) * 2
    assert all(map(is_defined, known[MODELS[1], "hotpotqa"]))
    assert is_defined(induced[MODELS[0], "topk"][0])
    log = paper / SIX / f"{SIX}.{MODELS[0]}.hotpotqa.000" / "generations.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"n_generated":8', b'"n_generated":9', 1))
    known, induced = undefined(r_of(paper, of_paper))
    # The accuracy without context reads nothing of 6k, and the control's own log is still broken.
    lost = ("rows of no-context are invalid", "rows of 6k are invalid")
    assert known[MODELS[0], "hotpotqa"] == lost
    assert induced[MODELS[0], "topk"] == ("rows of 6k are invalid",) * 2


# ---------------------------------------------------------------- how it is written


@pytest.fixture
def run(undrawn, quick_paper, capsys):
    def analyse(folder, *more):
        code = cli.main([str(folder), *(more or ("--registration", str(quick_paper)))])
        said = capsys.readouterr()
        return code, said.out, said.err

    return analyse


def four_models(folder, examples=3):
    return planted.write(folder, planted.paper(examples=examples), planted.forgetful)


def test_it_stands_in_the_full_text_and_the_json_with_the_same_numbers(run, tmp_path):
    folder = four_models(tmp_path / "paper")
    code, out, err = run(folder)
    assert (code, err) == (3, "")  # the attention suite is not planned
    full = (folder / "details.md").read_text()
    known, induced = (
        full[full.index(f"    {title}") :].split("\n\n")[0].splitlines()
        for title in (
            "What models know without the context (no-context)",
            "Induced failures, on all examples",
        )
    )
    body = json.loads((folder / "details.json").read_bytes())
    assert [one["suite"] for one in body["details"]["control"]] == [SIX, SIXTEEN]
    for one in body["details"]["control"]:
        suite = one["suite"]
        assert one["control"] == CONTROL
        assert len(one["known"]) == 5 * 5
        pooled = one["known"][-1]
        assert (pooled["model"], pooled["task"]) == (None, None)
        (line,) = [line for line in known if re.match(rf"    {suite} +pooled +main ", line)]
        assert f"  {pooled['accuracy']['value']:.3f} [{pooled['accuracy']['lo']:.3f}, " in line
        assert f"  {pooled['dependent']['value']:.3f} [{pooled['dependent']['lo']:.3f}, " in line
        place = next(row for row in one["induced"] if row["model"] is None)
        words = rf"    {suite} +pooled +{place['arm']} +{place['condition']} +{100 * place['budget']:g} % "
        (line,) = [line for line in induced if re.match(words, line)]
        assert f"  {place['every']['value']:.3f} [{place['every']['lo']:.3f}, " in line
        assert set(one["induced"][0]) == {
            "model",
            "arm",
            "condition",
            "budget",
            "every",
            "dependent",
            "shift",
        }
    assert "without context" not in out
    # The control evicts nothing, so it has an accuracy and no table of induced failures.
    assert "\naccuracy, no-context\n" in out
    assert "induced-failure rate, no-context" not in out + full
    assert "induced-failure rate, 6k\n" in out


@pytest.mark.slow
def test_two_orders_of_lines_and_files_write_the_same_bytes(run, tmp_path, shuffled):
    grid = planted.paper(models=MODELS, examples=3)
    paper = planted.write(tmp_path / "paper", grid, planted.forgetful)
    other = planted.write(tmp_path / "other" / "paper", grid, planted.forgetful, order=shuffled)
    registration = tmp_path / "registration"
    registration.mkdir()
    shipped = sealing.ROOT / "preregistration" / "paper"
    for name in "RS":
        text = (shipped / f"{name}.toml").read_text()
        for model in INSTRUCT[2:]:
            text = text.replace(f', "{model}"', "")
        (registration / f"{name}.toml").write_text(text.replace("models_above >= 3", "models_above >= 2"))
    for folder in (paper, other):
        code, _, err = run(folder, "--registration", str(registration))
        assert (code, err) == (0, "")
    for name in ("verdicts.json", "verdicts.md", "details.json", "details.md"):
        assert (paper / name).read_bytes() == (other / name).read_bytes()


def test_a_study_without_a_control_has_no_word_of_it(undrawn, tmp_path, registrations, quick):
    whole = planted.write(tmp_path / "embedded", planted.plan(examples=1), planted.World())
    study = load(whole, {})
    assert "control" not in details_of(Scope(Report(study, list(registrations), [])))
    cli.main([str(whole), "--registration", str(quick)])
    assert "control" not in json.loads((whole / "details.json").read_bytes())["details"]
    assert "What models know without the context" not in (whole / "details.md").read_text()


def test_the_needle_anchor_has_no_part_in_it(found):
    assert "passcodes" in PAPER[SIX]
    assert {row.task for row in found[SIX].known} == {*REAL[:4], None}


def test_a_registered_control_that_no_suite_can_be_joined_to_is_an_empty_list(run, tmp_path):
    folder = planted.write(tmp_path / "paper", planted.paper([CONTROL], examples=2), planted.forgetful)
    code, _, err = run(folder)
    assert (code, err) == (3, "")
    assert json.loads((folder / "details.json").read_bytes())["details"]["control"] == []
