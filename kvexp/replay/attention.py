"""The one place that touches transformers' attention: a registered function that asks the state to attend.

The state travels as a plain keyword of `model(...)`. No mask function is registered under this name, so
the mask code stays out of the way and the state masks for itself.
"""

from typing import Any, Protocol

import torch
from transformers import AttentionInterface

NAME = "kvexp"


class AttentionState(Protocol):
    """What a forward pass of the model reads and writes. A (batch), H query heads, K KV heads, T, D."""

    def attend(
        self,
        layer: int,
        query_AHTD: torch.Tensor,
        key_AKTD: torch.Tensor,
        value_AKTD: torch.Tensor,
        scaling: float,
    ) -> torch.Tensor:
        """Attention output (A, H, T, D) for queries and keys after RoPE."""


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    kv_state: AttentionState | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    if kv_state is None or attention_mask is not None:
        raise RuntimeError("the kvexp attention needs kv_state and no mask: call it through kvexp.replay")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    out = kv_state.attend(int(module.layer_idx), query, key, value, scale)  # type: ignore[arg-type]
    return out.transpose(1, 2).to(query.dtype), None


AttentionInterface.register(NAME, _attend)


def forward(
    model: torch.nn.Module, ids_AT: torch.Tensor, first_position: int, state: AttentionState
) -> torch.Tensor:
    """Feed tokens at their original positions; the logits (A, vocabulary) of the last one, float32.

    Positions are always explicit: transformers would derive them from the compressed length.
    """
    batch, length = ids_AT.shape
    positions = torch.arange(first_position, first_position + length, device=ids_AT.device)
    out = model(
        input_ids=ids_AT,
        position_ids=positions.expand(batch, length),
        use_cache=False,
        logits_to_keep=1,
        kv_state=state,
    )
    logits: torch.Tensor = out.logits[:, -1].float()
    return logits
