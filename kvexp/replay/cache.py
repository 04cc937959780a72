"""The caches of all arms that decode as one batch: the model's matrices are read once for all of them.

Arms of one budget form a block, packed to one width; a forward pass feeds the first rows of every block,
one block behind the other. Legend: A arms, H query heads, K KV heads, G = H / K, S slots, T new tokens, D.
"""

from collections.abc import Sequence

import torch

from kvexp.replay.prefill import Prefill
from kvexp.replay.products import product
from kvexp.replay.signals import StepSignals
from kvexp.replay.store import Kept, LayerStore, packed


class Block:
    """Arms of one budget, of which the first `streams` alone see the tokens after the context."""

    def __init__(self, prefill: Prefill, arms: list[Kept], new_slots: int, streams: int = 0) -> None:
        self.layers: list[LayerStore] = [
            packed(
                prefill.keys[layer],
                prefill.values[layer],
                [(a.kept_LKN[layer], a.pi_LKN[layer], a.corrected) for a in arms],
                new_slots,
            )
            for layer in range(len(prefill.keys))
        ]
        self.arms = list(range(len(arms)))  # whose answer each row is
        self.streams = streams
        self.fed = len(arms)  # rows that the next forward pass feeds
        self.used = 0  # new slots taken so far, by any arm
        self.new_A1 = torch.zeros(len(arms), 1, device=prefill.keys[0].device)  # by each row
        self.signals: StepSignals | None = None

    def advance(self, tokens: int) -> None:
        """Close a forward pass that fed `tokens` tokens to the fed rows."""
        if not self.fed:
            return
        self.used += tokens
        self.new_A1[: self.fed] += tokens
        if self.signals is not None:
            self.signals.step += 1

    def attend(
        self,
        layer: int,
        query_AHTD: torch.Tensor,
        key_AKTD: torch.Tensor,
        value_AKTD: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        """Attention output (A, H, T, D) of the fed rows, float32."""
        store = self.layers[layer]
        arms, heads, length, dim = query_AHTD.shape
        start = store.width + self.used
        end = start + length
        store.append(start, key_AKTD, value_AKTD)
        keys, values = store.keys_AKSD[:arms, :, :end], store.values_AKSD[:arms, :, :end]
        kv_heads = keys.shape[1]
        query = (query_AHTD.float() * scaling).reshape(arms, kv_heads, -1, dim)
        logits = product(query, keys.transpose(-1, -2)).view(arms, kv_heads, -1, length, end)
        logits += store.offset_AKS[:arms, :, None, None, :end]
        if length > 1:  # new tokens see themselves and what came before, lower-right aligned
            later = torch.ones(length, length, dtype=torch.bool, device=keys.device).triu(1)
            logits[..., start:].masked_fill_(later, -torch.inf)
        weights = logits.softmax(-1).view(arms, kv_heads, -1, end)
        out = product(weights, values)
        if self.signals is not None:
            self.signals.read(store, weights, out, values, self.new_A1[:arms] + length)
        return out.view(arms, heads, length, dim)

    def drop(self, stopped: Sequence[bool]) -> list[int]:
        """Rows whose arm has stopped give their place to the last ones; where the rest stood before."""
        rows = list(range(len(self.arms)))
        place = 0
        while place < len(rows):
            if not stopped[rows[place]]:
                place += 1
                continue
            last = rows.pop()
            if place < len(rows):
                rows[place] = last
                self._move(len(rows), place)
        self.arms = [self.arms[row] for row in rows]
        self.fed = len(rows)
        return rows

    def _move(self, source: int, target: int) -> None:
        self.new_A1[target] = self.new_A1[source]
        for store in self.layers:
            store.move(source, target)


class BatchCache:
    """Attention state of all blocks."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self.blocks = list(blocks)

    def advance(self, tokens: int) -> None:
        """Close a forward pass that fed `tokens` tokens."""
        for block in self.blocks:
            block.advance(tokens)

    def attend(
        self,
        layer: int,
        query_AHTD: torch.Tensor,
        key_AKTD: torch.Tensor,
        value_AKTD: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        fed = [block for block in self.blocks if block.fed]
        sizes = [block.fed for block in fed]
        parts = zip(
            fed,
            torch.split(query_AHTD, sizes),
            torch.split(key_AKTD, sizes),
            torch.split(value_AKTD, sizes),
            strict=True,
        )
        return torch.cat([block.attend(layer, q, k, v, scaling) for block, q, k, v in parts])
