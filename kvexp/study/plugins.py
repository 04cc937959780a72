"""One file, one part: finds the class that a name in the configuration stands for (leaf: stdlib only).

A name resolves to the module of that name inside one package folder and nowhere else, so a configuration
cannot import arbitrary code, and adding a part means adding a file.
"""

import importlib
import os
import pkgutil
import types
import typing
from dataclasses import fields, is_dataclass
from functools import lru_cache
from typing import Any, TypeVar

from kvexp.design.base import Design
from kvexp.errors import ConfigError, named, suggest
from kvexp.scores.base import Score
from kvexp.study.schema import TaskConf
from kvexp.tasks.base import Task

T = TypeVar("T")


def names(package: str) -> list[str]:
    """Names of the parts in a package folder, sorted; `base` and files that begin with _ are not parts."""
    folders = tuple(importlib.import_module(package).__path__)
    return list(_listed(folders, tuple(os.stat(folder).st_mtime_ns for folder in folders)))


@lru_cache(maxsize=64)
def _listed(folders: tuple[str, ...], _changed: tuple[int, ...]) -> tuple[str, ...]:
    """Thousands of shards ask the same; a folder that has changed is read again."""
    found = {m.name for m in pkgutil.iter_modules(folders)} - {"base"}
    return tuple(sorted(name for name in found if not name.startswith("_")))


def _kind(package: str) -> str:
    return package.rsplit(".", 1)[-1].rstrip("s")


def part_class(package: str, name: str, base: type[T]) -> type[T]:
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
    cls = part_class(package, name, base)
    kind = _kind(package)
    known = _parameters(cls)
    declared = _types(cls) if known else {}  # type: ignore[arg-type]
    for key, value in params.items():
        if key not in known:
            one = f"task.NAME.params.{key}=... of the one that has it"
            more = f" (task.params.{key}=... is said of every task, {one})" if kind == "task" else ""
            raise ConfigError(
                f"{kind} {name!r} has no parameter {key!r}; {suggest(key, known) if known else 'it has none'}"
                f"{more}"
            )
        _check_type(name, key, value, declared[key])
    try:
        # Parts are hashable, so that equal ones share their work; lists are not.
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in params.items()})
    except TypeError as error:  # a parameter without a default, or an abstract method without a body
        raise ConfigError(f"{kind} {name!r} cannot be built: {error}") from None


@lru_cache(maxsize=64)
def _types(cls: type) -> dict[str, Any]:
    """Annotations as types, also where a module writes them as texts."""
    try:
        return typing.get_type_hints(cls)
    except (NameError, TypeError) as error:
        raise ConfigError(f"the types of {cls.__name__} cannot be read: {error}") from None


def _check_type(name: str, key: str, value: Any, declared: Any) -> None:
    if not _fits(value, declared):
        raise ConfigError(f"parameter {key!r} of {name!r} must be {_named(declared)}, got {value!r}")


def _fits(value: Any, declared: Any) -> bool:
    """Whether a value from YAML is of a type; what YAML cannot say is left to the part itself."""
    origin, inner = typing.get_origin(declared), typing.get_args(declared)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(value, one) for one in inner)
    if origin is typing.Literal:
        return value in inner
    if declared in (tuple, list) or origin in (tuple, list):
        items = inner[:1] if origin is list or inner[1:] == (...,) else ()
        return isinstance(value, list | tuple) and all(_fits(v, i) for v in value for i in items)
    if declared in (type(None), None):
        return value is None
    if isinstance(value, bool) and declared in (int, float):  # True is an int to Python, and to nobody else
        return False
    allowed = {int: (int,), float: (int, float), str: (str,), bool: (bool,)}.get(declared)
    return not allowed or isinstance(value, allowed)


def _named(declared: Any) -> str:
    return declared.__name__ if isinstance(declared, type) else str(declared).replace("typing.", "")


# From a task's configuration to its family.


def family_of(conf: TaskConf) -> Task:
    """The family with its parameters set; data_dir reaches only a family that reads data.

    Raises ConfigError, which names the task's file, for a parameter that does not fit.
    """
    with named(f"conf/task/{conf.name}.yaml"):
        params = dict(conf.params)
        known = _parameters(part_class("kvexp.tasks", conf.family, Task))
        if conf.data_dir is not None and "data_dir" in known:
            params["data_dir"] = conf.data_dir
        return build("kvexp.tasks", conf.family, Task, params)


def _parameters(part: type) -> list[str]:
    return sorted(field.name for field in fields(part)) if is_dataclass(part) else []


def build_design(name: str, **params: object) -> Design:
    """The design that `design/<name>.py` defines, with its parameters set."""
    return build("kvexp.design", name, Design, params)


def build_score(name: str, **params: object) -> Score:
    """The score that `scores/<name>.py` defines, with its parameters set."""
    return build("kvexp.scores", name, Score, params)


def build_task(name: str, **params: object) -> Task:
    """The task that `tasks/<name>.py` defines, with its parameters set."""
    return build("kvexp.tasks", name, Task, params)
