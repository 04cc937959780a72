"""How numbers are written for machines: 6 significant digits, null where there is none."""

import json
import math
from typing import Any

from analysis.statistics import Estimate


def to_json(body: dict[str, Any]) -> str:
    """Indented JSON whose bytes depend on the values alone."""
    return json.dumps(body, indent=1, sort_keys=True, allow_nan=False, ensure_ascii=False) + "\n"


def estimate(found: Estimate) -> dict[str, Any]:
    """A number with its interval."""
    return {
        "value": rounded(found.value),
        "lo": rounded(found.lo),
        "hi": rounded(found.hi),
        "n": found.n,
        "clusters": found.clusters,
        "undefined": found.undefined,
        "note": found.note,
    }


def rounded(value: float | None) -> float | None:
    """6 significant digits, and no minus zero."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.6g}") + 0.0
