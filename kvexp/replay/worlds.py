"""The impossibility demonstration: worlds that differ only in the values of tokens that top-k evicted.

Theorem 1 in a real model: a deterministic evictor's statistics are functions of what it retains, so they
are the same bytes in every world, while its true error is not. Legend as in cells.py.
"""

import hashlib
from dataclasses import dataclass, replace

import torch

from kvexp.design.base import Design, fixed_plan
from kvexp.estimate import normalised_entropy
from kvexp.replay.cells import Errors, Plans, Queried, attend, errors
from kvexp.replay.protocol import Protocol
from kvexp.replay.signals import evicted_mass, margin
from kvexp.scores.base import Layer, Score


@dataclass(frozen=True)
class Scored:
    """What top-k selects by in one layer: attention mass, score, design and budget."""

    mass_Kn: torch.Tensor
    score: Score
    design: Design
    protected_n: torch.Tensor
    slots: int


@dataclass(frozen=True)
class Outcome:
    """One layer of one world."""

    statistics: str  # sha256 of everything that top-k can compute online
    errors: Errors


def outcome(
    layer: Queried, keys_KND: torch.Tensor, scored: Scored, plans: Plans, protocol: Protocol
) -> Outcome:
    """Statistics of top-k in this world, made anew from the world's cache, and the true errors in it."""
    return Outcome(statistics(layer, keys_KND, scored), errors(layer, plans, protocol))


def statistics(layer: Queried, keys_KND: torch.Tensor, scored: Scored) -> str:
    """sha256 of scores, keep set, retained keys and values, logits, weights, output and signals of top-k."""
    n = scored.mass_Kn.shape[-1]
    cached = Layer(
        keys_KND[:, :n],
        layer.values_KND[:, :n].to(keys_KND.dtype),  # exact: a changed world has the same numbers
        torch.arange(n, device=keys_KND.device),
        scored.mass_Kn,
    )
    score = scored.score.finish(cached)[None]
    plan = fixed_plan(scored.design.inclusion(score, scored.protected_n, scored.slots))
    digest = hashlib.sha256()
    signals = (evicted_mass(score, plan.kept_LKN), margin(score, plan.kept_LKN, scored.protected_n))
    digest.update(repr(signals).encode())
    _add(digest, score, plan.kept_LKN)
    for head, kept in enumerate(plan.kept_LKN[0]):
        # Only what stays in the cache is touched from here on, as in a server that deleted the rest.
        there = torch.cat(
            [kept.nonzero()[:, 0], torch.arange(n, len(layer.values_KND[head]), device=kept.device)]
        )
        retained = Queried(layer.logits_KGQN[head, None, ..., there], layer.values_KND[head, None, there])
        weights, out = attend(retained, None)
        entropy = normalised_entropy(weights, torch.tensor(len(there), dtype=torch.float64))
        _add(digest, keys_KND[head, there], retained.values_KND, retained.logits_KGQN)
        _add(digest, weights, out, retained.logits_KGQN.logsumexp(-1), entropy)
    return digest.hexdigest()


def _add(digest: "hashlib._Hash", *tensors: torch.Tensor) -> None:
    for tensor in tensors:
        # As plain bytes: numpy does not know bfloat16.
        digest.update(tensor.cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes())


def permuted(layer: Queried, evicted_Kn: torch.Tensor, uniforms_Kn: torch.Tensor) -> Queried:
    """The layer with the values of each head's evicted tokens in random order."""
    values = layer.values_KND.clone()
    for head, evicted in enumerate(evicted_Kn):
        place = evicted.nonzero()[:, 0]
        values[head, place] = layer.values_KND[head, place[uniforms_Kn[head, place].argsort(stable=True)]]
    return replace(layer, values_KND=values)


def rotated(layer: Queried, evicted_Kn: torch.Tensor, uniforms_KD: torch.Tensor) -> Queried:
    """The layer with each head's evicted values under one random rotation that keeps norms to the bit.

    The rotation changes the signs of an even number of coordinates: no rounding, determinant 1.
    """
    flip = uniforms_KD < 0.5
    flip[:, -1] ^= flip.sum(-1) % 2 == 1
    sign = torch.where(flip, -1.0, 1.0).to(layer.values_KND.dtype)
    values = layer.values_KND.clone()
    n = evicted_Kn.shape[-1]
    values[:, :n] = torch.where(evicted_Kn[..., None], values[:, :n] * sign[:, None], values[:, :n])
    return replace(layer, values_KND=values)
