"""Arms that decode together answer as they would alone: keep sets to the bit, texts but for near-ties."""

from dataclasses import replace

import pytest
import torch

from kvexp.replay import decode, products
from kvexp.replay.harness import _Batch, answer_all
from kvexp.replay.model import wrap
from kvexp.replay.protocol import Protocol
from tests import tiny
from tests.replay.test_against_dense import all_arms, draw, prompt_of

NEW = 24
NEAR_TIE = 1e-3


@pytest.fixture(scope="module")
def loaded():
    """A model whose answers stop early and late: every eighth token is a stop token."""
    torch.set_num_threads(1)
    made = wrap(tiny.model("llama"), tiny.tokenizer())
    return replace(made, stop_ids=frozenset(range(3, 259, 8)))


@pytest.fixture(scope="module")
def together(loaded):
    return answer_all(loaded, prompt_of(loaded), all_arms(), Protocol(), NEW, draw)


def assert_same(one, other):
    """The same keep sets and tokens, up to the first token that a near-tie decides."""
    assert one.planned.keep_digest == other.planned.keep_digest
    a, b = one.decoded, other.decoded
    for i, (x, y) in enumerate(zip(a.tokens, b.tokens, strict=False)):
        if min(a.gaps[i], b.gaps[i]) < NEAR_TIE:
            return
        assert x == y
        assert a.logprobs[i] == pytest.approx(b.logprobs[i], abs=1e-4)
    assert (len(a.tokens), a.stopped) == (len(b.tokens), b.stopped)
    assert one.first_step_cached == other.first_step_cached
    assert (one.certificate_steps is None) == (other.certificate_steps is None)
    assert one.certificate_steps is None or one.certificate_steps == pytest.approx(
        other.certificate_steps, rel=1e-4
    )
    assert one.entropy == pytest.approx(other.entropy, rel=1e-5)
    assert one.blind_cells == other.blind_cells


def test_answers_stop_at_different_steps_in_these_tests(together):
    lengths = {len(a.decoded.tokens) for a in together}
    assert min(lengths) <= 6
    assert len({n for n in lengths if n > 7}) > 2, "nobody left the batch while others went on"


def test_an_arm_alone_answers_as_it_does_among_others(loaded, together):
    arms = all_arms()
    for i in range(0, len(arms), 3):
        (alone,) = answer_all(loaded, prompt_of(loaded), [arms[i]], Protocol(), NEW, draw)
        assert_same(alone, together[i])


@pytest.mark.parametrize("every", [1000, 3])
def test_when_stopped_arms_leave_the_batch_changes_no_answer(loaded, together, monkeypatch, every):
    """1000: nobody ever leaves. 3: as on a device that is asked now and then."""
    monkeypatch.setattr(decode, "LOOK_EVERY", {True: every, False: every})
    for one, other in zip(
        answer_all(loaded, prompt_of(loaded), all_arms(), Protocol(), NEW, draw), together, strict=True
    ):
        assert_same(one, other)


def test_rows_leave_the_batch_when_their_arm_stops(loaded, monkeypatch):
    rows, fed = [], decode.forward
    monkeypatch.setattr(decode, "forward", lambda m, ids, *rest: rows.append(len(ids)) or fed(m, ids, *rest))
    answers = answer_all(loaded, prompt_of(loaded), all_arms(), Protocol(), NEW, draw)
    lengths = [len(a.decoded.tokens) for a in answers]
    steps = rows[1:]  # behind the suffix
    assert steps[: Protocol().steps] == [len(answers)] * Protocol().steps
    for step in range(Protocol().steps, len(steps)):
        assert steps[step] == sum(length > step for length in lengths)
    assert len(steps) == max(lengths)


def test_too_little_memory_for_all_arms_at_once_decodes_them_budget_by_budget(loaded, together, monkeypatch):
    sizes, whole = [], _Batch._decode

    def small(self, groups):
        sizes.append(len(groups))
        if len(groups) > 1:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return whole(self, groups)

    monkeypatch.setattr(_Batch, "_decode", small)
    answers = answer_all(loaded, prompt_of(loaded), all_arms(), Protocol(), NEW, draw)
    assert sizes == [3, 1, 1, 1]
    for one, other in zip(answers, together, strict=True):
        assert_same(one, other)


def test_a_float32_number_is_the_exact_sum_of_its_three_parts():
    generator = torch.Generator().manual_seed(2)
    rows = torch.randn(4, 5, 300, generator=generator) * 10.0 ** torch.randint(
        -12, 6, (4, 5, 300), generator=generator
    )
    parts = products.split(rows).view(4, 3, 5, 300).double()
    assert torch.equal(parts.sum(1), rows.double())
    assert not torch.equal(parts[:, 0], rows.double())


def widening(one, other):
    """What a GPU does with two stacks of bfloat16 matrices."""
    assert one.dtype == other.dtype == torch.bfloat16
    return one.float() @ other.float()


def test_the_product_with_a_narrow_cache_is_that_of_float32_numbers(monkeypatch):
    monkeypatch.setattr(products, "widens", lambda device: True)
    monkeypatch.setattr(products, "_widening", widening)
    generator = torch.Generator().manual_seed(3)
    rows = torch.randn(3, 2, 7, 64, generator=generator)
    store = torch.randn(4, 2, 90, 64, generator=generator).bfloat16()
    cached = store[:3, :, :80].transpose(-1, -2)
    exact = rows.double() @ cached.double()
    made = products.product(rows, cached)
    assert made.dtype == torch.float32
    assert made.shape == exact.shape
    torch.testing.assert_close(made.double(), exact, atol=1e-5, rtol=1e-5)
    rounded = widening(rows.bfloat16(), cached).double()
    assert float((rounded - exact).abs().max()) > 1e-2, "without the parts this test would pass too"


def test_a_bfloat16_model_answers_the_same_on_a_device_that_widens(monkeypatch):
    loaded = wrap(tiny.model("qwen2").bfloat16(), tiny.tokenizer())
    arms = all_arms((0.3,))
    plain = answer_all(loaded, prompt_of(loaded), arms, Protocol(), 8, draw)
    used = []
    monkeypatch.setattr(products, "widens", lambda device: True)
    monkeypatch.setattr(products, "_widening", lambda a, b: used.append(1) or widening(a, b))
    for one, other in zip(
        plain, answer_all(loaded, prompt_of(loaded), arms, Protocol(), 8, draw), strict=True
    ):
        assert one.planned.keep_digest == other.planned.keep_digest
        if one.decoded.tokens == other.decoded.tokens and one.certificate_steps is not None:
            assert one.certificate_steps == pytest.approx(other.certificate_steps, rel=0.05)
    assert used
