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
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvexp.documents.condition import Condition, ConditionError, parse
from kvexp.documents.locate import Keys
from kvexp.documents.reachable import Purse, TooMany, fault
from kvexp.documents.schema import (
    OTHERWISE,
    Cells,
    Claim,
    Details,
    Label,
    Population,
    Quantity,
    Registration,
    Statistics,
    Strict,
    Variant,
)
from kvexp.documents.source import RegistrationError, Source, check_filled, read

__all__ = [
    "OTHERWISE",
    "Asked",
    "Cells",
    "Claim",
    "Details",
    "Label",
    "Population",
    "Quantity",
    "Question",
    "Registered",
    "Registration",
    "RegistrationError",
    "Statistics",
    "Variant",
    "load",
    "load_folder",
    "seed",
]

MAX_QUESTIONS = 400  # claims and variants of one file
SHOWN = 80  # characters of an expression in a message
_ID = re.compile(r"[A-Z][A-Za-z0-9_]{0,39}")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
R = TypeVar("R", bound=Strict)


@dataclass(frozen=True)
class Asked:
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
    kill: Condition
    support: Condition | None
    statistics: Statistics
    seed: int  # of the bootstrap; the variants of a claim share it


@dataclass(frozen=True)
class Registered:
    """A checked registration and the text that it was read from."""

    content: Registration
    source: Source

    @property
    def path(self) -> Path:
        """The file."""
        return self.source.path

    @property
    def digest(self) -> str:
        """The sha256 of its bytes."""
        return self.source.digest

    def at(self, asked: Asked, *keys: str | int) -> str:
        """`path:LINE: claim R1`, of a key of the question or else of its table; how messages begin."""
        return f"{self.source.at(*asked.keys, *keys)}: {asked.words}"

    def question(self, claim_id: str, variant: Variant | None = None) -> Question:
        """The claim, or the claim as the variant changes it."""
        return self._question(Asked(claim_id), variant or Variant())

    def questions(self) -> Iterator[tuple[str, Question]]:
        """Every claim and every variant, each with the words that name it in messages."""
        return ((asked.words, question) for asked, question in self.asked())

    def asked(self) -> Iterator[tuple[Asked, Question]]:
        """Every claim and every variant, each with its place in the file."""
        for asked, variant in self.variants():
            yield asked, self._question(asked, variant)

    def variants(self) -> Iterator[tuple[Asked, Variant]]:
        """Every question as its file writes it; a claim changes nothing about itself."""
        for claim_id, claim in self.content.claim.items():
            yield Asked(claim_id), Variant()
            for kind, name, variant in claim.variants:
                yield Asked(claim_id, kind, name), variant

    def _question(self, asked: Asked, change: Variant) -> Question:
        claim = self.content.claim[asked.claim_id]
        kill = claim.kill if change.kill is None else change.kill
        support = claim.support if change.support is None else change.support
        return Question(
            claim_id=asked.claim_id,
            population=self._changed(asked, "population", claim.population, change.population),
            cells=self._changed(asked, "cells", claim.cells, change.cells),
            success={**self.content.success, **change.success},
            parameters={**claim.parameters, **change.parameters},
            quantities=claim.quantities,
            kill=self._parsed(asked, "kill", kill),
            support=None if support is None else self._parsed(asked, "support", support),
            statistics=self.content.statistics,
            seed=seed(self.digest, asked.claim_id),
        )

    def _changed(self, asked: Asked, noun: str, rows: R | None, change: dict[str, Any]) -> R | None:
        if rows is None or not change:
            return rows
        table = {key: value for key, value in msgspec.to_builtins(rows).items() if value is not None}
        try:
            return msgspec.convert({**table, **change}, type(rows))
        except msgspec.ValidationError as error:
            where = self.at(Asked(asked.claim_id), *asked.keys[2:], noun)
            raise RegistrationError(f"{where}: a variant's {noun}: {_in_words(error)}") from None

    def _parsed(self, asked: Asked, noun: str, text: str) -> Condition:
        try:
            return parse(text)
        except ConditionError as error:
            shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
            shown = " ".join(shown.split())
            raise RegistrationError(f"{self.at(asked, noun)}: {noun} '{shown}': {error}") from None


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
    found = load_files(sorted(folder.glob("*.toml")), has_claim_file)
    if not found:
        raise RegistrationError(f"{folder} holds no registration (*.toml)")
    return found


def load_files(paths: Iterable[Path], has_claim_file: Callable[[str], bool]) -> list[Registered]:
    """The registrations of a study, wherever they lie; claim ids and suites belong to one file each."""
    found = [load(path, has_claim_file) for path in paths]
    by_id = {registered.content.id: registered for registered in found}
    for registered in found:
        _check_parents(registered, by_id)
    _refuse_repeats("claim", found, lambda one: [("claim", claim) for claim in one.content.claim])
    _refuse_repeats("suite", found, lambda one: [("suites", n) for n in range(len(one.content.suites))])
    for registered in found:
        _check_scope(registered, by_id)
    return found


def load(path: Path, has_claim_file: Callable[[str], bool]) -> Registered:
    """Read and check one registration; `has_claim_file` says whether a claim id has its file.

    Raises RegistrationError with path, line and reason.
    """
    source = read(path)
    check_filled(source)
    content = _converted(source)
    if content.id != path.stem:
        raise RegistrationError(f"{source.at('id')}: the id '{content.id}' must be the file's name")
    if not _ID.fullmatch(content.id):
        raise RegistrationError(f"{source.at('id')}: an id is a capital letter, then letters, digits and _")
    registered = Registered(content, source)
    if sum(1 for _ in registered.variants()) > MAX_QUESTIONS:
        raise RegistrationError(f"{path} has more than {MAX_QUESTIONS} claims, readings and sensitivities")
    _check_thresholds(registered)
    for claim_id in content.claim:
        _check_claim(registered, claim_id, has_claim_file)
    _check_details_repeats(registered)
    purse, seen = Purse(), set[tuple[str, str, str | None]]()
    for asked, question in registered.asked():
        _check_repeats(registered, asked, question)
        _check_names(registered, asked, question)
        texts = (asked.claim_id, question.kill.text, question.support.text if question.support else None)
        if texts not in seen:  # most variants share the conditions of their claim
            seen.add(texts)
            _check_reachable(registered, asked, question, purse)
    return registered


def _converted(source: Source) -> Registration:
    try:
        return msgspec.convert(source.table, Registration)
    except msgspec.ValidationError as error:
        keys = _keys_of(source.table, str(error))
        claim = f": claim {keys[1]}" if keys[:1] == ("claim",) and len(keys) > 1 else ""
        raise RegistrationError(f"{source.at(*keys)}{claim}: {_in_words(error)}") from None


def _keys_of(table: dict[str, Any], said: str) -> Keys:
    """The keys that a validation error is about, from its path, for instance `$.claim[...].population`."""
    _, _, path = said.rpartition(" - at `$")
    keys: list[str | int] = []
    for name, number, any_key in re.findall(r"\.(\w+)|\[(\d+)\]|\[(\.\.\.)\]", path.rstrip("`")):
        if any_key:
            keys.append(_key_at_fault(table, keys, said))
        else:
            keys.append(int(number) if number else name)
    if unknown := re.match(r"Object contains unknown field `(.*?)`", said):
        keys.append(unknown[1])
    return tuple(keys)


def _key_at_fault(table: dict[str, Any], keys: list[str | int], said: str) -> str:
    """Which entry of a table with free keys it is: the one that alone gives the same error."""
    inner: Any = table
    for key in keys:
        inner = inner[key]
    for key, value in inner.items():
        try:
            msgspec.convert(_with(table, keys, {key: value}), Registration)
        except msgspec.ValidationError as error:
            if str(error) == said:
                return str(key)
    return str(next(iter(inner), ""))


def _with(table: Any, keys: list[str | int], value: Any) -> Any:
    """The table with another value at these keys."""
    if not keys:
        return value
    return {**table, keys[0]: _with(table[keys[0]], keys[1:], value)}


def _in_words(error: Exception) -> str:
    text = str(error).replace("Object missing required field", "the table lacks the key")
    text = text.replace("Object contains unknown field", "the table has the unknown key")
    text = text.replace(r"Expected `str` matching regex '\\S'", "the text is empty")
    name = "a name has letters, digits and . _ = - and begins with a letter or digit"
    return re.sub(r"Expected `str` matching regex '.*?'(?= - at|$)", name, text)


def _check_thresholds(registered: Registered) -> None:
    """Generations need thresholds and a description, attention cells neither."""
    content, source = registered.content, registered.source
    for claim_id, claim in content.claim.items():
        if claim.population is not None and content.details is None:
            where = registered.at(Asked(claim_id), "population")
            raise RegistrationError(f"{where} has a population, so [details] is needed")
    if content.details is not None and OTHERWISE not in content.success:
        where = source.at("success" if content.success else "details")
        raise RegistrationError(f"{where}: [success] needs '{OTHERWISE}', the threshold of all other scores")


def _check_claim(registered: Registered, claim_id: str, has_claim_file: Callable[[str], bool]) -> None:
    where = registered.at(Asked(claim_id))
    claim = registered.content.claim[claim_id]
    if not _ID.fullmatch(claim_id):
        raise RegistrationError(f"{where}: an id is a capital letter, then letters, digits and _")
    if not has_claim_file(claim_id):
        raise RegistrationError(f"{where} has no file analysis/claims/{claim_id.lower()}.py")
    if claim.population is None and claim.cells is None:
        raise RegistrationError(f"{where} has neither a population nor cells: give it one of them")
    if claim.population is not None and claim.cells is not None:
        raise RegistrationError(f"{where} has both a population and cells: leave one of them away")
    for kind, name, variant in claim.variants:
        _check_variant(claim, variant, registered.at(Asked(claim_id, kind, name)))
    for name, quantity in claim.quantities.items():
        _check_quantity(name, quantity, registered.at(Asked(claim_id), "quantities", name))


def _check_variant(claim: Claim, variant: Variant, where: str) -> None:
    """A variant changes what its claim has."""
    if claim.population is None and variant.population:
        raise RegistrationError(f"{where} changes the population of a claim about cells")
    if claim.cells is None and variant.cells:
        raise RegistrationError(f"{where} changes the cells of a claim about a population")
    if claim.population is None and variant.success:
        raise RegistrationError(f"{where} changes a threshold of success, which no cell has")
    if variant == Variant():
        raise RegistrationError(f"{where} changes nothing")


def _check_quantity(name: str, quantity: Quantity, where: str) -> None:
    low, high = quantity.range
    if not _NAME.fullmatch(name) or name in ("and", "or", "not"):
        raise RegistrationError(f"{where}: '{name}' is not a name of small letters, digits and _")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise RegistrationError(f"{where}: the range of '{name}' must be two finite, rising numbers")
    if quantity.count and not (low.is_integer() and high.is_integer()):
        raise RegistrationError(f"{where}: '{name}' is a count, so its range must be two whole numbers")


def _check_repeats(registered: Registered, asked: Asked, question: Question) -> None:
    """A list of names or numbers names each once."""
    for noun in ("population", "cells"):
        rows = getattr(question, noun)
        for axis in rows.__struct_fields__ if rows is not None else ():
            if twice := _twice(getattr(rows, axis)):
                where = registered.at(asked, noun, axis)
                raise RegistrationError(f"{where}: {axis} of the {noun} lists {twice} more than once")


def _check_details_repeats(registered: Registered) -> None:
    details = registered.content.details
    for key in ("tasks", "signals") if details is not None else ():
        if twice := _twice(getattr(details, key)):
            where = registered.source.at("details", key)
            raise RegistrationError(f"{where}: {key} of [details] lists {twice} more than once")


def _twice(values: Any) -> str:
    """The first that a list has more than once, quoted; empty if there is none or it is no list."""
    if not isinstance(values, list) or len(set(values)) == len(values):
        return ""
    return next(f"'{one}'" for one in values if values.count(one) > 1)


def _check_names(registered: Registered, asked: Asked, question: Question) -> None:
    """Every name is declared, every declared quantity is used, no count is asked for its interval."""
    conditions = [("kill", question.kill)] + ([("support", question.support)] if question.support else [])
    declared, used = set(question.quantities), set[str]()
    for noun, condition in conditions:
        used |= condition.names
        if condition.names - declared:
            words = f"{_quoted(condition.names - declared)} is used but not declared"
            raise RegistrationError(f"{registered.at(asked, noun)}: {words}")
        for name, field in condition.fields:
            if field in ("lo", "hi") and question.quantities[name].count:
                raise RegistrationError(
                    f"{registered.at(asked, noun)}: '{name}' is a count, without .{field}"
                )
    if declared - used:
        where = registered.at(Asked(asked.claim_id), "quantities", min(declared - used))
        raise RegistrationError(f"{where}: {_quoted(declared - used)} is declared but decides nothing")


def _check_reachable(registered: Registered, asked: Asked, question: Question, purse: Purse) -> None:
    """Some admissible numbers kill, some do not, and some let the support stand without a kill."""
    try:
        found = fault(question.kill, question.support, question.quantities, purse)
    except TooMany:
        found = "the conditions read too many quantities to be checked"
    if found:
        noun = "support" if found.startswith("the support") else "kill"
        raise RegistrationError(f"{registered.at(asked, noun)}: {found}")


def _check_parents(registered: Registered, by_id: dict[str, Registered]) -> None:
    """Parents are in the folder, and lead to a registration that has none."""
    source, seen, parent = registered.source, {registered.content.id}, registered.content.parent
    while parent is not None:
        if parent not in by_id or registered.content.parent == registered.content.id:
            raise RegistrationError(f"{source.at('parent')}: parent '{parent}' is not in this folder")
        if parent in seen:
            raise RegistrationError(f"{source.at('parent')}: its parents go round in a circle")
        seen.add(parent)
        parent = by_id[parent].content.parent


def _check_scope(registered: Registered, by_id: dict[str, Registered]) -> None:
    """What decides or describes lies in suites that the registration or an ancestor keys.

    Readings may look further.
    """
    line = list(_lineage(registered, by_id))
    allowed = {suite for one in line for suite in one.content.suites}
    for claim_id, claim in registered.content.claim.items():
        foreign = _suites(claim) - allowed
        if foreign:
            noun = "cells" if claim.population is None else "population"
            raise RegistrationError(
                f"{registered.at(Asked(claim_id), noun, 'suites')} decides on {_quoted(foreign)}, "
                "which neither this registration nor its parent lists under suites"
            )
    _check_control(registered, line, allowed)


def _check_control(registered: Registered, line: list[Registered], allowed: set[str]) -> None:
    control = registered.content.details.control if registered.content.details else None
    if control is None:
        return
    where = f"{registered.source.at('details', 'control')}: [details] control '{control}'"
    if control not in allowed:
        raise RegistrationError(
            f"{where} is no suite that this registration or its parent lists under suites"
        )
    for one in line:
        for claim_id, claim in one.content.claim.items():
            if control in _suites(claim):
                raise RegistrationError(
                    f"{where} is a suite that claim {claim_id} decides on: name the one that asks the same "
                    "examples without their context, or leave control away"
                )


def _lineage(registered: Registered, by_id: dict[str, Registered]) -> Iterator[Registered]:
    """The registration, its parent, and so on."""
    one: Registered | None = registered
    while one is not None:
        yield one
        one = by_id[one.content.parent] if one.content.parent is not None else None


def _suites(claim: Claim) -> set[str]:
    return {suite for rows in (claim.population, claim.cells) if rows is not None for suite in rows.suites}


def _refuse_repeats(
    noun: str, found: list[Registered], owned: Callable[[Registered], Iterable[tuple[str, str | int]]]
) -> None:
    """Case is no difference: R1 and r1 would share a file."""
    seen: dict[str, str] = {}
    for registered in found:
        for table, key in owned(registered):
            name = key if isinstance(key, str) else registered.content.suites[key]
            where = registered.source.at(table, key)
            if name.lower() in seen:
                raise RegistrationError(f"{where}: {noun} {name} stands in {seen[name.lower()]} too")
            seen[name.lower()] = where


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))
