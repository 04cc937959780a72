"""What arms of one budget keep of one layer, packed: the storage behind the cache.

Every (arm, layer, KV head) keeps a different number of tokens: kept tokens are packed to the left of a
width that the layer's arms share, padding is masked by an offset of minus infinity, and new tokens are
appended in place behind it. Evicted keys and values are not in here unless they pad.
Legend: A arms, K KV heads, N cached tokens, W packed width, S = W + new slots, T new tokens, D.
"""

from dataclasses import dataclass, fields

import torch

from kvexp.estimate import logit_offset


@dataclass(frozen=True)
class Kept:
    """What one arm keeps of the prefill, by layer, KV head and position (float64 pi, bool kept)."""

    kept_LKN: torch.Tensor
    pi_LKN: torch.Tensor
    corrected: bool  # Hajek: kept tail tokens carry log(1/pi)


@dataclass
class LayerStore:
    """One layer of the arms of one budget."""

    width: int  # W
    keys_AKSD: torch.Tensor
    values_AKSD: torch.Tensor
    offset_AKS: torch.Tensor  # float32; -inf: no token there
    not_pi_AKW: torch.Tensor  # float32; 1 - pi of kept tokens, 0 elsewhere
    norms_AKW: torch.Tensor  # float32; |v|^2
    count_AK: torch.Tensor  # kept tokens
    evicted_AK: torch.Tensor  # bool: something was evicted

    def append(self, slot: int, key_AKTD: torch.Tensor, value_AKTD: torch.Tensor) -> None:
        """New tokens of the first arms, from a slot on."""
        arms, end = len(key_AKTD), slot + key_AKTD.shape[2]
        self.keys_AKSD[:arms, :, slot:end] = key_AKTD
        self.values_AKSD[:arms, :, slot:end] = value_AKTD
        self.offset_AKS[:arms, :, slot:end] = 0.0

    def move(self, source: int, target: int) -> None:
        """One arm takes the place of another."""
        for field in fields(self):
            tensor = getattr(self, field.name)
            if isinstance(tensor, torch.Tensor):
                tensor[target] = tensor[source]


def packed(
    keys_KND: torch.Tensor,
    values_KND: torch.Tensor,
    arms: list[tuple[torch.Tensor, torch.Tensor, bool]],
    new_slots: int,
) -> LayerStore:
    """The store of one layer; `arms` gives kept (K, n), pi (K, n) and whether pi corrects the logits."""
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
    position, live = _positions(kept, width)
    pi = pi.gather(-1, position)
    corrected = torch.tensor([c for _, _, c in arms], device=kept.device)[:, None, None]
    offset = torch.where(live, torch.where(corrected, logit_offset(pi), 0.0), -torch.inf)
    pad = (0, new_slots)
    values = _gather(values_KND, position, new_slots)
    return LayerStore(
        width=width,
        keys_AKSD=_gather(keys_KND, position, new_slots),
        values_AKSD=values,
        offset_AKS=torch.nn.functional.pad(offset, pad, value=-torch.inf),
        not_pi_AKW=torch.where(live, 1 - pi, 0.0).float(),
        norms_AKW=values[:, :, :width].float().square().sum(-1),
        count_AK=count,
        evicted_AK=evicted,
    )


def _positions(kept_AKN: torch.Tensor, width: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Positions (A, K, W) of kept tokens in order, and which entries are real; padding points at 0."""
    arm, head, position = kept_AKN.nonzero(as_tuple=True)
    slot = (kept_AKN.cumsum(-1) - 1)[arm, head, position]
    placed = position.new_zeros(*kept_AKN.shape[:2], width)
    placed[arm, head, slot] = position
    live = torch.arange(width, device=kept_AKN.device) < kept_AKN.sum(-1, keepdim=True)
    return placed, live


def _gather(source_KND: torch.Tensor, position_AKW: torch.Tensor, new_slots: int) -> torch.Tensor:
    """Rows of `source` at the positions, written once; padding and new slots repeat the first token."""
    kv_heads, n, dim = source_KND.shape
    head = torch.arange(kv_heads, device=position_AKW.device)[:, None] * n
    row = torch.nn.functional.pad(position_AKW, (0, new_slots)) + head
    flat = source_KND.reshape(kv_heads * n, dim)
    return flat.index_select(0, row.flatten()).view(*row.shape, dim)
