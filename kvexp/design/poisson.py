"""Certainty set plus Poisson-sampled tail with known inclusion probabilities (eq. 2).

pi_i = clip(c * score_i, floor, 1) on unprotected tokens. `iterated` solves for c so that the pi add up to
the budget: every token whose allocation reaches 1 joins the certainty set and the rest is solved again.
`single_clip` is the literal reading, c = m / sum(score): it under-spends a skewed score's budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from kvexp.design.base import Design
from kvexp.errors import ConfigError, InputError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Poisson(Design):
    """Independent draws; the realised size is random, its expectation is the budget."""

    is_random: ClassVar[bool] = True
    allocation: str = "iterated"
    floor: float = 1e-6

    def __post_init__(self) -> None:
        if self.allocation not in ("iterated", "single_clip"):
            raise ConfigError(f"allocation is iterated or single_clip, got {self.allocation!r}")
        if not 0 < self.floor < 1:
            raise ConfigError(f"the floor of pi lies in (0, 1), got {self.floor:g}")

    def inclusion(self, score_LKN: torch.Tensor, protected_N: torch.Tensor, slots: int) -> torch.Tensor:
        import torch

        free = ~protected_N
        m = slots - int(protected_N.sum())
        if self.floor * int(free.sum()) > m:
            raise InputError(
                f"a floor of {self.floor:g} on {int(free.sum())} tokens spends more than the {m} that the "
                "budget leaves: lower design_params.floor"
            )
        pi = torch.ones(score_LKN.shape, dtype=torch.float64, device=score_LKN.device)
        solve = proportional if self.allocation == "iterated" else single_clip
        pi[..., free] = solve(score_LKN[..., free].double(), m, self.floor)
        return pi


def single_clip(score: torch.Tensor, m: int, floor: float) -> torch.Tensor:
    """pi = clip(m * score / sum(score), floor, 1) along the last axis; floor where all scores are 0."""
    import torch

    share = score / score.sum(-1, keepdim=True).clamp_min(torch.finfo(score.dtype).tiny)
    return (m * share).clamp(floor, 1.0)


def proportional(score: torch.Tensor, m: int, floor: float) -> torch.Tensor:
    """Probabilities along the last axis that are proportional to the score, clipped, and add up to m.

    Where no more than m tokens have a positive score those become certain and the rest of m is spread
    evenly. Needs 0 < m <= tokens; float64 in, float64 out.
    """
    import torch

    n = score.shape[-1]
    if m >= n:
        return torch.ones_like(score)
    positive = (score > 0).sum(-1, keepdim=True).to(score.dtype)
    spread = ((m - positive) / (n - positive).clamp_min(1)).clamp_min(floor)
    scarce = torch.where(score > 0, 1.0, spread)
    return torch.where(positive > m, (_scale(score, m, floor) * score).clamp(floor, 1.0), scarce)


def _scale(score: torch.Tensor, m: int, floor: float) -> torch.Tensor:
    """The c of sum(clip(c * score, floor, 1)) = m, shape (..., 1), for rows of more than m positives.

    The sum grows with c: bisection on log c finds which tokens are certain and which stand on the floor,
    then c is exact. Sorted scores and their running sums make a step O(log n).
    """
    import torch

    ordered = score.sort(-1).values.contiguous()
    mass = torch.nn.functional.pad(ordered.cumsum(-1), (1, 0))

    def parts(c: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        floored = torch.searchsorted(ordered, floor / c, right=True)
        first_certain = torch.searchsorted(ordered, 1 / c)
        spent = floor * floored.to(score.dtype) + (score.shape[-1] - first_certain)
        return spent, mass.gather(-1, first_certain) - mass.gather(-1, floored)

    least = torch.where(score > 0, score, torch.inf).amin(-1, keepdim=True).clamp(1e-290, 1e290)
    low, high = torch.log(floor / ordered[..., -1:].clamp_min(1e-290)), -torch.log(least)
    for _ in range(60):
        middle = (low + high) / 2
        spent, between = parts(torch.exp(middle))
        above = spent + torch.exp(middle) * between >= m
        low, high = torch.where(above, low, middle), torch.where(above, middle, high)
    spent, between = parts(torch.exp(high))
    return torch.where(between > 0, (m - spent) / between.clamp_min(1e-290), torch.exp(high))
