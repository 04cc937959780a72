"""The fields in which two nested tables differ, by dotted name."""

from collections.abc import Iterator, Mapping
from typing import Any

NOTHING = object()  # a field that one of them does not have


def field_changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Name, value before and value after of each field that differs, in the order of the tables."""
    there, here = dict(_leaves(before)), dict(_leaves(after))
    each = ((name, there.get(name, NOTHING), here.get(name, NOTHING)) for name in {**there, **here})
    return [(name, old, new) for name, old, new in each if old != new]


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """By dotted name; lists and tuples of plain values are values."""
    if isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _leaves(inner, f"{name}.{key}" if name else str(key))
    elif isinstance(value, list | tuple) and any(isinstance(one, Mapping | list | tuple) for one in value):
        for number, inner in enumerate(value):
            yield from _leaves(inner, f"{name}.{number}")
    else:
        yield name, list(value) if isinstance(value, tuple) else value
