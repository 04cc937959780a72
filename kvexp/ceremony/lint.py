"""What a registration must satisfy before it is sealed, beyond what makes it one; messages name the line.

Nobody may have left a field open, every name that is declared must decide something, and two witness rows
must show that each verdict can come about: one that would kill the claim, and one that would spare it.
"""

import math
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import msgspec
from msgspec.structs import asdict, replace

from kvexp.ceremony.locate import line_of
from kvexp.documents.condition import Expression
from kvexp.documents.registration import (
    Question,
    QuestionName,
    Registered,
    lineage,
    load_folder,
    quoted,
    suites_of,
)
from kvexp.documents.schema import Claim, Numbers, Quantity, Registration, Row, Variant, Witness
from kvexp.documents.source import Keys, RegistrationError, Source, Unfit, dotted, read, walk

FILL_IN = "FILL IN"  # what `kvexp new-study` writes where only the author can speak
_NAME = re.compile(r"[a-z][a-z0-9_]*")


def registrations(folder: Path, claims: Path) -> list[Registered]:
    """Every registration of a study, fit to be sealed; `claims` is the folder of the claims' files.

    Raises RegistrationError with path, line and reason.
    """
    with placed():
        for path in sorted(folder.glob("*.toml")):
            _check_filled(read(path))
        found = load_folder(folder, claims)
        by_id = {one.content.id: one for one in found}
        for one in found:
            check(one)
            _check_control(one, list(lineage(one, by_id)))
    return found


@contextmanager
def placed() -> Iterator[None]:
    """Messages about a key of a registration name its line."""
    try:
        yield
    except Unfit as error:
        cause = error.__cause__
        if isinstance(cause, msgspec.ValidationError):
            error = _of_schema(error, str(cause))
        raise RegistrationError(error.sentence(line_of)) from None


def check(one: Registered) -> None:
    """What can be said of a registration on its own."""
    for claim_id, claim in one.content.claim.items():
        for kind, called, variant in claim.variants:
            _check_variant(one, QuestionName(claim_id, kind, called), claim, variant)
        for called, quantity in claim.quantities.items():
            _check_quantity(one, claim_id, called, quantity)
    _check_details(one)
    for (name, question), (_, variant) in zip(one.questions(), one.variants(), strict=True):
        _check_repeats(one, name, question)
        _check_names(one, name, question)
        _check_witness(one, name, question, variant)


# Where the schema's errors stand ------------------------------------------------------------------


def _of_schema(error: Unfit, said: str) -> Unfit:
    """The error with the key that it is about, and the claim."""
    source = error.where.source
    keys = _keys_of(source.table, said)
    claim = f"claim {keys[1]}: " if keys[:1] == ("claim",) and len(keys) > 1 else ""
    return Unfit(source.at(*keys), f"{claim}{error.words}")


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


# Fields, names and lists --------------------------------------------------------------------------


def _check_filled(source: Source) -> None:
    """Refuse a file whose author has not said yet what only an author can say."""
    for keys, value in walk(source):
        if isinstance(value, str) and value.startswith(FILL_IN):
            rest = value.removeprefix(FILL_IN).lstrip(": ")
            words = f"{dotted(keys)} is not filled in; it wants {rest[:200] or 'your words'}"
            raise Unfit(source.at(*keys), words)


def _check_variant(one: Registered, name: QuestionName, claim: Claim, variant: Variant) -> None:
    """A variant changes what its claim has."""
    where = one.at(name)
    if claim.population is None and variant.population:
        raise Unfit(where, f"{name.words} changes the population of a claim about cells")
    if claim.cells is None and variant.cells:
        raise Unfit(where, f"{name.words} changes the cells of a claim about a population")
    if claim.population is None and variant.success:
        raise Unfit(where, f"{name.words} changes a threshold of success, which no cell has")
    if replace(variant, witness=None) == Variant():
        raise Unfit(where, f"{name.words} changes nothing")


def _check_quantity(one: Registered, claim_id: str, name: str, quantity: Quantity) -> None:
    where, (low, high) = one.at(QuestionName(claim_id), "quantities", name), quantity.range
    if not _NAME.fullmatch(name) or name in ("and", "or", "not"):
        raise Unfit(where, f"claim {claim_id}: '{name}' is not a name of small letters, digits and _")
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise Unfit(where, f"claim {claim_id}: the range of '{name}' must be two finite, rising numbers")
    if quantity.count and not (low.is_integer() and high.is_integer()):
        words = f"'{name}' is a count, so its range must be two whole numbers"
        raise Unfit(where, f"claim {claim_id}: {words}")


def _check_details(one: Registered) -> None:
    details = one.content.details
    for key in ("tasks", "signals") if details is not None else ():
        if twice := _twice(getattr(details, key)):
            raise Unfit(one.source.at("details", key), f"{key} of [details] lists {twice} more than once")


def _check_repeats(one: Registered, name: QuestionName, question: Question) -> None:
    """A list of names or numbers names each once."""
    for noun in ("population", "cells"):
        rows = getattr(question, noun)
        for axis in rows.__struct_fields__ if rows is not None else ():
            if twice := _twice(getattr(rows, axis)):
                words = f"{name.words}: {axis} of the {noun} lists {twice} more than once"
                raise Unfit(one.at(name, noun, axis), words)


def _twice(values: Any) -> str:
    """The first that a list has more than once, quoted; empty if there is none or it is no list."""
    if not isinstance(values, list) or len(set(values)) == len(values):
        return ""
    return next(f"'{one}'" for one in values if values.count(one) > 1)


def _check_names(one: Registered, name: QuestionName, question: Question) -> None:
    """Every declared quantity is used, no count is asked for its interval."""
    for noun, condition in question.conditions:
        for quantity, field in condition.fields:
            if field in ("lo", "hi") and question.quantities[quantity].count:
                raise Unfit(one.at(name, noun), f"{name.words}: '{quantity}' is a count, without .{field}")
    used = {quantity for _, condition in question.conditions for quantity in condition.names}
    if unused := question.quantities.keys() - used:
        where = one.at(QuestionName(name.claim_id), "quantities", min(unused))
        raise Unfit(where, f"{name.words}: {quoted(unused)} is declared but decides nothing")


def _check_control(one: Registered, line: list[Registered]) -> None:
    """The control is a suite of the registration or an ancestor, and no claim of theirs decides on it."""
    control = one.content.details.control if one.content.details else None
    if control is None:
        return
    where, words = one.source.at("details", "control"), f"[details] control '{control}'"
    if control not in {suite for other in line for suite in other.content.suites}:
        raise Unfit(where, f"{words} is no suite that this registration or its parent lists under suites")
    for other in line:
        for claim_id, claim in other.content.claim.items():
            if control in suites_of(claim):
                raise Unfit(
                    where,
                    f"{words} is a suite that claim {claim_id} decides on: name the one that asks the same "
                    "examples without their context, or leave control away",
                )


# Witnesses ----------------------------------------------------------------------------------------


def _check_witness(one: Registered, name: QuestionName, question: Question, variant: Variant) -> None:
    """Some numbers kill, some do not, and some let the support stand without a kill."""
    claim = one.content.claim[name.claim_id]
    witness = variant.witness or claim.witness
    if one.is_first_format:
        if witness is not None:
            raise Unfit(one.at(name, "witness"), f"{name.words}: {one.content.format} has no witnesses")
        return
    if witness is None:
        words = "[claim.{}.witness] must show numbers that kill it and numbers that spare it"
        raise Unfit(one.at(name), f"{name.words}: {words.format(name.claim_id)}")
    holder = name if variant.witness is not None else QuestionName(name.claim_id)
    _Rows(one, holder, name, question, witness).check()


class _Rows:
    """The witness rows of a question: its own, or those of its claim."""

    def __init__(
        self, one: Registered, holder: QuestionName, name: QuestionName, question: Question, witness: Witness
    ) -> None:
        self.one, self.holder, self.name = one, holder, name
        self.question, self.witness = question, witness

    def check(self) -> None:
        kill, support = self.question.kill, self.question.support
        self._ask("kill", self.witness.kill, "kill", kill, wanted=True)
        self._ask("spare", self.witness.spare, "kill", kill, wanted=False)
        if self.witness.support is not None:
            if support is None:
                self._refuse("support", "there is no support condition that it could show")
            self._ask("support", self.witness.support, "kill", kill, wanted=False)
        if support is not None:
            noun = "spare" if self.witness.support is None else "support"
            row = self.witness.spare if self.witness.support is None else self.witness.support
            self._ask(noun, row, "support", support, wanted=True)

    def _ask(self, noun: str, row: Row, what: str, condition: Expression, *, wanted: bool) -> None:
        """The row makes the condition true, or false, and leaves nothing open."""
        told = condition.holds(self._numbers(noun, row))
        if told is wanted:
            return
        if told is None:
            fields = ", ".join(".".join(field) for field in condition.fields)
            self._refuse(noun, f"does not decide the {what} condition '{condition.text}': it needs {fields}")
        words = "does not fulfil" if wanted else "fulfils"
        hint = "" if noun != "spare" or not wanted else "; give it a row of its own, witness.support"
        self._refuse(noun, f"{words} the {what} condition '{condition.text}'{hint}")

    def _numbers(self, noun: str, row: Row) -> Mapping[str, Any]:
        """The row as quantities, each within its range."""
        found = {}
        for name, given in row.items():
            if name not in self.question.quantities:
                self._refuse(noun, f"names '{name}', which is not declared")
            numbers = given if isinstance(given, Numbers) else Numbers(value=given)
            self._check_numbers(noun, name, numbers, self.question.quantities[name])
            found[name] = SimpleNamespace(**asdict(numbers))
        return found

    def _check_numbers(self, noun: str, name: str, numbers: Numbers, quantity: Quantity) -> None:
        low, high = quantity.range
        rising = [one for one in (numbers.lo, numbers.value, numbers.hi) if one is not None]
        if not all(low <= one <= high for one in rising):
            self._refuse(noun, f"puts {name} outside its range, {low:g} to {high:g}")
        if rising != sorted(rising):
            self._refuse(noun, f"needs lo <= value <= hi of {name}")
        if quantity.count and (len(rising) != 1 or not rising[0].is_integer()):
            self._refuse(noun, f"needs a whole number for {name}, without an interval")

    def _refuse(self, noun: str, words: str) -> NoReturn:
        where = self.one.at(self.holder, "witness", noun)
        raise Unfit(where, f"{self.name.words}: the witness row {noun} {words}")
