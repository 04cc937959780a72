"""Registrations: TOML files that say what is claimed and what would prove it wrong.

A claim names the rows it is about (a population of generations, or attention cells), the numbers it needs
(quantities) and the conditions on them. A reading is the same claim under another population or label, a
sensitivity the same claim under another analysis choice. Both are printed with the claim and return no
verdict. A registration without claims says that its suites are explored.

`load` reads a registration strictly: unknown keys, and whatever would leave open what is decided, are
refused. What a registration must satisfy beyond that before it is sealed stands in `kvexp.ceremony.lint`.
"""

import ast
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from kvexp.documents.condition import ConditionError, Expression, parse
from kvexp.documents.manifest import read_bytes
from kvexp.documents.schema import (
    FIRST,
    OTHERWISE,
    Cells,
    Claim,
    Population,
    Quantity,
    Registration,
    Statistics,
    Strict,
    Variant,
)
from kvexp.documents.seals import unanchored
from kvexp.documents.source import RegistrationError, Source, Unfit, Where, read

MAX_QUESTIONS = 400  # claims and variants of one file
SHOWN = 80  # characters of an expression in a message
COUNTS = (0.0, 2.0**53)  # the range of a quantity that is declared as "count"
_ID = re.compile(r"[A-Z][A-Za-z0-9_]{0,39}")
R = TypeVar("R", bound=Strict)
Declared = dict[str, tuple[float, float] | Literal["count"]]  # of a claim's file: quantity -> its range


@dataclass(frozen=True)
class QuestionName:
    """Which question of a registration: a claim, or one of its variants."""

    claim_id: str
    kind: str = ""  # readings or sensitivity; empty: the claim itself
    name: str = ""

    @property
    def words(self) -> str:
        """How messages name it."""
        return f"claim {self.claim_id}" + (f", {self.kind} '{self.name}'" if self.kind else "")

    @property
    def keys(self) -> tuple[str, ...]:
        """Where it stands in the file."""
        own = (self.kind, self.name) if self.kind else ()
        return ("claim", self.claim_id, *own)


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
    kill: Expression
    support: Expression | None
    statistics: Statistics
    seed: int  # of the bootstrap; the variants of a claim share it

    @property
    def conditions(self) -> list[tuple[str, Expression]]:
        """What is asked of the quantities, by the key in the file."""
        return [("kill", self.kill)] + ([("support", self.support)] if self.support else [])


@dataclass(frozen=True)
class Registered:
    """A checked registration and the text that it was read from."""

    content: Registration  # with the range of every quantity, wherever that was declared
    source: Source  # the text
    # What the bootstrap's seeds are made from. The first format takes the sha256 of the file; the second the
    # anchor of its first seal, which the analysis puts here.
    basis: str

    @property
    def path(self) -> Path:
        """The file."""
        return self.source.path

    @property
    def digest(self) -> str:
        """The sha256 of its bytes."""
        return self.source.digest

    @property
    def is_first_format(self) -> bool:
        """Whether ranges and seeds come from the file itself."""
        return self.content.format == FIRST

    def seed(self, name: str) -> int:
        """The bootstrap seed of a claim, or of another name; chosen by nobody."""
        return int.from_bytes(hashlib.sha256(f"{self.basis} {name}".encode()).digest()[:16], "big")

    def at(self, name: QuestionName, *keys: str | int) -> Where:
        """Where a key of a question stands, or else its table."""
        return self.source.at(*name.keys, *keys)

    def question(self, claim_id: str, variant: Variant | None = None) -> Question:
        """The claim, or the claim as the variant changes it."""
        return self._question(QuestionName(claim_id), variant or Variant())

    def questions(self) -> Iterator[tuple[QuestionName, Question]]:
        """Every claim and every variant, each with its name."""
        for name, variant in self.variants():
            yield name, self._question(name, variant)

    def variants(self) -> Iterator[tuple[QuestionName, Variant]]:
        """Every question as its file writes it; a claim changes nothing about itself."""
        for claim_id, claim in self.content.claim.items():
            yield QuestionName(claim_id), Variant()
            for kind, name, variant in claim.variants:
                yield QuestionName(claim_id, kind, name), variant

    def _question(self, name: QuestionName, change: Variant) -> Question:
        claim = self.content.claim[name.claim_id]
        support = claim.support if change.support is None else change.support
        return Question(
            claim_id=name.claim_id,
            population=self._changed(name, "population", claim.population, change.population),
            cells=self._changed(name, "cells", claim.cells, change.cells),
            success={**self.content.success, **change.success},
            parameters={**claim.parameters, **change.parameters},
            quantities=claim.quantities,
            kill=self._parsed(name, "kill", claim.kill if change.kill is None else change.kill),
            support=None if support is None else self._parsed(name, "support", support),
            statistics=self.content.statistics,
            seed=self.seed(name.claim_id),
        )

    def _changed(self, name: QuestionName, noun: str, rows: R | None, change: dict[str, Any]) -> R | None:
        if rows is None or not change:
            return rows
        table = {key: value for key, value in msgspec.to_builtins(rows).items() if value is not None}
        try:
            return msgspec.convert({**table, **change}, type(rows))
        except msgspec.ValidationError as error:
            words = f"claim {name.claim_id}: a variant's {noun}: {in_words(error)}"
            raise Unfit(self.at(name, noun), words) from None

    def _parsed(self, name: QuestionName, noun: str, text: str) -> Expression:
        try:
            return parse(text)
        except ConditionError as error:
            shown = " ".join((text if len(text) <= SHOWN else f"{text[:SHOWN]}...").split())
            raise Unfit(self.at(name, noun), f"{name.words}: {noun} '{shown}': {error}") from None


def load_folder(folder: Path, claims: Path) -> list[Registered]:
    """Every registration of a study, sorted by id; `claims` is the folder of the claims' files."""
    if not folder.is_dir():
        raise RegistrationError(
            f"{folder} is not a folder of registrations (*.toml): name one with --registration, or copy "
            "those of another study and bind them to your suites"
        )
    found = load_files(sorted(folder.glob("*.toml")), claims)
    if not found:
        raise RegistrationError(f"{folder} holds no registration (*.toml)")
    return found


def load_files(paths: Iterable[Path], claims: Path) -> list[Registered]:
    """The registrations of a study, wherever they lie; claim ids and suites belong to one file each."""
    found = [load(path, claims) for path in paths]
    by_id = {one.content.id: one for one in found}
    for one in found:
        _check_parents(one, by_id)
    _refuse_repeats("claim", found, lambda one: [("claim", claim) for claim in one.content.claim])
    _refuse_repeats("suite", found, lambda one: [("suites", n) for n in range(len(one.content.suites))])
    for one in found:
        _check_scope(one, by_id)
    return found


def load(path: Path, claims: Path) -> Registered:
    """Read one registration. Raises RegistrationError with the file and the reason."""
    source = read(path)
    try:
        content = msgspec.convert(source.table, Registration)
    except msgspec.ValidationError as error:
        raise Unfit(source.at(), in_words(error)) from error
    if content.id != path.stem:
        raise Unfit(source.at("id"), f"the id '{content.id}' must be the file's name")
    if not _ID.fullmatch(content.id):
        raise Unfit(source.at("id"), "an id is a capital letter, then letters, digits and _")
    if sum(1 + len(list(claim.variants)) for claim in content.claim.values()) > MAX_QUESTIONS:
        raise RegistrationError(f"{path} has more than {MAX_QUESTIONS} claims, readings and sensitivities")
    if content.details is not None and OTHERWISE not in content.success:
        where = source.at("success" if content.success else "details")
        raise Unfit(where, f"[success] needs '{OTHERWISE}', the threshold of all other scores")
    checked = {name: _claim(source, content, name, claims) for name in content.claim}
    basis = source.digest if content.format == FIRST else unanchored("", content.id)
    found = Registered(replace(content, claim=checked), source, basis)
    for name, question in found.questions():
        _check_declared(found, name, question)
    return found


def in_words(error: Exception) -> str:
    """What the schema refuses, for people."""
    text = str(error).replace("Object missing required field", "the table lacks the key")
    text = text.replace("Object contains unknown field", "the table has the unknown key")
    text = text.replace(r"Expected `str` matching regex '\\S'", "the text is empty")
    name = "a name has letters, digits and . _ = - and begins with a letter or digit"
    return re.sub(r"Expected `str` matching regex '.*?'(?= - at|$)", name, text)


def _claim(source: Source, content: Registration, claim_id: str, claims: Path) -> Claim:
    """A claim with its file and the ranges of its quantities."""
    claim, where = content.claim[claim_id], source.at("claim", claim_id)
    if not _ID.fullmatch(claim_id):
        raise Unfit(where, f"claim {claim_id}: an id is a capital letter, then letters, digits and _")
    file = claims / f"{claim_id.lower()}.py"
    if not file.is_file():
        raise Unfit(where, f"claim {claim_id} has no file analysis/claims/{file.name}")
    if claim.population is not None and content.details is None:
        at = source.at("claim", claim_id, "population")
        raise Unfit(at, f"claim {claim_id} has a population, so [details] is needed")
    if claim.population is None and claim.cells is None:
        raise Unfit(where, f"claim {claim_id} has neither a population nor cells: give it one of them")
    if claim.population is not None and claim.cells is not None:
        raise Unfit(where, f"claim {claim_id} has both a population and cells: leave one of them away")
    declared = None if content.format == FIRST else _declared(file)
    quantities = {
        name: _quantity(source, claim_id, name, one, declared) for name, one in claim.quantities.items()
    }
    return replace(claim, quantities=quantities)


def _quantity(
    source: Source, claim_id: str, name: str, quantity: Quantity, declared: Declared | None
) -> Quantity:
    """A quantity with its range: its own in the first format, else that which the claim's file declares."""
    written = source.table["claim"][claim_id]["quantities"][name]
    where = source.at("claim", claim_id, "quantities", name)
    if declared is None:
        if "range" not in written:
            raise Unfit(where, f"claim {claim_id}: '{name}' lacks the key `range`")
        return quantity
    if "range" in written or "count" in written:
        words = f"the range of '{name}' is declared in the claim's file: leave it away here"
        raise Unfit(where, f"claim {claim_id}: {words}")
    if name not in declared:
        words = f"its file declares {', '.join(sorted(declared))}, and not '{name}'"
        raise Unfit(where, f"claim {claim_id}: {words}")
    its = declared[name]
    return replace(quantity, range=COUNTS, count=True) if its == "count" else replace(quantity, range=its)


def _declared(file: Path) -> Declared:
    """The constant QUANTITIES of a claim's file, which is read and not run."""
    try:
        for node in ast.parse(read_bytes(file)).body:
            match node:
                case ast.Assign(targets=[ast.Name(id="QUANTITIES")], value=value):
                    return msgspec.convert(ast.literal_eval(value), Declared)
    except (SyntaxError, ValueError, RecursionError, msgspec.ValidationError) as error:
        raise RegistrationError(f"{file}: QUANTITIES cannot be read ({error})") from None
    raise RegistrationError(
        f'{file} declares no ranges: add QUANTITIES = {{"name": (lowest, highest)}}, or "count" for a count'
    )


def _check_declared(one: Registered, name: QuestionName, question: Question) -> None:
    """A condition on a name that no file returns would never be decided."""
    for noun, condition in question.conditions:
        if unknown := condition.names - question.quantities.keys():
            raise Unfit(one.at(name, noun), f"{name.words}: {quoted(unknown)} is used but not declared")


def _check_parents(one: Registered, by_id: dict[str, Registered]) -> None:
    """Parents are in the folder, and lead to a registration that has none."""
    where, seen, parent = one.source.at("parent"), {one.content.id}, one.content.parent
    while parent is not None:
        if parent not in by_id or one.content.parent == one.content.id:
            raise Unfit(where, f"parent '{parent}' is not in this folder")
        if parent in seen:
            raise Unfit(where, "its parents go round in a circle")
        seen.add(parent)
        parent = by_id[parent].content.parent


def _check_scope(one: Registered, by_id: dict[str, Registered]) -> None:
    """What decides lies in suites that the registration or an ancestor keys. Readings may look further."""
    allowed = {suite for other in lineage(one, by_id) for suite in other.content.suites}
    for claim_id, claim in one.content.claim.items():
        foreign = suites_of(claim) - allowed
        if foreign:
            noun = "cells" if claim.population is None else "population"
            raise Unfit(
                one.at(QuestionName(claim_id), noun, "suites"),
                f"claim {claim_id} decides on {quoted(foreign)}, which neither this registration nor its "
                "parent lists under suites",
            )


def lineage(one: Registered, by_id: dict[str, Registered]) -> Iterator[Registered]:
    """The registration, its parent, and so on."""
    while True:
        yield one
        if one.content.parent is None:
            return
        one = by_id[one.content.parent]


def suites_of(claim: Claim) -> set[str]:
    """The suites that a claim is decided on."""
    return {suite for rows in (claim.population, claim.cells) if rows is not None for suite in rows.suites}


def _refuse_repeats(
    noun: str, found: list[Registered], owned: Callable[[Registered], Iterable[tuple[str, str | int]]]
) -> None:
    """Case is no difference: R1 and r1 would share a file."""
    seen: dict[str, Where] = {}
    for one in found:
        for table, key in owned(one):
            name = key if isinstance(key, str) else one.content.suites[key]
            where = one.source.at(table, key)
            if name.lower() in seen:
                raise Unfit(where, f"{noun} {name}", seen[name.lower()])
            seen[name.lower()] = where


def quoted(names: Iterable[str]) -> str:
    """Names in a message, sorted."""
    return ", ".join(f"'{name}'" for name in sorted(names))
