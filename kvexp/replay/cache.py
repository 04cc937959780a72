"""What the arms of one group keep: compressed keys, values and logit offsets, decoded as one batch.

Every (arm, layer, KV head) keeps a different number of tokens: kept tokens are packed to the left of a
width that the layer's arms share, padding is masked by an offset of minus infinity, and new tokens are
appended in place behind it. Evicted keys and values are not in here at all.
Legend: A arms, H query heads, K KV heads, G = H / K, W packed width, S = W + new slots, T, D.
"""

from dataclasses import dataclass

import torch

from kvexp.estimate import logit_offset
from kvexp.replay.prefill import Prefill
from kvexp.replay.signals import StepSignals


@dataclass(frozen=True)
class Kept:
    """What one arm keeps of the prefill, by layer, KV head and position (float64 pi, bool kept)."""

    kept_LKN: torch.Tensor
    pi_LKN: torch.Tensor
    corrected: bool  # Hajek: kept tail tokens carry log(1/pi)


@dataclass
class LayerStore:
    """One layer of a group."""

    width: int  # W
    keys_AKSD: torch.Tensor
    values_AKSD: torch.Tensor
    offset_AKS: torch.Tensor  # float32; -inf: no token there
    not_pi_AKW: torch.Tensor  # float32; 1 - pi of kept tokens, 0 elsewhere
    norms_AKW: torch.Tensor  # float32; |v|^2
    count_AK: torch.Tensor  # kept tokens
    evicted_AK: torch.Tensor  # bool: something was evicted


class GroupCache:
    """Attention state of a group of arms. `rows` says which arms the next forward pass feeds."""

    def __init__(self, prefill: Prefill, arms: list[Kept], new_slots: int) -> None:
        self.layers = [
            _store(
                prefill.keys[layer],
                prefill.values[layer],
                [(a.kept_LKN[layer], a.pi_LKN[layer], a.corrected) for a in arms],
                new_slots,
            )
            for layer in range(len(prefill.keys))
        ]
        self.rows = slice(0, len(arms))
        self.used = 0  # new slots taken so far, by any arm
        self.new_A = torch.zeros(len(arms), 1, device=prefill.keys[0].device)  # by each arm
        self.signals: StepSignals | None = None

    def advance(self, tokens: int) -> None:
        """Close a forward pass that fed `tokens` tokens to the arms of `rows`."""
        self.used += tokens
        self.new_A[self.rows] += tokens

    def attend(
        self,
        layer: int,
        query_AHTD: torch.Tensor,
        key_AKTD: torch.Tensor,
        value_AKTD: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        store, rows = self.layers[layer], self.rows
        arms, heads, length, dim = query_AHTD.shape
        start = store.width + self.used
        end = start + length
        store.keys_AKSD[rows, :, start:end] = key_AKTD
        store.values_AKSD[rows, :, start:end] = value_AKTD
        store.offset_AKS[rows, :, start:end] = 0.0
        keys = store.keys_AKSD[rows, :, :end].float()
        values = store.values_AKSD[rows, :, :end].float()
        kv_heads = keys.shape[1]
        query = (query_AHTD.float() * scaling).reshape(arms, kv_heads, -1, dim)
        logits = (query @ keys.transpose(-1, -2)).view(arms, kv_heads, -1, length, end)
        logits += store.offset_AKS[rows, :, None, None, :end]
        if length > 1:  # new tokens see themselves and what came before, lower-right aligned
            later = torch.ones(length, length, dtype=torch.bool, device=keys.device).triu(1)
            logits[..., start:].masked_fill_(later, -torch.inf)
        weights = logits.softmax(-1).view(arms, kv_heads, -1, end)
        out = weights @ values
        if self.signals is not None:
            self.signals.read(store, weights, out, values, self.new_A + length)
        return out.view(arms, heads, length, dim)


def _store(
    keys_KND: torch.Tensor,
    values_KND: torch.Tensor,
    arms: list[tuple[torch.Tensor, torch.Tensor, bool]],
    new_slots: int,
) -> LayerStore:
    kv_heads, n, _ = keys_KND.shape
    kept = keys_KND.new_zeros(len(arms), kv_heads, n, dtype=torch.bool)
    pi = torch.ones(kept.shape, dtype=torch.float64, device=kept.device)
    evicted = torch.zeros(len(arms), kv_heads, dtype=torch.bool, device=kept.device)
    for a, (kept_KN, pi_KN, _) in enumerate(arms):
        kept[a, :, : kept_KN.shape[-1]] = kept_KN
        pi[a, :, : pi_KN.shape[-1]] = pi_KN
        evicted[a] = ~kept_KN.all(-1)
    count = kept.sum(-1)
    width = int(count.max())
    position, live = _pack(kept, width)
    pi = pi.gather(-1, position)
    corrected = torch.tensor([c for _, _, c in arms], device=kept.device)[:, None, None]
    offset = torch.where(live, torch.where(corrected, logit_offset(pi), 0.0), -torch.inf)
    pad = (0, new_slots)
    values = _gather(values_KND, position, live, new_slots)
    return LayerStore(
        width=width,
        keys_AKSD=_gather(keys_KND, position, live, new_slots),
        values_AKSD=values,
        offset_AKS=torch.nn.functional.pad(offset, pad, value=-torch.inf),
        not_pi_AKW=torch.where(live, 1 - pi, 0.0).float(),
        norms_AKW=values[:, :, :width].float().square().sum(-1),
        count_AK=count,
        evicted_AK=evicted,
    )


def _pack(kept_AKN: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions (A, K, W) of kept tokens in order, and which entries are real; padding points at 0."""
    arm, head, position = kept_AKN.nonzero(as_tuple=True)
    slot = (kept_AKN.cumsum(-1) - 1)[arm, head, position]
    packed = position.new_zeros(*kept_AKN.shape[:2], width)
    packed[arm, head, slot] = position
    live = torch.arange(width, device=kept_AKN.device) < kept_AKN.sum(-1, keepdim=True)
    return packed, live


def _gather(
    source_KND: torch.Tensor, position_AKW: torch.Tensor, live_AKW: torch.Tensor, new_slots: int
) -> torch.Tensor:
    arms, kv_heads, width = position_AKW.shape
    dim = source_KND.shape[-1]
    out = source_KND.new_zeros(arms, kv_heads, width + new_slots, dim)
    head = torch.arange(kv_heads, device=source_KND.device)[:, None]
    out[:, :, :width] = source_KND[head, position_AKW] * live_AKW[..., None]
    return out
