"""Can a claim be killed, can it be spared, and can its support stand? (leaf: stdlib only).

Tries the numbers at which the truth of a condition can change, with lo <= value <= hi: the ends of the
declared ranges, the constants, the solutions of linear comparisons of one or two fields (for two, with each
other number in turn, and where two such comparisons meet), and a point between each two neighbours. A number
that is found is proof; that none is found is proof for comparisons of one or two fields without products.
"""

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Protocol

from kvexp.documents.condition import FIELDS, Border, Condition, Field

MAX_TRIALS = 20_000  # of a whole file: a hostile one is refused within a second
MAX_POINTS = 4_000  # numbers that one field may take
SIMPLER = "; not all numbers were tried: compare at most two fields at a time, without products"


class Bounds(Protocol):
    """What is declared of a quantity."""

    @property
    def range(self) -> tuple[float, float]: ...

    @property
    def count(self) -> bool: ...


class TooMany(ValueError):
    """More combinations than are tried."""


@dataclass
class Purse:
    """Trials that a file has left."""

    left: int = MAX_TRIALS

    def pay(self, trials: int = 1) -> None:
        """Take some out. Raises TooMany if there are not enough."""
        self.left -= trials
        if self.left < 0:
            raise TooMany


def fault(kill: Condition, support: Condition | None, bounds: Mapping[str, Bounds], purse: Purse) -> str:
    """Why a verdict could never come about; empty if all can. Raises TooMany."""
    killed, spared, supported = False, False, support is None
    for quantities in _trials([kill] if support is None else [kill, support], bounds, purse):
        if kill.holds(quantities):
            killed = True
        else:
            spared = True
            supported = supported or bool(support and support.holds(quantities))
        if killed and spared and supported:
            return ""
    hint = "" if all(map(_is_exact, [kill, support] if support else [kill])) else SIMPLER
    if not killed:
        return f"no number can fulfil the kill condition '{kill.text}'{hint}"
    if not spared:
        return f"every number fulfils the kill condition '{kill.text}'{hint}"
    return f"the support can never hold unless the claim is killed{hint}"


def _is_exact(condition: Condition) -> bool:
    """Whether every comparison is linear in at most two fields, so that what is tried decides."""
    comparisons = sum(map(condition.text.count, "<>"))
    is_linear = len(condition.borders) == comparisons
    return is_linear and all(len(border.factors) <= 2 for border in condition.borders)


def _trials(
    conditions: Sequence[Condition], bounds: Mapping[str, Bounds], purse: Purse
) -> Iterator[dict[str, SimpleNamespace]]:
    fields = set(itertools.chain(*(condition.fields for condition in conditions)))
    constants = set(itertools.chain(*(condition.constants for condition in conditions)))
    numbers = constants | set(itertools.chain(*(one.range for one in bounds.values())))
    borders = [*itertools.chain(*(condition.borders for condition in conditions)), *_orders(fields)]
    meetings = _meetings(borders, purse)
    turns = {
        field: numbers | _solutions(field, borders, numbers, purse) | meetings.get(field, set())
        for field in fields
    }
    choices = [
        [(name, choice) for choice in _choices(quantity, name, turns, purse)]
        for name, quantity in bounds.items()
    ]
    for combination in itertools.product(*choices):
        purse.pay()
        yield dict(combination)


def _orders(fields: set[Field]) -> Iterator[Border]:
    """lo <= value <= hi, as borders."""
    for one, other in itertools.combinations(sorted(fields), 2):
        if one[0] == other[0] and "n" not in (one[1], other[1]):
            yield Border(0.0, {one: 1.0, other: -1.0})


def _solutions(field: Field, borders: list[Border], numbers: set[float], purse: Purse) -> set[float]:
    """Where a linear comparison turns in this field, the one other field in it taking each other number."""
    found: set[float | None] = set()
    for border in borders:
        rest = [name for name in border.factors if name != field]
        if field in border.factors and not rest:
            found.add(border.solved_for(field, {}))
        elif field in border.factors and len(rest) == 1:
            purse.pay(len(numbers) // 8)
            found |= {border.solved_for(field, {rest[0]: number}) for number in numbers}
    return {number for number in found if number is not None}


def _meetings(borders: list[Border], purse: Purse) -> dict[Field, set[float]]:
    """Where two comparisons of the same two fields turn together."""
    pairs: dict[tuple[Field, ...], list[Border]] = {}
    for border in borders:
        if len(border.factors) == 2:
            pairs.setdefault(tuple(sorted(border.factors)), []).append(border)
    found: dict[Field, set[float]] = {}
    for (x, y), both in ((key, group) for key, group in pairs.items()):
        for one, other in itertools.combinations(both, 2):
            purse.pay()
            a, b, c, d = one.factors[x], one.factors[y], other.factors[x], other.factors[y]
            if determinant := a * d - b * c:
                found.setdefault(x, set()).add((b * other.constant - d * one.constant) / determinant)
                found.setdefault(y, set()).add((c * one.constant - a * other.constant) / determinant)
    return {
        field: {number for number in numbers if math.isfinite(number)} for field, numbers in found.items()
    }


def _choices(
    quantity: Bounds, name: str, turns: dict[Field, set[float]], purse: Purse
) -> list[SimpleNamespace]:
    low, high = quantity.range
    read = [field for field in ("lo", "value", "hi") if (name, field) in turns]
    inside = sorted({turn for field in read for turn in turns[name, field] if low <= turn <= high})
    between = [(a + b) / 2 for a, b in itertools.pairwise(inside)]
    points = sorted({*inside, *between})
    if quantity.count:
        whole = {whole for point in points for whole in (math.floor(point), math.ceil(point))}
        points = sorted(point for point in whole if low <= point <= high)
    counts = sorted(_counts(turns[name, "n"])) if (name, "n") in turns else [1]
    if len(points) > MAX_POINTS:
        raise TooMany
    rising_numbers = math.comb(len(points) + len(read) - 1, len(read)) if read else 1
    purse.pay(rising_numbers * len(counts) // 4)
    return [
        SimpleNamespace(**{**dict.fromkeys(FIELDS), **dict(zip(read, rising, strict=True)), "n": n})
        for rising in itertools.combinations_with_replacement(points, len(read))
        for n in counts
    ]


def _counts(turns: set[float]) -> set[int]:
    """Numbers of rows at and beside each turn; turns below 1 are shares and the like."""
    beside = {math.floor(turn) + step for turn in turns if turn >= 1 for step in (-1, 0, 1)}
    return {0, 10**9} | {count for count in beside if 0 <= count <= 10**9}
