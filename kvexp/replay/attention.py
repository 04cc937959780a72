"""Float32 rows times cached keys or values: nothing is rounded to the cache's narrower type.

A cache in bfloat16 is read as it is where the device multiplies it into float32: a float32 number is the
exact sum of three bfloat16 ones, so three times the rows give the product without a copy of the cache.
Legend: ... the same leading axes, R rows, M summed over, N columns.
"""

from functools import cache
from typing import Any, Protocol

import torch
from transformers import AttentionInterface

PARTS = 3  # 3 * 8 bits are the 24 of a float32


def product(rows_RM: torch.Tensor, cached_MN: torch.Tensor) -> torch.Tensor:
    """rows @ cached, float32; `rows` is float32, `cached` of any type, possibly a strided view."""
    if cached_MN.dtype == torch.float32:
        return rows_RM @ cached_MN
    if cached_MN.dtype == torch.bfloat16 and widens(cached_MN.device):
        return _in_parts(rows_RM, cached_MN)
    return rows_RM @ cached_MN.float()


def _in_parts(rows_RM: torch.Tensor, cached_MN: torch.Tensor) -> torch.Tensor:
    rows = split(rows_RM)
    lead = rows.shape[:-2]
    made = _widening(rows.flatten(0, -3), cached_MN.flatten(0, -3))
    parts = made.view(*lead, PARTS, rows_RM.shape[-2], made.shape[-1])
    return parts.sum(-3)


def split(rows_RM: torch.Tensor) -> torch.Tensor:
    """Three bfloat16 matrices (3 * R, M), one below the other, whose exact sum the float32 rows are."""
    parts, rest = [], rows_RM
    for _ in range(PARTS):
        part = rest.bfloat16()
        parts.append(part)
        rest = rest - part.float()
    return torch.cat(parts, -2)


def _widening(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Product of two stacks of bfloat16 matrices, summed and left in float32."""
    made: torch.Tensor = torch.ops.aten.bmm.dtype(one, other, torch.float32)
    return made


@cache
def widens(device: torch.device) -> bool:
    """Whether the device multiplies bfloat16 into float32."""
    if device.type != "cuda":
        return False
    one = torch.ones(1, 16, 16, dtype=torch.bfloat16, device=device)
    try:
        return bool((_widening(one, one) == 16).all())
    except (RuntimeError, TypeError, AttributeError, NotImplementedError):
        return False


# The one place that touches transformers' attention: a registered function that asks the state to attend.
#
# The state travels as a plain keyword of `model(...)`. No mask function is registered under this name, so
# the mask code stays out of the way and the state masks for itself.


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
