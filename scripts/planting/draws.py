"""Random numbers keyed by words: the same whatever else is drawn, in whatever order."""

import hashlib
import math
from typing import Any

import numpy as np

from scripts.planting.wanted import Floats


def uniforms(count: int, *key: Any) -> Floats:
    """From (0, 1), from raw PCG64 words, whose stream NumPy guarantees."""
    digest = hashlib.blake2b("|".join(map(str, key)).encode(), digest_size=16).digest()
    words = np.random.PCG64(int.from_bytes(digest, "big")).random_raw(count)
    return ((words >> np.uint64(11)) + 0.5) * 2.0**-53


def normals(count: int, *key: Any) -> Floats:
    """Standard normals (Box and Muller)."""
    half = (count + 1) // 2
    u = uniforms(2 * half, *key)
    radius, angle = np.sqrt(-2 * np.log(u[:half])), 2 * math.pi * u[half:]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]
