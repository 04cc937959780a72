"""True attention error, cell by cell: what each estimator says against the output over the whole cache.

Keys, values and queries come from the one prefill; nothing is decoded. Attention is recomputed in float64,
so that the design decides about coverage and not rounding; certificate and offset are the deployed code.
Legend: K KV heads, G query heads of one, H = K * G, Q queries, n evictable tokens, N cached tokens, D.
"""

import hashlib
from dataclasses import dataclass, replace

import torch

from kvexp.design.base import Design, KeepPlan, fixed_plan
from kvexp.estimate import (
    logit_offset,
    normalised_entropy,
    radius,
    squared_distances,
    variance_terms,
    with_exact_distance,
)
from kvexp.replay.prefill import Prefill
from kvexp.replay.protocol import Protocol
from kvexp.replay.signals import evicted_mass, margin
from kvexp.scores.base import Layer, Score

RARE = 1e-3  # below it a token's pi counts as rare


@dataclass(frozen=True)
class Queried:
    """One layer at some later queries, float64."""

    logits_KGQN: torch.Tensor  # scaled; -inf on positions after the query
    values_KND: torch.Tensor

    @classmethod
    def of(cls, prefill: Prefill, layer: int) -> "Queried":
        """The layer's logits and values at the queries that the prefill kept."""
        keys, values = prefill.keys[layer].double(), prefill.values[layer].double()
        heads, queries, dim = prefill.queries[layer].shape
        query = prefill.queries[layer].double().reshape(len(keys), -1, dim)
        logits = (query @ keys.transpose(-1, -2)).view(len(keys), heads // len(keys), queries, -1)
        position = torch.arange(logits.shape[-1], device=logits.device)
        own = torch.tensor(prefill.queries_at, device=logits.device)[:, None]
        return cls(logits.masked_fill(position > own, -torch.inf), values)


@dataclass(frozen=True)
class Plans:
    """What three designs keep of one layer at one budget, each (1, K, n)."""

    poisson: KeepPlan
    topk: KeepPlan
    uniform: KeepPlan


@dataclass(frozen=True)
class Errors:
    """Numbers of one layer's cells, each (K, G, Q); errors are relative to |y| + floor."""

    norm: torch.Tensor
    estimate_norm: torch.Tensor
    hajek: torch.Tensor
    no_offset: torch.Tensor
    topk: torch.Tensor
    uniform: torch.Tensor
    variance: torch.Tensor
    largest: torch.Tensor  # b, the root of the largest term
    certificate: torch.Tensor
    covered: torch.Tensor  # bool
    rare_attention: torch.Tensor


def errors(layer: Queried, plans: Plans, protocol: Protocol) -> Errors:
    """True errors of the four estimators and the certificate of Poisson with the offset."""
    weights, truth = attend(layer, None)
    scale = truth.norm(dim=-1) + protocol.norm_floor

    def off(plan: KeepPlan, corrected: bool) -> torch.Tensor:
        output = attend(layer, bias(layer, plan, corrected))[1]
        error: torch.Tensor = (output - truth).norm(dim=-1) / scale
        return error

    kept_weights, estimate = attend(layer, bias(layer, plans.poisson, corrected=True))
    variance, largest = _variance(layer, plans.poisson, kept_weights, estimate)
    size = estimate.norm(dim=-1)
    certificate = radius(variance, largest, size, protocol.delta, protocol.norm_floor)
    distance = (estimate - truth).norm(dim=-1)
    return Errors(
        norm=truth.norm(dim=-1),
        estimate_norm=size,
        hajek=distance / scale,
        no_offset=off(plans.poisson, corrected=False),
        topk=off(plans.topk, corrected=False),
        uniform=off(plans.uniform, corrected=True),
        variance=variance,
        largest=largest.sqrt(),
        certificate=certificate,
        covered=distance <= certificate * (size + protocol.norm_floor),
        rare_attention=_share(weights, _over_cache(layer, plans.poisson.pi_LKN[0] < RARE, False)),
    )


def _share(weights_KGQN: torch.Tensor, chosen_KN: torch.Tensor) -> torch.Tensor:
    """Attention that falls on the chosen tokens, (K, G, Q); rounding never makes it more than all."""
    return (weights_KGQN * chosen_KN[:, None, None]).sum(-1).clamp_max(1.0)


def attend(layer: Queried, bias_KN: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor]:
    """Softmax weights (K, G, Q, N) under a bias of the logits, and the attention output (K, G, Q, D)."""
    logits = layer.logits_KGQN
    if bias_KN is not None:
        logits = logits + bias_KN[:, None, None]
    weights = logits.softmax(-1)
    return weights, weights @ layer.values_KND[:, None]


def bias(layer: Queried, plan: KeepPlan, corrected: bool) -> torch.Tensor:
    """-inf on evicted tokens, log(1/pi) on kept ones if corrected; later tokens are never evicted; (K, N)."""
    offset = logit_offset(plan.pi_LKN[0]).double() if corrected else 0.0
    return _over_cache(layer, torch.where(plan.kept_LKN[0], offset, -torch.inf), 0.0)


def _over_cache(layer: Queried, values_Kn: torch.Tensor, later: float) -> torch.Tensor:
    """Values of the evictable tokens, continued over those that came later: (K, N)."""
    missing = layer.logits_KGQN.shape[-1] - values_Kn.shape[-1]
    return torch.nn.functional.pad(values_Kn, (0, missing), value=later)


def _variance(
    layer: Queried, plan: KeepPlan, weights_KGQN: torch.Tensor, estimate_KGQD: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """V of Theorem 2 and its largest term, each (K, G, Q)."""
    kv_heads, group, queries, n = weights_KGQN.shape
    weights = weights_KGQN.reshape(kv_heads, group * queries, n)
    estimate = estimate_KGQD.reshape(kv_heads, group * queries, -1)
    values = layer.values_KND
    distances = squared_distances(values, estimate, values.square().sum(-1))
    distances = with_exact_distance(distances, values, estimate, weights)
    not_pi = _over_cache(layer, torch.where(plan.kept_LKN[0], 1 - plan.pi_LKN[0], 0.0), 0.0)
    terms = variance_terms(weights, not_pi[:, None], distances)
    shape = (kv_heads, group, queries)
    return terms.sum(-1).view(shape), terms.amax(-1).view(shape)


# The impossibility demonstration: worlds that differ only in the values of tokens that top-k evicted.
#
# Theorem 1 in a real model: a deterministic evictor's statistics are functions of what it retains, so they
# are the same bytes in every world, while its true error is not. Legend as above.


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
