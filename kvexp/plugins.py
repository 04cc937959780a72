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


def _kind(package: str) -> str:
    return package.rsplit(".", 1)[-1].rstrip("s")


def part(package: str, name: str, base: type[T]) -> type[T]:
    """The subclass of `base` that `package/name.py` defines. Raises ConfigError for an unknown name."""
    kind = _kind(package)
    known = names(package)
    if name not in known:
        raise ConfigError(f"there is no {kind} named {name!r}; {suggest(name, known)}")
    try:
        module = importlib.import_module(f"{package}.{name}")
    except (ImportError, SyntaxError) as error:
        raise ConfigError(f"{package}.{name} cannot be imported: {type(error).__name__}: {error}") from None
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, base) and value.__module__ == module.__name__
    ]
    if len(found) != 1:
        raise ConfigError(f"{package}.{name} must define one {base.__name__}, it defines {len(found)}")
    return found[0]


def build(package: str, name: str, base: type[T], params: dict[str, Any]) -> T:
    """The part with its parameters set. Raises ConfigError for a parameter that does not fit."""
    cls = part(package, name, base)
    kind = _kind(package)
    fields = {f.name: f for f in dataclasses.fields(cls)} if dataclasses.is_dataclass(cls) else {}
    for key, value in params.items():
        if key not in fields:
            raise ConfigError(
                f"{kind} {name!r} has no parameter {key!r}; "
                f"{suggest(key, sorted(fields)) if fields else 'it has none'}"
            )
        _check_type(name, key, value, fields[key].type)
    try:
        # Parts are hashable, so that equal ones share their work; lists are not.
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in params.items()})
    except TypeError as error:  # a parameter without a default, or an abstract method without a body
        raise ConfigError(f"{kind} {name!r} cannot be built: {error}") from None


def _check_type(name: str, key: str, value: Any, declared: Any) -> None:
    allowed = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}.get(declared)
    if allowed and (not isinstance(value, allowed) or (isinstance(value, bool) and declared is not bool)):
        raise ConfigError(f"parameter {key!r} of {name!r} must be {declared.__name__}, got {value!r}")
