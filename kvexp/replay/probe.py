"""A few places of a keep set, written out: two keep sets can be compared by share, not only by digest."""

import hashlib
import json
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

PLACES = 512


def probe(kept_LKN: torch.Tensor, key: Sequence[str | float | None]) -> str:
    """The bits of `kept_LKN` at keyed places, lower-case hex, the first place in the highest bit.

    Places are a simple random sample, with replacement, of all (layer, KV head, position): the share of
    them on which two keep sets agree estimates without bias the share of all tokens on which they do.
    """
    places = torch.from_numpy(_places(key, kept_LKN.numel())).to(kept_LKN.device)
    return np.packbits(kept_LKN.flatten()[places].cpu().numpy()).tobytes().hex()


def agreement(one: str, other: str) -> int:
    """Places, of `PLACES`, on which two probes of the same key agree."""
    return PLACES - (int(one, 16) ^ int(other, 16)).bit_count()


def _places(key: Sequence[str | float | None], size: int) -> NDArray[np.int64]:
    """Flat indices below `size`; Philox as in `kvexp.draws`, under a key that no draw has."""
    text = json.dumps(["probe", *key])
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
    raw = np.random.Philox(key=number).random_raw(PLACES)
    return ((raw >> np.uint64(11)) * 2.0**-53 * size).astype(np.int64)
