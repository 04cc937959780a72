"""The budget rule: one for all arms, protected tokens included."""

import torch

from kvexp.errors import InputError


class TooShort(InputError):
    """A cache or a budget that the protected tokens fill up."""


def slots(budget: float, n: int, protected: int) -> int:
    """B = round(budget * n) tokens of a cache of n. Raises TooShort if only protected ones would fit."""
    kept = round(budget * n)
    if min(kept, n) <= protected:
        raise TooShort(
            f"a budget of {budget:g} keeps {kept} of {n} cached tokens, but {protected} are protected: "
            "use a longer context or a larger budget"
        )
    return kept


def protected_mask(n: int, sinks: int, recent: int, device: torch.device | None = None) -> torch.Tensor:
    """Bool (n,): the first `sinks` and the last `recent` tokens, which no design evicts."""
    position = torch.arange(n, device=device)
    return (position < sinks) | (position >= n - recent)
