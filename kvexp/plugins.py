"""One file, one part: finds the class that a name in the configuration stands for (leaf: stdlib only).

A name resolves to the module of that name inside one package folder and nowhere else, so a configuration
cannot import arbitrary code, and adding a part means adding a file.
"""

import dataclasses
import difflib
import importlib
import pkgutil
from typing import Any, TypeVar

from kvexp.errors import ConfigError

T = TypeVar("T")


def names(package: str) -> list[str]:
    """Names of the parts in a package folder, sorted; `base` and files that begin with _ are not parts."""
    folder = importlib.import_module(package).__path__
    found = {m.name for m in pkgutil.iter_modules(folder)} - {"base"}
    return sorted(name for name in found if not name.startswith("_"))


def suggest(name: str, known: list[str]) -> str:
    """The end of an error sentence: the nearest known name, or all of them."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"


def part(package: str, name: str, base: type[T]) -> type[T]:
    """The subclass of `base` that `package/name.py` defines. Raises ConfigError for an unknown name."""
    kind = package.rsplit(".", 1)[-1].rstrip("s")
    known = names(package)
    if name not in known:
        raise ConfigError(f"there is no {kind} named {name!r}; {suggest(name, known)}")
    module = importlib.import_module(f"{package}.{name}")
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(f"{package}.{name} must define one {base.__name__}, it defines {len(found)}")
    return found[0]


def build(package: str, name: str, base: type[T], params: dict[str, Any]) -> T:
    """The part with its parameters set. Raises ConfigError for a parameter it does not have."""
    cls = part(package, name, base)
    fields = {f.name: f for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    for key, value in params.items():
        if key not in fields:
            raise ConfigError(
                f"{package.rsplit('.', 1)[-1]} {name!r} has no parameter {key!r}; "
                f"{suggest(key, sorted(fields)) if fields else 'it has none'}"
            )
        _check_type(name, key, value, fields[key].type)
    return cls(**params)


def _check_type(name: str, key: str, value: Any, declared: Any) -> None:
    allowed = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}.get(declared)
    if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and declared is not bool)):
        raise ConfigError(f"parameter {key!r} of {name!r} must be {declared.__name__}, got {value!r}")
