"""Parts register themselves by being there: the modules of a folder that have an ORDER, in that order."""

import importlib
import pkgutil
from collections.abc import Sequence
from types import ModuleType


def plugins(package: ModuleType) -> Sequence[ModuleType]:
    """The modules of a package, not of packages in it, that have a number ORDER."""
    names = sorted(one.name for one in pkgutil.iter_modules(package.__path__) if not one.ispkg)
    found = [importlib.import_module(f"{package.__name__}.{name}") for name in names]
    return sorted((one for one in found if hasattr(one, "ORDER")), key=lambda one: float(one.ORDER))
