"""Online self-signals of an arm: raw numbers, oriented by the analysis and not here.

Eviction-time signals read the score; step signals read the softmax weights of sampled query heads during
the first decode steps. Sums stay on the device until the answers are there. Legend as in cache.py; c sampled
query heads of a KV head.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from kvexp.estimate import distances_of, normalised_entropy, radius, variance_terms, with_exact_distance
from kvexp.replay.products import product
from kvexp.replay.protocol import Protocol

if TYPE_CHECKING:
    from kvexp.replay.store import LayerStore


def evicted_mass(score_LKN: torch.Tensor, kept_LKN: torch.Tensor) -> float | None:
    """1 - kept share of the score over all cached tokens, mean over layers and KV heads; None: no mass."""
    score = score_LKN.double()
    total = score.sum(-1)
    if bool((total <= 0).any()):
        return None
    return float((1 - (score * kept_LKN).sum(-1) / total).mean())


def margin(score_LKN: torch.Tensor, kept_LKN: torch.Tensor, protected_N: torch.Tensor) -> float | None:
    """(min kept - max evicted) / sd over unprotected scores, mean over layers and KV heads.

    None where a head evicted nothing, kept nothing unprotected, or has scores without spread.
    """
    score, kept = score_LKN[..., ~protected_N].double(), kept_LKN[..., ~protected_N]
    least = torch.where(kept, score, torch.inf).amin(-1)
    most = torch.where(kept, -torch.inf, score).amax(-1)
    value = ((least - most) / score.std(-1, correction=0)).mean()
    return float(value) if bool(value.isfinite()) else None


class StepSignals:
    """Certificate and entropy of every arm of a block, step by step, summed over layers and heads."""

    def __init__(
        self,
        protocol: Protocol,
        certified: slice,
        arms: int,
        query_heads: int,
        kv_heads: int,
        device: torch.device | str = "cpu",
    ) -> None:
        self.protocol = protocol
        self.certified = certified  # arms whose certificate is defined
        group = query_heads // kv_heads
        heads = range(0, query_heads, protocol.head_stride)
        by_kv = [[h % group for h in heads if h // group == k] for k in range(kv_heads)]
        most = max(len(local) for local in by_kv)
        # A KV head with fewer sampled query heads repeats one and does not count it.
        local = [(local or [0]) + [0] * (most - max(1, len(local))) for local in by_kv]
        self._local = torch.tensor(local, device=device)
        self._kv_head = torch.arange(kv_heads, device=device)[:, None]
        self._counts = torch.tensor([[i < len(local) for i in range(most)] for local in by_kv], device=device)
        self._radius = torch.zeros(protocol.steps, arms, dtype=torch.float64, device=device)
        self._entropy = torch.zeros(protocol.steps, arms, dtype=torch.float64, device=device)
        self._blind = torch.zeros(protocol.steps, arms, dtype=torch.int64, device=device)
        self._cells = [0] * protocol.steps
        self._cells_of_a_layer = len(heads)
        self.step = 0

    @property
    def done(self) -> bool:
        """Whether every step that signals look at is over."""
        return self.step >= self.protocol.steps

    def read(
        self,
        store: LayerStore,
        weights_AKGS: torch.Tensor,
        out_AKGD: torch.Tensor,
        values_AKSD: torch.Tensor,
        new_A1: torch.Tensor,
    ) -> None:
        """Add one layer of the current step."""
        if self.done:
            return
        weights = self._sampled(weights_AKGS)
        retained = (store.count_AK + new_A1)[..., None]
        entropy = normalised_entropy(weights, retained)
        self._entropy[self.step] += (entropy * self._counts).sum((1, 2)).double()
        self._cells[self.step] += self._cells_of_a_layer
        if self.certified.stop > self.certified.start:
            self._certify(store, weights, self._sampled(out_AKGD), values_AKSD)

    def _certify(
        self,
        store: LayerStore,
        weights_AKcS: torch.Tensor,
        out_AKcD: torch.Tensor,
        values_AKSD: torch.Tensor,
    ) -> None:
        rows, width = self.certified, store.width
        out = out_AKcD[rows]
        values, weights = values_AKSD[rows, :, :width], weights_AKcS[rows, ..., :width]
        cross = product(out, values.transpose(-1, -2))
        distances = distances_of(cross, out, store.norms_AKW[rows])
        distances = with_exact_distance(distances, values, out, weights)
        terms = variance_terms(weights, store.not_pi_AKW[rows, :, None], distances)
        variance = terms.sum(-1)
        protocol = self.protocol
        value = radius(variance, terms.amax(-1), out.norm(dim=-1), protocol.delta, protocol.norm_floor)
        self._radius[self.step, rows] += (value * self._counts).sum((1, 2)).double()
        blind = (variance == 0) & self._counts & store.evicted_AK[rows, :, None]
        self._blind[self.step, rows] += blind.sum((1, 2))

    def _sampled(self, tensor_AKGx: torch.Tensor) -> torch.Tensor:
        return tensor_AKGx[:, self._kv_head, self._local]

    def to_host(self) -> None:
        """Bring the sums to the host, once, before they are asked for."""
        self._radius, self._entropy = self._radius.cpu(), self._entropy.cpu()
        self._blind = self._blind.cpu()

    def certificates(self, arm: int, steps: range) -> list[float]:
        """Mean radius over cells of one arm at each of the given steps, counted from 0."""
        return [float(self._radius[t, arm] / self._cells[t]) for t in steps]

    def entropy(self, arm: int, steps: range) -> float | None:
        """Mean normalised entropy over cells and steps; None without a step."""
        by_step = [float(self._entropy[t, arm] / self._cells[t]) for t in steps]
        return sum(by_step) / len(by_step) if by_step else None

    def blind_cells(self, arm: int, steps: range) -> int:
        """(step, layer, head) cells with V = 0 although the KV head evicted tokens."""
        return sum(int(self._blind[t, arm]) for t in steps)
