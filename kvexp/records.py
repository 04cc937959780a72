"""The log schema: every JSON object under `results/`, versioned by its `kind` tag.

A reader knows a kind or refuses it; unknown fields, NaN and infinities are refused on the way in and on
the way out. A null means "undefined" or "does not apply", never zero. Field meanings stand beside the
fields. Files of one study, below `results/<study>/`:

    grid.jsonl                                   Expected, one per generation that must exist,
                                                 ExpectedCells, one per prompt of an attention suite
    examples/<suite>.<model>.<task>.jsonl        Example
    <suite>/<shard_id>/attempt-NNN.json          Attempt, one per process start
    <suite>/<shard_id>/generations.jsonl         Generation | Failed, appended
    <suite>/<shard_id>/cells.jsonl               in an attention suite instead: Cell | World | Failed
    <suite>/<shard_id>/footer.json               Footer, last; no footer = not complete
"""

import itertools
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from kvexp.errors import IntegrityError

Condition = Literal["aware", "stream"]
# Identifiers become file names, so they cannot climb out of a folder or hide. ($ would let a final
# line break through, \Z does not.)
ID_PATTERN = r"\A[A-Za-z0-9][A-Za-z0-9._=-]*\Z"
ID_LENGTH = 200
Id = Annotated[str, msgspec.Meta(pattern=ID_PATTERN, max_length=ID_LENGTH)]
Digest = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
Probe = Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{128}\Z")]  # 512 bits
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]  # what a float64 column holds exactly
Seed = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
Radius = Annotated[float, msgspec.Meta(ge=0)]
Size = Annotated[float, msgspec.Meta(ge=0, le=1e30)]  # squares and sums of it stay within the floats
Fraction = Annotated[float, msgspec.Meta(gt=0, le=1)]
GENERATIONS, CELLS = "generations.jsonl", "cells.jsonl"  # the log of a shard, by what its rows are
FOOTER = "footer.json"
SIGNALS = ("certificate", "entropy", "evicted_mass", "margin", "output_logprob")


class Key(NamedTuple):
    """What makes a generation unique in a study. Null: the axis does not apply to the arm."""

    suite: str
    model: str
    task: str
    example_id: str
    arm: str
    condition: str | None
    budget: float | None
    seed: int | None


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """Base of all records."""


class Keyed(Record, frozen=True, kw_only=True):
    """A row of the grid or of a log that belongs to one generation."""

    suite: Id
    shard_id: Id
    model: Id
    task: Id
    example_id: Id
    arm: Id
    condition: Condition | None  # null: the full cache
    budget: Fraction | None  # share of the cached tokens that is kept; null: the full cache
    seed: Seed | None  # label of the Poisson draw; null: nothing is drawn

    @property
    def key(self) -> Key:
        return Key(
            self.suite,
            self.model,
            self.task,
            self.example_id,
            self.arm,
            self.condition,
            self.budget,
            self.seed,
        )


class Expected(Keyed, frozen=True, kw_only=True, tag="expected/1"):
    """One generation that a complete study must contain."""


class CellKey(NamedTuple):
    """What makes a cell unique in a study."""

    suite: str
    model: str
    task: str
    example_id: str
    budget: float
    seed: int
    offset: int
    layer: int
    head: int


class WorldKey(NamedTuple):
    """What makes one layer of one world unique in a study."""

    suite: str
    model: str
    task: str
    example_id: str
    change: str
    world: int
    layer: int


Change = Literal["permutation", "rotation"]
CHANGES: tuple[Change, ...] = ("permutation", "rotation")


class ExpectedCells(Record, frozen=True, kw_only=True, tag="expected_cells/1"):
    """The cells and worlds that a complete study must contain for one prompt of an attention suite."""

    suite: Id
    shard_id: Id
    model: Id
    task: Id
    example_id: Id
    budgets: list[Fraction]
    seeds: list[Seed]
    offsets: list[Count]
    layers: Count
    heads: Count  # query heads of a layer
    worlds: Count  # changed worlds of each change, beside world 0; 0: no demonstration on this prompt

    def cell_keys(self) -> Iterator[CellKey]:
        """A cell at every budget, seed, offset, layer and query head."""
        here = (self.suite, self.model, self.task, self.example_id)
        draws = itertools.product(self.budgets, self.seeds, self.offsets)
        for budget, seed, offset in draws:
            for layer, head in itertools.product(range(self.layers), range(self.heads)):
                yield CellKey(*here, budget, seed, offset, layer, head)

    def world_keys(self) -> Iterator[WorldKey]:
        """World 0, as it is, and the changed ones, by layer."""
        here = (self.suite, self.model, self.task, self.example_id)
        worlds = range(self.worlds + 1) if self.worlds else range(0)
        for place in itertools.product(CHANGES, worlds, range(self.layers)):
            yield WorldKey(*here, *place)


class Timings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Seconds. All but `plan` are the batch's: the arms of an example share them."""

    prefill: float  # one prefill serves every arm of the example
    plan: float  # this arm's keep plan
    decode: float  # the decode loop of the batch this arm was in
    decode_arms: Count  # arms in that batch


# A default is for a field that older logs lack: left out where it is null, so their lines keep their bytes.
class Generation(Keyed, frozen=True, kw_only=True, omit_defaults=True, tag="generation/1"):
    """One answer by one arm to one example: the unit of every analysis."""

    attempt: Count  # number of the attempt that wrote the row
    n_context: Count  # tokens of the context after any cut
    n_prompt: Count  # tokens of the whole prompt
    n_evictable: Count  # tokens in the cache when eviction happens (n of the budget rule)
    expected_kept: float  # tokens kept in expectation, mean over layers and KV heads
    realised_kept: float  # tokens kept, mean over layers and KV heads
    tail_kept: float | None  # kept tokens with pi < 1, mean; null: nothing is drawn
    first_step_cached: float  # tokens attended by the query of answer token 1, itself included, mean
    n_generated: Count  # answer tokens, the stop token included
    text: str  # decoded answer without special tokens
    score_name: str  # token_f1, exact_match, retrieval, all_present, ...
    score_value: Share  # raw value; success is derived by the analysis
    certificate: Radius | None  # eq. (4): maximum over certificate_steps
    entropy: float | None  # decode-step softmax entropy / log(retained size), mean over cells and steps
    evicted_mass: float | None  # 1 - kept share of the arm's own score
    margin: float | None  # (min kept - max evicted unprotected score) / sd of unprotected scores
    output_logprob: float | None  # mean log-probability of the generated tokens
    undefined: dict[str, str]  # why each null signal is null
    certificate_steps: list[Radius] | None  # mean radius over sampled heads and layers, by step from 1
    zero_variance_cells: Count | None  # (step, layer, head) cells with V = 0 although tokens were evicted
    min_logit_gap: float  # smallest gap between the two largest logits: near-ties show here
    seconds: Timings
    stopped_by: Literal["stop_token", "length"]
    keep_digest: Digest | None  # sha256 of the packed keep masks (layer, KV head, token); null: full
    # Keep bits at 512 places keyed by the row (kvexp/replay/probe.py); null: full, or an older log.
    keep_probe: Probe | None = None


class Cell(Record, frozen=True, kw_only=True, tag="cell/1"):
    """One query head of one layer at one later query and one budget: true errors and certificate (section 4).

    Errors are |estimate - y| / (|y| + floor) against the attention output y over the whole cache. Numbers
    are computed in float64 and written with 7 significant digits.
    """

    attempt: Count
    suite: Id
    shard_id: Id
    model: Id
    task: Id
    example_id: Id
    budget: Fraction
    seed: Seed
    offset: Count  # of the query's position from the first token that is fed after the eviction
    layer: Count
    head: Count  # query head
    score: Id  # what the inclusion probabilities and top-k are made from
    evictable: Count  # tokens in the cache when eviction happened
    expected_kept: Size  # sum of pi of the KV head; the budget, unless the allocation under-spends
    kept: Count  # tokens that the Poisson draw kept, KV head
    tail_kept: Count  # of these, tokens that could have been evicted (pi < 1)
    uniform_kept: Count  # tokens that the uniform draw kept, KV head
    norm: Size  # |y|
    estimate_norm: Size  # |y^| of Poisson with the Hajek offset
    hajek: Size  # error of Poisson with the offset
    no_offset: Size  # error of the same draw without the offset
    topk: Size  # error of the highest scores at the same budget
    uniform: Size  # error of a uniform draw of the same expected size, with the offset
    variance: Size  # V of Theorem 2
    largest: Size  # b of eq. (4), the root of V's largest term
    certificate: Size  # eq. (4)
    covered: bool  # |y^ - y| <= certificate * (|y^| + floor)
    rare_attention: Share  # attention over the whole cache that falls on tokens with pi < 1e-3

    @property
    def key(self) -> CellKey:
        return CellKey(
            self.suite,
            self.model,
            self.task,
            self.example_id,
            self.budget,
            self.seed,
            self.offset,
            self.layer,
            self.head,
        )


class World(Record, frozen=True, kw_only=True, tag="world/1"):
    """One layer of one world in which the values of top-k's evicted tokens are others (Theorem 1, Remark 1).

    Keys, retained values and the Poisson keep set are the same in all worlds of a prompt. Lists run over
    query heads.
    """

    attempt: Count
    suite: Id
    shard_id: Id
    model: Id
    task: Id
    example_id: Id
    budget: Fraction
    seed: Seed
    offset: Count
    change: Change  # permutation: among the evicted tokens; rotation: each about the origin, norms kept
    world: Count  # 0: the values as they are
    layer: Count
    score: Id  # of both top-k and Poisson; the rotation's reads value norms
    statistics: Digest  # sha256 of the bytes of everything that top-k can compute online
    norm: list[Size]  # |y| in this world
    estimate_norm: list[Size]
    topk: list[Size]  # true errors
    hajek: list[Size]
    certificate: list[Size]
    covered: list[bool]

    @property
    def key(self) -> WorldKey:
        return WorldKey(
            self.suite, self.model, self.task, self.example_id, self.change, self.world, self.layer
        )


class Failed(Record, frozen=True, kw_only=True, tag="failed/1"):
    """An example that could not be answered; counts as missing and is tried again by a later submit."""

    attempt: Count
    suite: Id
    shard_id: Id
    model: Id
    task: Id
    example_id: Id
    category: Literal["out_of_memory", "too_short", "too_long", "error"]
    message: str


class Example(Record, frozen=True, kw_only=True, tag="example/2"):
    """One question as one model is asked it; the context itself is made or read again from its source."""

    suite: Id
    model: Id
    task: Id
    example_id: Id
    question: str
    references: list[str]
    segments: dict[str, Digest]  # sha256 of the text of context and instruction, question, answer prefix
    needle_depths: list[float]  # where the facts stand, as shares of the context's characters
    needle_tokens: list[tuple[Count, Count] | None]  # their positions in the prompt; null: cut away
    n_context_full: Count  # tokens of the context before any cut
    n_context: Count  # and after it
    n_prompt: Count
    truncated: bool
    answer_survives: bool | None  # a reference stands in what is left; null: none stood there before
    difference: str  # how the ids, decoded, differ from the rendered prompt; empty: not at all


class Attempt(Record, frozen=True, kw_only=True, omit_defaults=True, tag="attempt/1"):
    """One process start on a shard, recorded before the model loads."""

    shard_id: Id
    number: Count
    shard_digest: Digest  # the resolved shard: model, task, suite, examples, arms, protocol
    protocol_digest: Digest  # the code that makes data
    seal: Digest | None  # null: the study is not sealed
    anchor: str  # keys the Poisson draws; "unanchored" without a stamp
    git_commit: str | None
    git_dirty: bool | None
    versions: dict[str, str]
    host: str
    slurm: dict[str, str]
    model_digest: Digest | None  # of weights, config and tokenizer files; null: a hub model
    device: str
    dtype: str
    threads: Count
    started_at: str  # UTC, ISO 8601
    config: dict[str, Any]  # the resolved shard, in full
    previous: Digest | None = None  # sha256 of the file of the attempt before; absent: this is the first


class Segment(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The rows of one attempt."""

    attempt: Count
    job_id: str | None
    rows: Count


class Footer(Record, frozen=True, kw_only=True, tag="footer/1"):
    """Closes a shard: its log is whole and will not change."""

    shard_id: Id
    shard_digest: Digest
    rows: Count
    sha256: Digest  # of generations.jsonl or cells.jsonl
    segments: list[Segment]
    model_seconds: float | None  # prefill, plans, decoding; loading and waiting not counted; null: cells
    ended_at: str


T = TypeVar("T", bound=Record)


class RecordError(ValueError):
    """A line that is not one of the records expected there."""


def _floats(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, msgspec.Struct):
        for name in value.__struct_fields__:
            yield from _floats(getattr(value, name))
    elif isinstance(value, dict):
        for item in value.values():
            yield from _floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _floats(item)


def encode(record: Record) -> bytes:
    """One JSON object without a line break. Raises RecordError for what a reader would refuse."""
    name = type(record).__name__
    # msgspec would write NaN as null, so that an accident would read as "undefined".
    if not all(math.isfinite(value) for value in _floats(record)):
        raise RecordError(f"a {name} holds a number that is not finite")
    try:
        # msgspec checks types and patterns on the way in only; and the bytes are those of what was read, so
        # that a whole number in a float field is spelt as every reader will spell it.
        body = msgspec.json.encode(_decoder(type(record)).decode(msgspec.json.encode(record)))
    except (msgspec.MsgspecError, UnicodeEncodeError) as error:
        raise RecordError(f"a {name} cannot be written: {error}") from None
    return body


@cache
def _decoder(types: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(types)


class Reader(Generic[T]):
    """Decodes records of the given types and refuses everything else."""

    def __init__(self, types: Any) -> None:
        self._decoder: msgspec.json.Decoder[T] = _decoder(types)

    def __call__(self, line: bytes) -> T:
        try:
            record = self._decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise RecordError(str(error)) from None
        if not all(math.isfinite(value) for value in _floats(record)):
            raise RecordError("a number is not finite")
        return record


def seconds_of(text: str) -> float:
    """Seconds since 1970 of a time as `kvexp.study.provenance.now` writes it, or ValueError."""
    try:
        return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC).timestamp()
    except ValueError:
        raise ValueError(f"{text[:40]!r} is no time of a record (like 2026-01-31T12:00:00Z)") from None


def seconds_in(path: Path, text: str) -> float:
    """As `seconds_of`, of a time that a file states. Raises IntegrityError, which names the file."""
    try:
        return seconds_of(text)
    except ValueError as error:
        raise IntegrityError(f"{path}: {error}: restore it") from None
