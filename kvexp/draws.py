"""Keyed uniforms for the Poisson draws (leaf: stdlib + numpy).

A uniform depends on its key and its position only: not on order, batch, budget, device or process. Budgets
share uniforms, so where pi is monotone in the budget a smaller keep set lies inside a larger one.
"""

import hashlib
import json

import numpy as np
from numpy.typing import NDArray


def uniforms(
    anchor: str,
    seed: int,
    task: str,
    example_id: str,
    condition: str,
    shape: tuple[int, int, int],
) -> NDArray[np.float64]:
    """Uniforms in [0, 1), shape (layers, KV heads, tokens); entry (l, h, i) belongs to position i.

    Philox is counter-based: position i is the i-th output of the stream of key (.., l, h), so a longer
    context extends a stream and changes nothing in it.
    """
    layers, kv_heads, tokens = shape
    out = np.empty(shape)
    for layer in range(layers):
        for head in range(kv_heads):
            # JSON keeps the fields apart: no two different keys give the same text.
            text = json.dumps([anchor, seed, task, example_id, condition, layer, head])
            key = int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")
            raw = np.random.Philox(key=key).random_raw(tokens)
            out[layer, head] = (raw >> np.uint64(11)) * 2.0**-53
    return out
