"""The claims, one file each: `quantities(data)` returns the registered numbers and holds no threshold.

`data` is a `Data` for claims about generations, a `CellData` for claims about attention cells.

A claim `X1` of a registration is the module `x1` of this folder, found by name; nothing lists them.
"""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast, get_type_hints

from analysis.statistics import Estimate

Quantities = Callable[[Any], dict[str, Estimate]]


def has_file(claim_id: str) -> bool:
    """Whether the claim has its file."""
    return (Path(__file__).parent / f"{claim_id.lower()}.py").is_file()


def load(claim_id: str) -> Quantities:
    """The function that computes the claim's quantities from a `Data` or a `CellData`."""
    module = importlib.import_module(f"analysis.claims.{claim_id.lower()}")
    return cast(Quantities, module.quantities)


def reads(quantities: Quantities, kind: type) -> bool:
    """Whether a claim's function says that it computes from this kind of data, or does not say."""
    hints = get_type_hints(quantities)
    return hints.get("data", kind) is kind
