"""The one prefill: keys and values of every layer, and the attention mass that scores ask for.

Attention itself goes through the fused kernel; a score costs only its own query rows, never n x n.
Legend: L layers, H query heads, K KV heads, G = H / K, N tokens, R rows, D head dimension.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch

from kvexp.replay.attention import forward
from kvexp.replay.model import Loaded
from kvexp.replay.products import product
from kvexp.scores.base import Layer

ROW_CHUNK = 64


@dataclass(frozen=True)
class Rows:
    """Query positions whose attention over the first `n_keys` tokens is summed."""

    positions: range
    n_keys: int


@dataclass
class Prefill:
    """State of the prefill pass; afterwards, what every arm starts from."""

    requests: tuple[Rows, ...] = ()
    queries_at: tuple[int, ...] = ()
    queries: list[torch.Tensor] = field(default_factory=list)  # by layer, (H, queries, D), scaled, after RoPE
    keys: list[torch.Tensor] = field(default_factory=list)  # by layer, (K, N, D), after RoPE
    values: list[torch.Tensor] = field(default_factory=list)  # by layer, (K, N, D)
    masses: dict[Rows, list[torch.Tensor]] = field(default_factory=dict)  # by layer, (K, n_keys)
    logits: torch.Tensor = field(default_factory=lambda: torch.empty(0))  # (vocabulary,), last token fed

    def layers(self, rows: Rows) -> Iterator[Layer]:
        """What a score that reads these rows sees, layer by layer."""
        n = rows.n_keys
        for keys, values, mass in zip(self.keys, self.values, self.masses[rows], strict=True):
            position = torch.arange(n, device=keys.device)
            yield Layer(keys[:, :n], values[:, :n], position, mass)

    def attend(
        self,
        layer: int,
        query_AHTD: torch.Tensor,
        key_AKTD: torch.Tensor,
        value_AKTD: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        # A model hands over views by token; every arm gathers rows of a head.
        self.keys.append(key_AKTD[0].contiguous())
        self.values.append(value_AKTD[0].contiguous())
        if self.queries_at:
            self.queries.append(query_AHTD[0, :, list(self.queries_at)].float() * scaling)
        for rows in self.requests:
            mass = attention_mass(query_AHTD[0], key_AKTD[0], rows, scaling)
            self.masses.setdefault(rows, []).append(mass)
        return causal_attention(query_AHTD, key_AKTD, value_AKTD, scaling)


def causal_attention(
    query_AHTD: torch.Tensor, key_AKTD: torch.Tensor, value_AKTD: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Attention by a fused kernel on every device: the unfused one would hold n x n weights a head."""
    shared = key_AKTD.shape[1] < query_AHTD.shape[1]
    if shared and query_AHTD.device.type == "cuda" and query_AHTD.dtype == torch.float32:
        # The one kernel there that takes float32 takes no shared heads.
        group = query_AHTD.shape[1] // key_AKTD.shape[1]
        key_AKTD, value_AKTD = (x.repeat_interleave(group, 1) for x in (key_AKTD, value_AKTD))
        shared = False
    return torch.nn.functional.scaled_dot_product_attention(
        query_AHTD, key_AKTD, value_AKTD, is_causal=True, scale=scaling, enable_gqa=shared
    )


def attention_mass(
    query_HND: torch.Tensor, key_KND: torch.Tensor, rows: Rows, scaling: float
) -> torch.Tensor:
    """Softmax attention over the causal prefix, summed over rows, mean over a group's heads; (K, n_keys)."""
    heads, _, dim = query_HND.shape
    kv_heads = key_KND.shape[0]
    mass = torch.zeros(kv_heads, rows.n_keys, device=key_KND.device)
    column = torch.arange(rows.n_keys, device=mass.device)
    for start in range(0, len(rows.positions), ROW_CHUNK):
        chunk = rows.positions[start : start + ROW_CHUNK]
        first, end = chunk[0], _reach(chunk[-1], rows.n_keys)
        position = torch.arange(chunk.start, chunk.stop, chunk.step, device=mass.device)
        query = (query_HND[:, position].float() * scaling).reshape(kv_heads, -1, dim)
        logits = product(query, key_KND[:, :end].transpose(-1, -2))
        logits = logits.view(kv_heads, heads // kv_heads, len(chunk), end)
        later = column[first:end] > position[:, None]  # all rows see what comes before the first one
        logits[..., first:].masked_fill_(later, -torch.inf)
        mass[:, :end] += logits.softmax(-1).sum((1, 2))
    return mass / (heads // kv_heads)


def _reach(last: int, n_keys: int) -> int:
    """Keys that rows up to position `last` may see, rounded up: whole vectors are summed in one order."""
    return min(n_keys, -(-(last + 1) // ROW_CHUNK) * ROW_CHUNK)


@torch.inference_mode()
def prefill(
    loaded: Loaded, ids: torch.Tensor, requests: Iterable[Rows], queries_at: Iterable[int] = ()
) -> Prefill:
    """Run the model once over `ids` (N,); queries of the given positions are kept."""
    state = Prefill(requests=tuple(dict.fromkeys(requests)), queries_at=tuple(queries_at))
    state.logits = forward(loaded.model, ids.to(loaded.device)[None], 0, state)[0]
    return state
