"""The claims, one file each: `quantities(data)` returns the registered numbers and holds no threshold.

A claim `X1` of a registration is the module `x1` of this folder, found by name; nothing lists them.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import cast

from analysis.data import Data
from analysis.statistics import Estimate


def has_file(claim_id: str) -> bool:
    """Whether the claim has its file."""
    return (Path(__file__).parent / f"{claim_id.lower()}.py").is_file()


def load(claim_id: str) -> Callable[[Data], dict[str, Estimate]]:
    """The function that computes the claim's quantities."""
    module = importlib.import_module(f"analysis.claims.{claim_id.lower()}")
    return cast(Callable[[Data], dict[str, Estimate]], module.quantities)
