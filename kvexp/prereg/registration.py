"""Registrations: TOML files that say what is claimed and what would prove it wrong (leaf: + msgspec).

A claim names the rows it is about (a population of generations, or attention cells), the numbers it needs
(quantities, with the range each can take) and the conditions on them. `load` refuses whatever a reader
and a machine could read differently: unknown keys, names that are declared but unused or used but
undeclared, and a kill condition that fires always or never.

A reading is the same claim under another population or label, a sensitivity the same claim under
another analysis choice. Both are printed with the claim and return no verdict. A registration without
claims says that its suites are explored.
"""

import hashlib
import itertools
import math
import re
import stat
import tomllib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from kvexp.errors import KvexpError
from kvexp.prereg.condition import FIELDS, Border, Condition, ConditionError, Field, State, parse

Label = Literal["success", "own_failure", "induced_failure", "inherent_failure", "rescue", "attribution"]
Names = Annotated[list[str], msgspec.Meta(min_length=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
OTHERWISE = "otherwise"
MAX_TRIALS = 1_000_000
MAX_BYTES = 256 * 1024
MAX_DOTS = 100  # in one line: a dotted key of thousands of parts keeps the TOML parser busy for minutes
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CLAIM_ID = re.compile(r"[A-Z][A-Za-z0-9_]*")
R = TypeVar("R", bound="Strict")


class RegistrationError(KvexpError):
    """A registration that cannot be used as it stands."""


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table that refuses unknown keys."""


class Quantity(Strict, frozen=True, kw_only=True):
    """A number that the claim's file returns under this name."""

    meaning: str
    range: tuple[float, float]  # every value it can take, both ends included
    count: bool = False  # a whole number, without an interval


class Population(Strict, frozen=True, kw_only=True):
    """Rows of the grid. An absent axis is not restricted; every listed value must select a row."""

    suites: Names
    tasks: Names
    arms: Names
    label: Label  # what counts as positive, and which rows count at all
    models: Names | None = None
    conditions: Names | None = None
    budgets: Annotated[list[Share], msgspec.Meta(min_length=1)] | None = None


class Cells(Strict, frozen=True, kw_only=True):
    """Cells of attention suites. An absent axis is not restricted; every listed value must select a cell."""

    suites: Names
    tasks: Names
    models: Names | None = None
    budgets: Annotated[list[Share], msgspec.Meta(min_length=1)] | None = None


class Statistics(Strict, frozen=True, kw_only=True):
    """How numbers are computed. The literals say what the analysis does; it can do nothing else."""

    auc: Literal["mann-whitney, ties half"]
    interval: Literal["cluster-bootstrap-percentile"]
    cluster: tuple[Literal["task"], Literal["example_id"]]
    resampled_within: tuple[Literal["task"]]
    level: Annotated[float, msgspec.Meta(gt=0, lt=1)]
    draws: Annotated[int, msgspec.Meta(ge=2, le=100_000)]
    min_clusters: Annotated[int, msgspec.Meta(ge=2)]
    undefined_resamples_max: Share  # above it there is no interval
    undefined_rows_max: Share  # share of rows without a signal above which its statistics are undefined


class Details(Strict, frozen=True, kw_only=True):
    """What the descriptive tables look at; no verdict depends on it."""

    tasks: Names  # the main tasks, without the needle anchor
    arm: str  # the arm that carries the certificate
    signals: Names
    control: str | None = None  # suite that asks the same examples without their context


class Variant(Strict, frozen=True, kw_only=True):
    """What a reading or sensitivity changes; everything else is the claim's."""

    population: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    success: dict[str, Share] = {}
    kill: str | None = None
    support: str | None = None


class Claim(Strict, frozen=True, kw_only=True):
    """One claim, as written in its table."""

    statement: str
    quantities: dict[str, Quantity]
    kill: str
    kill_prose: str
    population: Population | None = None  # of a claim about generations
    cells: Cells | None = None  # of a claim about attention cells
    support: str | None = None
    labels: dict[State, str] = {}
    parameters: dict[str, Any] = {}  # numbers and names that the claim's file needs
    readings: dict[str, Variant] = {}
    sensitivity: dict[str, Variant] = {}

    @property
    def variants(self) -> Iterator[tuple[str, Variant]]:
        """Every variant with the words that name it."""
        for kind in ("readings", "sensitivity"):
            for name, variant in getattr(self, kind).items():
                yield f"{kind} '{name}'", variant


class Registration(Strict, frozen=True, kw_only=True):
    """One TOML file."""

    format: Literal["kvexp-registration/1"]
    id: str
    title: str
    authors: Names
    existing_data: Literal[
        "before-creation",
        "before-observation",
        "before-access",
        "before-analysis",
        "after-analysis",
    ]
    existing_data_note: str
    suites: Names  # suites that this registration keys; its claims may also read its parent's
    stopping: str
    exclusions: str
    missing: str
    statistics: Statistics
    claim: dict[str, Claim]
    success: dict[str, Share] = {}  # score name -> threshold that the raw score must reach
    details: Details | None = None  # of the suites with generations
    parent: str | None = None
    data_seen: list[str] = []


@dataclass(frozen=True)
class Question:
    """A claim or one of its variants with everything resolved: what the analysis answers.

    It is about a population or about cells; the other is None.
    """

    claim_id: str
    population: Population | None
    cells: Cells | None
    success: dict[str, float]
    parameters: dict[str, Any]
    quantities: dict[str, Quantity]
    kill: Condition
    support: Condition | None
    statistics: Statistics
    seed: int  # of the bootstrap; the variants of a claim share it


@dataclass(frozen=True)
class Registered:
    """A checked registration and the digest of its bytes."""

    content: Registration
    path: Path
    digest: str

    def question(self, claim_id: str, variant: Variant | None = None) -> Question:
        """The claim, or the claim as the variant changes it."""
        claim, change = self.content.claim[claim_id], variant or Variant()
        where = f"{self.path}: claim {claim_id}"
        kill = claim.kill if change.kill is None else change.kill
        support = claim.support if change.support is None else change.support
        return Question(
            claim_id=claim_id,
            population=_changed(claim.population, change.population, f"{where}: a variant's population"),
            cells=_changed(claim.cells, change.cells, f"{where}: a variant's cells"),
            success={**self.content.success, **change.success},
            parameters={**claim.parameters, **change.parameters},
            quantities=claim.quantities,
            kill=_parsed(kill, f"{where}: kill"),
            support=None if support is None else _parsed(support, f"{where}: support"),
            statistics=self.content.statistics,
            seed=seed(self.digest, claim_id),
        )

    def questions(self) -> Iterator[tuple[str, Question]]:
        """Every claim and every variant, each with the words that name it in messages."""
        for claim_id, claim in self.content.claim.items():
            yield f"claim {claim_id}", self.question(claim_id)
            for words, variant in claim.variants:
                yield f"claim {claim_id}, {words}", self.question(claim_id, variant)


def seed(digest: str, claim_id: str) -> int:
    """The bootstrap seed of a claim: fixed by the registration's bytes, chosen by nobody."""
    return int.from_bytes(hashlib.sha256(f"{digest} {claim_id}".encode()).digest()[:16], "big")


def load_folder(folder: Path, has_claim_file: Callable[[str], bool]) -> list[Registered]:
    """Every registration of a study, sorted by id; claim ids and suites belong to one file each."""
    if not folder.is_dir():
        raise RegistrationError(
            f"{folder} is not a folder of registrations (*.toml): name one with --registration, or copy "
            "those of another study and bind them to your suites"
        )
    found = [load(path, has_claim_file) for path in sorted(folder.glob("*.toml"))]
    if not found:
        raise RegistrationError(f"{folder} holds no registration (*.toml)")
    ids = {registered.content.id for registered in found}
    for registered in found:
        parent = registered.content.parent
        if parent is not None and (parent not in ids or parent == registered.content.id):
            raise RegistrationError(f"{registered.path}: parent '{parent}' is not in this folder")
    _refuse_repeats("claim", ((claim, item) for item in found for claim in item.content.claim))
    _refuse_repeats("suite", ((suite, item) for item in found for suite in item.content.suites))
    _check_scopes(found)
    return found


def load(path: Path, has_claim_file: Callable[[str], bool]) -> Registered:
    """Read and check one registration; `has_claim_file` says whether a claim id has its file."""
    raw = _bytes_of(path)
    try:
        table = tomllib.loads(raw.decode())
    except (ValueError, RecursionError) as error:  # a number of 5,000 digits is a ValueError
        raise RegistrationError(f"{path} cannot be read: {error}") from None
    try:
        content = msgspec.convert(table, Registration)
    except (msgspec.ValidationError, RecursionError) as error:
        raise RegistrationError(f"{path}: {_explained(table, error)}") from None
    if content.id != path.stem:
        raise RegistrationError(f"{path}: the id '{content.id}' must be the file's name")
    _check_thresholds(content, path)
    registered = Registered(content, path, hashlib.sha256(raw).hexdigest())
    for claim_id in content.claim:
        _check_claim(registered, claim_id, has_claim_file)
    for words, question in registered.questions():
        _check_repeats(question, f"{path}: {words}")
        _check_names(question, f"{path}: {words}")
        _check_reachable(question, f"{path}: {words}")
    return registered


def _bytes_of(path: Path) -> bytes:
    """The file, if it is one and its size and lines are those of a registration."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise RegistrationError(f"{path} is not a regular file")
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise RegistrationError(f"{path} cannot be read: {error.strerror}") from None
    if len(raw) > MAX_BYTES:
        raise RegistrationError(f"{path} is longer than {MAX_BYTES} bytes")
    for number, line in enumerate(raw.split(b"\n"), start=1):
        if line.count(b".") > MAX_DOTS:
            raise RegistrationError(f"{path}:{number} has more than {MAX_DOTS} dots")
    return raw


def _explained(table: dict[str, Any], error: Exception) -> str:
    """What does not fit, naming the claim; msgspec names only the keys inside it."""
    claims = table.get("claim")
    for claim_id, claim in claims.items() if isinstance(claims, dict) else ():
        try:
            msgspec.convert(claim, Claim)
        except (msgspec.ValidationError, RecursionError) as inner:
            return f"claim {claim_id}: {_in_words(inner)}"
    return _in_words(error)


def _in_words(error: Exception) -> str:
    text = str(error).replace("Object missing required field", "the table lacks the key")
    return text.replace("Object contains unknown field", "the table has the unknown key")


def _check_thresholds(content: Registration, path: Path) -> None:
    """Generations need thresholds and a description, attention cells neither."""
    for claim_id, claim in content.claim.items():
        if claim.population is not None and content.details is None:
            raise RegistrationError(f"{path}: claim {claim_id} has a population, so [details] is needed")
    if content.details is not None and OTHERWISE not in content.success:
        raise RegistrationError(f"{path}: [success] needs '{OTHERWISE}', the threshold of all other scores")


def _check_claim(registered: Registered, claim_id: str, has_claim_file: Callable[[str], bool]) -> None:
    where = f"{registered.path}: claim {claim_id}"
    claim = registered.content.claim[claim_id]
    if not _CLAIM_ID.fullmatch(claim_id):
        raise RegistrationError(f"{where}: an id is a capital letter, then letters, digits and _")
    if not has_claim_file(claim_id):
        raise RegistrationError(f"{where} has no file analysis/claims/{claim_id.lower()}.py")
    if claim.population is None and claim.cells is None:
        raise RegistrationError(f"{where} has neither a population nor cells: give it one of them")
    if claim.population is not None and claim.cells is not None:
        raise RegistrationError(f"{where} has both a population and cells: leave one of them away")
    for words, variant in claim.variants:
        _check_variant(claim, variant, f"{where}, {words}")
    for name, quantity in claim.quantities.items():
        _check_quantity(name, quantity, where)


def _check_variant(claim: Claim, variant: Variant, where: str) -> None:
    """A variant changes what its claim has."""
    if claim.population is None and variant.population:
        raise RegistrationError(f"{where} changes the population of a claim about cells")
    if claim.cells is None and variant.cells:
        raise RegistrationError(f"{where} changes the cells of a claim about a population")
    if claim.population is None and variant.success:
        raise RegistrationError(f"{where} changes a threshold of success, which no cell has")


def _check_quantity(name: str, quantity: Quantity, where: str) -> None:
    low, high = quantity.range
    if not _NAME.fullmatch(name) or name in ("and", "or", "not"):
        raise RegistrationError(f"{where}: '{name}' is not a name of small letters, digits and _")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise RegistrationError(f"{where}: the range of '{name}' must be two finite, rising numbers")


def _check_repeats(question: Question, where: str) -> None:
    """A list of names or numbers names each once."""
    for noun in ("population", "cells"):
        rows = getattr(question, noun)
        axes = [] if rows is None else [(axis, getattr(rows, axis)) for axis in rows.__struct_fields__]
        for axis, values in axes:
            if isinstance(values, list) and (twice := [one for one in values if values.count(one) > 1]):
                raise RegistrationError(f"{where}: {axis} of the {noun} lists '{twice[0]}' more than once")


def _check_names(question: Question, where: str) -> None:
    """Every name is declared, every declared quantity is used, no count is asked for its interval."""
    conditions = [question.kill] + ([question.support] if question.support else [])
    used = set[str]().union(*(condition.names for condition in conditions))
    declared = set(question.quantities)
    if used - declared:
        raise RegistrationError(f"{where}: {_quoted(used - declared)} is used but not declared")
    if declared - used:
        raise RegistrationError(f"{where}: {_quoted(declared - used)} is declared but decides nothing")
    for name, field in itertools.chain(*(condition.fields for condition in conditions)):
        if field in ("lo", "hi") and question.quantities[name].count:
            raise RegistrationError(f"{where}: '{name}' is a count, without .{field}")


def _check_reachable(question: Question, where: str) -> None:
    """Some admissible numbers kill, some do not, and some let the support stand without a kill.

    Tries every combination of the numbers at which a comparison can turn, with lo <= value <= hi: the
    ends of the declared ranges, the constants, the solutions of linear comparisons of one or two fields,
    and a point between each two neighbours.
    """
    killed, spared, supported = False, False, question.support is None
    for quantities in _trials(question, where):
        if question.kill.holds(quantities):
            killed = True
        else:
            spared = True
            supported = supported or bool(question.support and question.support.holds(quantities))
        if killed and spared and supported:
            return
    if not killed:
        raise RegistrationError(f"{where}: no number can fulfil the kill condition '{question.kill.text}'")
    if not spared:
        raise RegistrationError(f"{where}: every number fulfils the kill condition '{question.kill.text}'")
    raise RegistrationError(f"{where}: the support can never hold unless the claim is killed")


def _trials(question: Question, where: str) -> Iterator[dict[str, SimpleNamespace]]:
    conditions = [question.kill] + ([question.support] if question.support else [])
    fields = set(itertools.chain(*(condition.fields for condition in conditions)))
    constants = set(itertools.chain(*(condition.constants for condition in conditions)))
    ends = set(itertools.chain(*(quantity.range for quantity in question.quantities.values())))
    borders = list(itertools.chain(*(condition.borders for condition in conditions)))
    turns = {field: constants | ends | _solutions(field, borders, constants | ends) for field in fields}
    choices = [
        [(name, choice) for choice in _choices(quantity, name, turns)]
        for name, quantity in question.quantities.items()
    ]
    if math.prod(map(len, choices)) > MAX_TRIALS:
        raise RegistrationError(f"{where}: the conditions read too many quantities to be checked")
    for combination in itertools.product(*choices):
        yield dict(combination)


def _solutions(field: Field, borders: list[Border], others: set[float]) -> set[float]:
    """Where a linear comparison turns in this field, the one other field in it taking each other number."""
    found: set[float | None] = set()
    for border in borders:
        rest = [name for name in border.factors if name != field]
        if field in border.factors and not rest:
            found.add(border.solved_for(field, {}))
        elif field in border.factors and len(rest) == 1:
            found |= {border.solved_for(field, {rest[0]: number}) for number in others}
    return {number for number in found if number is not None}


def _choices(quantity: Quantity, name: str, turns: dict[Field, set[float]]) -> list[SimpleNamespace]:
    low, high = quantity.range
    read = [field for field in ("lo", "value", "hi") if (name, field) in turns]
    inside = sorted({turn for field in read for turn in turns[name, field] if low <= turn <= high})
    between = [(a + b) / 2 for a, b in itertools.pairwise(inside)]
    points = sorted({*inside, *between})
    if quantity.count:
        points = sorted({whole for point in points for whole in (math.floor(point), math.ceil(point))})
    counts = sorted(_counts(turns[name, "n"])) if (name, "n") in turns else [1]
    return [
        SimpleNamespace(**{**dict.fromkeys(FIELDS), **dict(zip(read, rising, strict=True)), "n": n})
        for rising in itertools.combinations_with_replacement(points, len(read))
        for n in counts
    ]


def _counts(turns: set[float]) -> set[int]:
    """Numbers of rows at and beside each turn; turns below 1 are shares and the like."""
    beside = {math.floor(turn) + step for turn in turns if turn >= 1 for step in (-1, 0, 1)}
    return {0, 10**9} | {count for count in beside if 0 <= count <= 10**9}


def _check_scopes(found: list[Registered]) -> None:
    """What decides or describes lies in suites that its registration or an ancestor keys.

    Readings may look further.
    """
    by_id = {registered.content.id: registered for registered in found}
    for registered in found:
        allowed: set[str] = set()
        seen: set[str] = set()
        ancestor: str | None = registered.content.id
        while ancestor is not None and ancestor not in seen:
            seen.add(ancestor)
            allowed |= set(by_id[ancestor].content.suites)
            ancestor = by_id[ancestor].content.parent
        details = registered.content.details
        if details is not None and details.control is not None and details.control not in allowed:
            raise RegistrationError(
                f"{registered.path}: [details] control '{details.control}' is no suite that this "
                "registration or its parent lists under suites"
            )
        for claim_id, claim in registered.content.claim.items():
            foreign = _suites(claim) - allowed
            if foreign:
                raise RegistrationError(
                    f"{registered.path}: claim {claim_id} decides on {_quoted(foreign)}, "
                    "which neither this registration nor its parent lists under suites"
                )


def _suites(claim: Claim) -> set[str]:
    return {suite for rows in (claim.population, claim.cells) if rows is not None for suite in rows.suites}


def _refuse_repeats(noun: str, owners: Iterable[tuple[str, Registered]]) -> None:
    seen: dict[str, Registered] = {}
    for name, registered in owners:
        if name in seen:
            raise RegistrationError(f"{noun} {name} stands in {seen[name].path} and {registered.path}")
        seen[name] = registered


def _changed(rows: R | None, change: dict[str, Any], where: str) -> R | None:
    if rows is None:
        return None
    table = {key: value for key, value in msgspec.to_builtins(rows).items() if value is not None}
    try:
        return msgspec.convert({**table, **change}, type(rows))
    except msgspec.ValidationError as error:
        raise RegistrationError(f"{where}: {_in_words(error)}") from None


def _parsed(text: str, where: str) -> Condition:
    try:
        return parse(text)
    except ConditionError as error:
        raise RegistrationError(f"{where} '{text}': {error}") from None


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
