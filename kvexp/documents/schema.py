"""The form of a registration: tables of a TOML file as structs that refuse unknown keys."""

import datetime
import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec

from kvexp.documents.condition import State
from kvexp.records import Condition, Count, Id

Label = Literal["success", "own_failure", "induced_failure", "inherent_failure", "rescue", "attribution"]
Text = Annotated[str, msgspec.Meta(pattern=r"\S")]
Texts = Annotated[list[Text], msgspec.Meta(min_length=1)]
Names = Annotated[list[Id], msgspec.Meta(min_length=1)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
FIRST, SECOND = "kvexp-registration/1", "kvexp-registration/2"
ANY = (-math.inf, math.inf)
OTHERWISE = "otherwise"


class Strict(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table that refuses unknown keys."""


class Quantity(Strict, frozen=True, kw_only=True):
    """A number that the claim's file returns under this name."""

    meaning: Text
    # The claim's file says these two; in the first format the registration does.
    range: tuple[float, float] = ANY  # every value it can take, both ends included
    count: bool = False  # a whole number, without an interval


class Numbers(Strict, frozen=True, kw_only=True):
    """What a quantity might turn out to be."""

    value: float | None = None
    lo: float | None = None
    hi: float | None = None
    n: Count | None = None


Row = dict[str, float | Numbers]  # by quantity; a number alone is its value


class Witness(Strict, frozen=True, kw_only=True):
    """Rows of quantities that show that each verdict can come about. They are checked before a seal."""

    kill: Row  # these would kill the claim
    spare: Row  # these would not, and they let the support stand unless the next ones do
    support: Row | None = None


class Population(Strict, frozen=True, kw_only=True):
    """Rows of the grid. An absent axis is not restricted; every listed value must select a row."""

    suites: Names
    tasks: Names
    arms: Names
    label: Label  # what counts as positive, and which rows count at all
    models: Names | None = None
    conditions: Annotated[list[Condition], msgspec.Meta(min_length=1)] | None = None
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

    tasks: list[Id] = []  # the main tasks, without the needle anchor; none: the suites have no main ones
    arm: Id  # the arm that carries the certificate
    signals: Names
    control: Id | None = None  # suite that asks the same examples without their context


class Variant(Strict, frozen=True, kw_only=True):
    """What a reading or sensitivity changes; everything else is the claim's."""

    population: dict[str, Any] = {}
    cells: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    success: dict[str, Share] = {}
    kill: str | None = None
    support: str | None = None
    witness: Witness | None = None  # where the claim's does not show that these conditions can hold


class Claim(Strict, frozen=True, kw_only=True):
    """One claim, as written in its table."""

    statement: Text
    quantities: dict[str, Quantity]
    kill: str
    kill_prose: Text
    population: Population | None = None  # of a claim about generations
    cells: Cells | None = None  # of a claim about attention cells
    support: str | None = None
    witness: Witness | None = None
    labels: dict[State, str] = {}
    parameters: dict[str, Any] = {}  # numbers and names that the claim's file needs
    readings: dict[str, Variant] = {}
    sensitivity: dict[str, Variant] = {}

    @property
    def variants(self) -> Iterator[tuple[str, str, Variant]]:
        """Every variant with its kind, `readings` or `sensitivity`, and its name."""
        for kind in ("readings", "sensitivity"):
            for name, variant in getattr(self, kind).items():
                yield kind, name, variant


class Registration(Strict, frozen=True, kw_only=True):
    """One TOML file."""

    format: Literal["kvexp-registration/1", "kvexp-registration/2"]
    id: str
    title: Text
    authors: Texts
    existing_data: Literal[
        "before-creation",
        "before-observation",
        "before-access",
        "before-analysis",
        "after-analysis",
    ]
    existing_data_note: Text
    suites: Names  # suites that this registration keys; its claims may also read its parent's
    stopping: Text
    exclusions: Text
    missing: Text
    statistics: Statistics
    claim: dict[str, Claim]
    success: dict[str, Share] = {}  # score name -> threshold that the raw score must reach
    details: Details | None = None  # of the suites with generations
    parent: Id | None = None
    data_seen: list[Text] = []
    # The author's word; the stamp is the evidence.
    registered_at: Annotated[datetime.datetime, msgspec.Meta(tz=True)] | None = None
    # How many registrations of this question the author has made, this one included.
    registrations_made: Annotated[int, msgspec.Meta(ge=1, le=10_000)] | None = None
