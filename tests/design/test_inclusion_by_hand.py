"""Inclusion probabilities of each design on eight tokens, worked out by hand."""

import pytest
import torch

from kvexp.design.base import TooShort, drawn_plan, fixed_plan, protected_mask, slots
from kvexp.errors import InputError
from kvexp.study.plugins import build_design

PROTECTED = protected_mask(8, 1, 2)  # token 0 and tokens 6 and 7; 1 to 5 are free
SCORE = torch.tensor([[[9.0, 1.0, 6.0, 2.0, 1.0, 10.0, 0.0, 0.0]]])


def pi_of(name, slots, score=SCORE, **params):
    made = build_design(name, **params).inclusion(score, PROTECTED, slots)
    assert made.dtype == torch.float64
    assert made.shape == score.shape
    return made[0, 0].tolist()


def test_protection_is_of_the_first_and_the_last_tokens():
    assert PROTECTED.tolist() == [True, False, False, False, False, False, True, True]
    assert protected_mask(6, 4, 32).tolist() == [True] * 6
    assert protected_mask(5, 0, 2).tolist() == [False, False, False, True, True]
    assert protected_mask(5, 2, 0).tolist() == [True, True, False, False, False]


@pytest.mark.parametrize(
    ("budget", "n", "kept"),
    [(0.25, 400, 100), (0.25, 402, 100), (0.25, 406, 102), (0.125, 1000, 125), (0.1, 377, 38), (1.0, 99, 99)],
)
def test_the_budget_is_rounded_to_the_nearest_and_halves_to_the_even_number(budget, n, kept):
    """402 / 4 = 100.5 gives 100, 406 / 4 = 101.5 gives 102; protected tokens are within the budget."""
    assert slots(budget, n, 36) == kept


def test_one_token_more_than_the_protected_ones_is_enough():
    assert slots(0.37, 100, 36) == 37
    with pytest.raises(TooShort):
        slots(0.36, 100, 36)


def test_top_k():
    """5 slots, 3 of them protected: the 10 and the 6 stay. Then the 2; then the first of two equal ones."""
    assert pi_of("topk", 5) == [1, 0, 1, 0, 0, 1, 1, 1]
    assert pi_of("topk", 6) == [1, 0, 1, 1, 0, 1, 1, 1]
    assert pi_of("topk", 7) == [1, 1, 1, 1, 0, 1, 1, 1]


def test_recency():
    assert pi_of("recency", 5) == [1, 0, 0, 0, 1, 1, 1, 1]
    assert pi_of("recency", 7) == [1, 0, 1, 1, 1, 1, 1, 1]


def test_uniform():
    assert pi_of("uniform", 5) == [1, 0.4, 0.4, 0.4, 0.4, 0.4, 1, 1]
    assert pi_of("uniform", 8) == [1] * 8


def test_full():
    assert pi_of("full", 8) == [1] * 8


def test_poisson_in_proportion():
    """2 of 20 points: c = 1/10, so pi = .1, .6, .2, .1 and the 10 is just certain."""
    assert pi_of("poisson", 5) == pytest.approx([1, 0.1, 0.6, 0.2, 0.1, 1, 1, 1], abs=1e-9)


def test_poisson_makes_certain_what_reaches_1_and_solves_the_rest_again():
    """m = 3: c = 3/20 would give the 10 a pi of 1.5. It is certain; 2 are left for 10 points, c = 1/5.

    Then the 6 has 1.2: it is certain as well, and the last slot is shared by 4 points, c = 1/4.
    """
    assert pi_of("poisson", 6) == pytest.approx([1, 0.25, 1, 0.5, 0.25, 1, 1, 1], abs=1e-9)


def test_poisson_clips_once_if_asked_to():
    """c = 3/20: .15, .9, .3, .15 and the 10 at 1; 2.5 are spent of 3."""
    assert pi_of("poisson", 6, allocation="single_clip") == pytest.approx(
        [1, 0.15, 0.9, 0.3, 0.15, 1, 1, 1], abs=1e-9
    )


def test_poisson_on_the_floor():
    """m = 2 and a floor of .2. Without it pi = .1, .6, .2, .1, 1: two tokens stand on the floor.

    1.6 are left for 18 points, and the 10 keeps c * 10 = 8/9; 6 has 8/15 and 2 has 8/45, below the floor,
    so that three tokens stand on it and 1.4 are left for 16 points: 7/8 and 21/40.
    """
    assert pi_of("poisson", 5, floor=0.2) == pytest.approx([1, 0.2, 0.525, 0.2, 0.2, 0.875, 1, 1], abs=1e-9)
    assert pi_of("poisson", 5, floor=0.2, allocation="single_clip") == pytest.approx(
        [1, 0.2, 0.6, 0.2, 0.2, 1, 1, 1], abs=1e-9
    )


def test_poisson_puts_a_token_without_score_on_the_floor():
    score = torch.tensor([[[9.0, 0.0, 6.0, 3.0, 3.0, 12.0, 0.0, 0.0]]])
    expected = [1, 1e-6, 0.5 - 0.25e-6, 0.25 - 0.125e-6, 0.25 - 0.125e-6, 1 - 0.5e-6, 1, 1]
    assert pi_of("poisson", 5, score) == pytest.approx(expected, abs=1e-12)


def test_poisson_with_fewer_scores_than_slots():
    """Tokens 2 and 5 have a score and 4 slots are free: both are certain, 2 are left for 3 tokens."""
    score = torch.tensor([[[9.0, 0.0, 6.0, 0.0, 0.0, 1.0, 0.0, 0.0]]])
    assert pi_of("poisson", 7, score) == pytest.approx([1, 2 / 3, 1, 2 / 3, 2 / 3, 1, 1, 1], abs=1e-12)


def test_poisson_with_as_many_scores_as_slots():
    score = torch.tensor([[[9.0, 0.0, 6.0, 0.0, 0.0, 1.0, 0.0, 0.0]]])
    assert pi_of("poisson", 5, score) == pytest.approx([1, 1e-6, 1, 1e-6, 1e-6, 1, 1, 1], abs=1e-12)


def test_poisson_with_a_slot_for_every_token():
    assert pi_of("poisson", 8) == [1] * 8


def test_a_floor_that_spends_just_the_budget_is_allowed():
    """5 free tokens at .4 are the 2 that are left; .41 would be more."""
    assert pi_of("poisson", 5, floor=0.4) == pytest.approx([1, 0.4, 0.4, 0.4, 0.4, 0.4, 1, 1], abs=1e-9)
    with pytest.raises(InputError):
        pi_of("poisson", 5, floor=0.41)


def test_heads_are_solved_apart():
    score = torch.cat([SCORE, SCORE.flip(-1)], 1)
    made = build_design("poisson").inclusion(score, PROTECTED, 5)
    assert made[0, 0].tolist() == pytest.approx([1, 0.1, 0.6, 0.2, 0.1, 1, 1, 1], abs=1e-9)
    # Free scores of the other head are 0, 10, 1, 2, 6: 2 of 19 points would give the 10 more than 1.
    rest = (1 - 1e-6) / 9
    assert made[0, 1].tolist() == pytest.approx([1, 1e-6, 1, rest, 2 * rest, 6 * rest, 1, 1], abs=1e-9)


def test_a_token_stays_where_its_uniform_is_below_its_pi():
    pi = torch.tensor([[[1.0, 0.5, 0.5, 0.5, 0.0]]], dtype=torch.float64)
    uniform = torch.tensor([[[0.999, 0.499, 0.5, 0.501, 0.0]]], dtype=torch.float64)
    assert drawn_plan(pi, uniform).kept_LKN.tolist() == [[[True, True, False, False, False]]]
    assert fixed_plan(torch.tensor([[[1.0, 0.0]]])).kept_LKN.tolist() == [[[True, False]]]


def test_which_designs_draw_and_which_read_a_score():
    said = {
        name: (build_design(name).uses_score, build_design(name).is_random, build_design(name).keeps_all)
        for name in ("full", "poisson", "recency", "topk", "uniform")
    }
    assert said == {
        "full": (False, False, True),
        "poisson": (True, True, False),
        "recency": (False, False, False),
        "topk": (True, False, False),
        "uniform": (False, True, False),
    }
    assert (build_design("poisson").allocation, build_design("poisson").floor) == ("iterated", 1e-6)
