"""Float32 rows times cached keys or values: nothing is rounded to the cache's narrower type.

A cache in bfloat16 is read as it is where the device multiplies it into float32: a float32 number is the
exact sum of three bfloat16 ones, so three times the rows give the product without a copy of the cache.
Legend: ... the same leading axes, R rows, M summed over, N columns.
"""

from functools import cache

import torch

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
