"""The language of kill and support conditions, and the verdict that they give.

Comparisons `< <= > >=` of numbers, quantity names and `name.value .lo .hi .n`; `+ - *`; `and or not`.
Nothing else, never `eval`: the text is parsed by `ast` and walked by a whitelist. A bare name is its
`.value`. Logic is Kleene's: a missing or non-finite number makes a comparison unknown (None), and an
unknown spreads unless the rest decides. So filling an unknown never flips a decided condition.
"""

import ast
import math
import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FIELDS = ("value", "lo", "hi", "n")
Field = tuple[str, str]  # quantity, one of FIELDS
MAX_CHARACTERS = 300
MAX_NODES = 120
MAX_DEPTH = 16
# Larger constants cannot be meant, and products of them would leave the floats.
MAX_CONSTANT = 1e9

_ALPHABET = re.compile(r"[A-Za-z0-9_.<>=+\-*() ]*")
_ORDER: dict[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


class ConditionError(ValueError):
    """An expression outside the language; the message says which part."""


class State(StrEnum):
    """The verdict on one claim."""

    KILLED = "KILLED"
    SURVIVED = "SURVIVED"
    NOT_MET = "NOT_MET"
    INCOMPLETE = "INCOMPLETE"  # rows are missing or a needed statistic is undefined
    INVALID = "INVALID"  # the logs contradict themselves or the grid


@dataclass(frozen=True)
class Expression:
    """A checked kill or support condition."""

    text: str  # as registered
    fields: tuple[Field, ...]  # every (quantity, field) that it reads, sorted
    _tree: ast.expr

    @property
    def names(self) -> set[str]:
        """The quantities that the expression reads."""
        return {name for name, _ in self.fields}

    def holds(self, quantities: Mapping[str, Any]) -> bool | None:
        """Whether the condition is true; None where the known quantities do not decide it.

        Quantities are objects with the attributes value, lo, hi and n; an absent name, an absent
        attribute, None, NaN and infinity are all unknown.
        """
        return _truth(self._tree, quantities)


def parse(text: str) -> Expression:
    """Read an expression, or raise ConditionError with the part that the language does not have."""
    if len(text) > MAX_CHARACTERS:
        raise ConditionError(f"it is longer than {MAX_CHARACTERS} characters")
    if not _ALPHABET.fullmatch(text):
        odd = sorted(set(_ALPHABET.sub("", text)))
        raise ConditionError(f"it contains {', '.join(map(repr, odd))}")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python only warns about `1or x`
            tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, Warning, ValueError, RecursionError, MemoryError):
        raise ConditionError("it is not a complete expression") from None
    if sum(1 for _ in ast.walk(tree)) > MAX_NODES:
        raise ConditionError("it has too many parts")
    _check_logic(tree, MAX_DEPTH)
    return Expression(text, tuple(sorted({*_fields(tree)})), tree)


def verdict(kill: bool | None, support: bool | None, has_support: bool) -> State:
    """The state of a claim whose rows are all there and sound.

    A kill decides alone. Without one, the claim survives if its support holds or none was registered.
    """
    if kill:
        return State.KILLED
    if kill is None:
        return State.INCOMPLETE
    if not has_support or support:
        return State.SURVIVED
    return State.INCOMPLETE if support is None else State.NOT_MET


def _check_logic(node: ast.expr, depth: int) -> None:
    """Refuse everything but and, or, not and simple comparisons."""
    _check_depth(depth)
    match node:
        case ast.BoolOp(values=parts):
            for part in parts:
                _check_logic(part, depth - 1)
        case ast.UnaryOp(op=ast.Not(), operand=part):
            _check_logic(part, depth - 1)
        case ast.Compare(left=left, ops=[order], comparators=[right]) if type(order) in _ORDER:
            _check_number(left, depth - 1)
            _check_number(right, depth - 1)
        case ast.Compare():
            raise ConditionError(f"'{ast.unparse(node)}' is not one comparison by < <= > >=")
        case _:
            raise ConditionError(f"'{_short(node)}' is not a comparison")


def _check_number(node: ast.expr, depth: int) -> None:
    """Refuse everything but constants, quantities, their fields, + - * and a leading minus."""
    _check_depth(depth)
    match node:
        case ast.Constant(value=int() | float() as value) if not isinstance(value, bool):
            if abs(value) > MAX_CONSTANT:
                raise ConditionError(f"a number is larger than {MAX_CONSTANT:g}")
        case ast.Name():
            pass
        case ast.Attribute(value=ast.Name(), attr=field) if field in FIELDS:
            pass
        case ast.UnaryOp(op=ast.USub(), operand=part):
            _check_number(part, depth - 1)
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _ARITHMETIC:
            _check_number(left, depth - 1)
            _check_number(right, depth - 1)
        case _:
            raise ConditionError(f"'{_short(node)}' is not a number or a quantity")


def _check_depth(depth: int) -> None:
    if depth < 0:
        raise ConditionError(f"it is nested deeper than {MAX_DEPTH} levels")


def _short(node: ast.expr) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else text[:57] + "..."


def _fields(node: ast.AST) -> Iterator[Field]:
    match node:
        case ast.Attribute(value=ast.Name(id=name), attr=field):
            yield name, field
        case ast.Name(id=name):
            yield name, "value"
        case _:
            for part in ast.iter_child_nodes(node):
                yield from _fields(part)


def _truth(node: ast.expr, quantities: Mapping[str, Any]) -> bool | None:
    match node:
        case ast.BoolOp(op=logic, values=parts):
            seen = [_truth(part, quantities) for part in parts]
            decides = isinstance(logic, ast.Or)  # one True decides an or, one False an and
            if decides in seen:
                return decides
            return None if None in seen else not decides
        case ast.UnaryOp(op=ast.Not(), operand=part):
            inner = _truth(part, quantities)
            return None if inner is None else not inner
        case ast.Compare(left=left, ops=[order], comparators=[right]):
            a, b = _number(left, quantities), _number(right, quantities)
            return None if a is None or b is None else _ORDER[type(order)](a, b)
    raise AssertionError(f"unchecked node {node!r}")


def _number(node: ast.expr, quantities: Mapping[str, Any]) -> float | None:
    match node:
        case ast.Constant(value=int() | float() as value):
            return float(value)
        case ast.Name(id=name):
            return _known(quantities.get(name), "value")
        case ast.Attribute(value=ast.Name(id=name), attr=field):
            return _known(quantities.get(name), field)
        case ast.UnaryOp(operand=part):
            inner = _number(part, quantities)
            return None if inner is None else -inner
        case ast.BinOp(left=left, op=sign, right=right):
            a, b = _number(left, quantities), _number(right, quantities)
            return None if a is None or b is None else _finite(_ARITHMETIC[type(sign)](a, b))
    raise AssertionError(f"unchecked node {node!r}")


def _known(quantity: Any, field: str) -> float | None:
    value = getattr(quantity, field, None)
    return None if value is None else _finite(float(value))


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
