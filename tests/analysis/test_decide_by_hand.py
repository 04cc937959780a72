"""From a table of a few rows to a state: what is missing, what is in doubt, and where a condition turns."""

import dataclasses
import math

import msgspec
import pytest

from analysis.core.decide import MissingRows, answer, missing_rows, problems_touching
from analysis.core.problems import Problem
from analysis.core.study import Study
from kvexp.documents.condition import State, parse
from kvexp.documents.schema import Population
from kvexp.documents.source import RegistrationError
from tests.analysis import small_tables
from tests.analysis.small_tables import cells, full, plan, table

NAN = math.nan
PLACE = "short.a.words.000"


def rows(*changes):
    """Three of four pairs by certificate, two of four by log-probability; and a row of another suite."""
    told = [(0, 3.0, -5.0), (0, 1.0, -1.0), (1, 2.0, -2.0), (1, 0.0, -3.0)]
    made = []
    for at, (score, certificate, logprob) in enumerate(told):
        own = {"certificate": certificate, "output_logprob": logprob, "budget": 0.25}
        changed = changes[at] if at < len(changes) else {}
        made += [full(f"w{at}", 1), small_tables.answer(f"w{at}", score, **{**own, **changed})]
    return table(*made, full("w0", 1, suite="long"))


def study(frame, problems=(), **options):
    none = cells({}).iloc[:0]
    nothing = none.assign(suite=none["suite"].cat.remove_unused_categories())
    return Study("made", frame, nothing, nothing.assign(change=""), {}, tuple(problems), **options)


@pytest.fixture
def ask(registrations):
    """A function that asks R3's question of these rows under these conditions."""
    question = registrations[0].question("R3")

    def asked(frame, kill="gain.hi < 0", support=None, *, problems=(), label="induced_failure", **changes):
        suites = changes.pop("suites", ["short"])
        options = {"undefined_resamples_max": 1.0, **changes}
        changed = dataclasses.replace(
            question,
            population=Population(suites=suites, tasks=["words"], arms=["poisson"], label=label),
            parameters={"signal": "certificate", "rival": "output_logprob"},
            success={"otherwise": 1.0},
            kill=parse(kill),
            support=None if support is None else parse(support),
            statistics=plan(**options),
        )
        return answer(study(frame, problems), changed)

    return asked


@pytest.mark.parametrize(
    ("kill", "support", "state"),
    [
        ("gain > 0.25", None, State.SURVIVED),
        ("gain >= 0.25", None, State.KILLED),
        ("gain < 0.25", "gain >= 0.25", State.SURVIVED),
        ("gain < 0.25", "gain > 0.25", State.NOT_MET),
        ("gain <= 0.25", "gain >= 0.25", State.KILLED),
        ("gain.n < 4", "gain.n >= 4", State.SURVIVED),
    ],
)
def test_a_state_turns_at_the_value(ask, kill, support, state):
    found = ask(rows(), kill, support)
    assert (found.state, found.quantities["gain"].value, found.is_decided) == (state, 0.25, True)
    assert (found.missing, found.problems, found.unplanned) == ((), (), ())


def test_without_an_interval_only_the_value_decides(ask):
    for kill, support, state in (
        ("gain.hi < 0", None, State.INCOMPLETE),
        ("gain < 0", "gain.lo > 0", State.INCOMPLETE),
        ("gain < 0", "gain.lo > 0 and gain > 0.3", State.NOT_MET),
        ("gain > 0 or gain.hi < 0", None, State.KILLED),
    ):
        found = ask(rows(), kill, support, min_clusters=5)
        assert found.state is state
        assert found.quantities["gain"].undefined == "no interval under 5 clusters, here 4"
    assert ask(rows(), "gain.hi < -1", None, min_clusters=4).state is State.SURVIVED


@pytest.mark.parametrize(("most", "value"), [(0.25, 0.5), (0.2499, None)])
def test_as_many_rows_as_registered_may_lack_a_signal(ask, most, value):
    # Without w0: w1 wins one of two pairs by certificate and none by log-probability.
    found = ask(rows({"certificate": NAN}), "gain < 0", undefined_rows_max=most)
    assert found.quantities["gain"].value == value
    assert found.state is (State.INCOMPLETE if value is None else State.SURVIVED)


def test_missing_rows_come_before_numbers_and_problems_before_both(ask):
    lost = rows({}, {"present": False, "score_value": NAN, "score_name": None})
    found = ask(lost, "gain > 9")
    assert (found.state, dict(found.quantities), found.kill) == (State.INCOMPLETE, {}, None)
    # Four answers and the four full rows that the label reads.
    assert found.missing == (MissingRows("short", PLACE, 1, 8, "not started"),)
    own = ask(lost, "gain > 9", label="own_failure")
    assert own.missing == (MissingRows("short", PLACE, 1, 4, "not started"),)
    for problem, state in (
        (Problem("p", "short", PLACE), State.INVALID),
        (Problem("p", "short"), State.INVALID),
        (Problem("p"), State.INVALID),
        (Problem("p", "short", "short.a.words.001"), State.INCOMPLETE),
        (Problem("p", "long"), State.INCOMPLETE),
    ):
        found = ask(lost, problems=[problem])
        assert (found.state, found.problems) == (state, ("p",) if state is State.INVALID else ())
        assert not found.is_decided


def test_a_suite_that_is_not_planned_waits(ask):
    found = ask(rows(), suites=["short", "later"])
    assert (found.state, found.unplanned, found.missing) == (State.INCOMPLETE, ("later",), ())
    doubtful = ask(rows(), suites=["short", "later"], problems=[Problem("p", "later")])
    assert doubtful.state is State.INVALID


def test_what_is_missing_is_counted_by_shard_with_its_reason():
    frame = rows({"present": False}, {"present": False})
    made = study(frame, remarks={"short": "locked without them"})
    made = dataclasses.replace(made, absences={("short", PLACE): "not complete (no footer)"})
    assert missing_rows(made, frame, "answers") == (
        MissingRows("short", PLACE, 2, 9 - 1, "not complete (no footer); locked without them", "answers"),
    )
    assert missing_rows(made, frame[frame["present"]]) == ()
    assert problems_touching(study(frame, [Problem("p", "wide")]), frame, ["wide"]) == ("p",)
    assert problems_touching(study(frame, [Problem("p", "wide")]), frame, ["short"]) == ()


@pytest.mark.parametrize(
    ("low", "high", "is_inside"), [(-1.0, 1.0, True), (0.3, 1.0, False), (-1.0, 0.2, False)]
)
def test_a_number_outside_its_range_is_a_mistake(registrations, low, high, is_inside):
    question = registrations[0].question("R3")
    declared = {"gain": msgspec.structs.replace(question.quantities["gain"], range=(low, high))}
    changed = dataclasses.replace(
        question,
        population=Population(suites=["short"], tasks=["words"], arms=["poisson"], label="induced_failure"),
        success={"otherwise": 1.0},
        statistics=plan(min_clusters=5),
        quantities=declared,
    )
    if is_inside:
        assert answer(study(rows()), changed).quantities["gain"].value == 0.25
    else:
        with pytest.raises(RegistrationError, match=r"gain = 0\.250 lies outside its range"):
            answer(study(rows()), changed)
