"""Run one shard: every missing example off one prefill, appended to the log, until the footer.

Rows that are there are not made again, and rows that are missing come out the same whenever they are
made, since every draw is keyed by what it is for.
"""

import socket
from collections.abc import Callable, Sequence
from typing import Any

import torch

from kvexp import files
from kvexp.design.base import TooShort
from kvexp.errors import IncompleteError, InputError, IntegrityError, printable
from kvexp.records import Attempt, Failed, RecordError
from kvexp.replay.memory import is_out_of_memory
from kvexp.replay.model import Loaded
from kvexp.replay.prompt import TooLong
from kvexp.run import log as shard_log
from kvexp.run.answer import answer
from kvexp.run.attempt import Place, refuse_other_seals
from kvexp.run.log import Log, Row, State
from kvexp.run.measure import measure
from kvexp.study import provenance
from kvexp.study.plugins import family_of
from kvexp.study.prompts import counter
from kvexp.study.shards import AttentionShard, GenerationShard, Shard
from kvexp.tasks.base import Question, Task


def run_shard(shard: Shard, place: Place, load_model: Callable[[], Loaded]) -> None:
    """Bring a shard to completion; the model is loaded only if something is missing.

    Raises IncompleteError if examples failed or the disk is full (rows so far are kept), IntegrityError
    if the folder belongs to another configuration, anchor or protocol.
    """
    with shard_log.locked_log(place.folder, shard.log) as log:
        state = shard_log.read_state(place.folder, shard.log)
        _refuse_foreign(shard, place, state)
        _refuse_unexpected(shard, place, state)
        if state.footer is not None:
            return
        missing = set(shard.keys()) - state.rows.keys()
        if missing or not state.attempts:
            with files.on_disk(place.folder):
                log.drop_torn_line()
                attempt = _attempt(shard, place, state)
                shard_log.write_new(place.folder / f"attempt-{attempt.number:03d}.json", attempt)
            failures = _answer_missing(shard, place, log, missing, attempt.number, load_model())
            if failures:
                last = failures[-1]
                raise IncompleteError(
                    f"shard {shard.shard_id}: {len(failures)} of {len(shard.example_ids)} examples "
                    f"failed (last: {last.example_id}, {last.category}: {last.message}); their rows are "
                    "missing and a later submit tries them again"
                )
        with files.on_disk(place.folder):
            shard_log.close(place.folder, shard.digest, shard.log)


def _refuse_foreign(shard: Shard, place: Place, state: State) -> None:
    for attempt in state.attempts:
        for what, there, here in (
            ("protocol", attempt.protocol_digest, shard.protocol_digest),
            ("anchor", attempt.anchor, place.under.anchor),
            ("configuration", attempt.shard_digest, shard.digest),
            ("model", attempt.model_digest or "", place.model_digest or ""),
        ):
            if there != here:
                raise IntegrityError(
                    f"{place.folder} was begun under another {what} ({there[:12]}, now {here[:12]}): "
                    "go back to it, or move the folder away to start the shard anew"
                )
    refuse_other_seals(place.folder, state.attempts, place.under)


def _refuse_unexpected(shard: Shard, place: Place, state: State) -> None:
    extra = state.rows.keys() - set(shard.keys())
    if extra:
        raise IntegrityError(
            f"{place.folder / shard.log} holds {len(extra)} rows that the shard does not expect (one is "
            f"{' '.join(map(str, next(iter(extra))))}): restore the log or move the shard's folder away"
        )


def _attempt(shard: Shard, place: Place, state: State) -> Attempt:
    commit, dirty = place.git
    return Attempt(
        shard_id=shard.shard_id,
        number=max((a.number for a in state.attempts), default=0) + 1,
        shard_digest=shard.digest,
        protocol_digest=shard.protocol_digest,
        seal=place.under.seal,
        anchor=place.under.anchor,
        git_commit=commit,
        git_dirty=dirty,
        versions=provenance.versions(),
        host=socket.gethostname(),
        slurm=provenance.slurm_job(),
        model_digest=place.model_digest,
        device=place.device,
        dtype=shard.model.dtype,
        threads=torch.get_num_threads(),
        started_at=provenance.now(),
        config=shard.resolved(),
        previous=shard_log.last_attempt_digest(place.folder),
    )


def _answer_missing(
    shard: Shard, place: Place, log: Log, missing: set[Any], attempt: int, loaded: Loaded
) -> list[Failed]:
    """Answer every example that lacks a row; what failed."""
    family = family_of(shard.task)
    questions = {
        q.example_id: q
        for q in family.load(
            shard.n_examples, shard.example_seed, shard.context_tokens, counter(loaded.tokenizer)
        )
    }
    lacking = {key.example_id for key in missing}
    failures = []
    for example_id in shard.example_ids:
        if example_id not in lacking:
            continue
        try:
            rows = _rows(shard, place.under.anchor, family, questions[example_id], attempt, loaded)
            lines = shard_log.to_lines([row for row in rows if row.key in missing])
        # OutOfMemoryError is a RuntimeError; a RecordError is an answer with NaN or the like.
        except (InputError, MemoryError, RuntimeError, RecordError) as error:
            failures.append(_failed(shard, example_id, attempt, error))
            lines = shard_log.to_lines(failures[-1:])
        with files.on_disk(place.folder):
            log.append(lines)
    return failures


def _rows(
    shard: Shard, anchor: str, family: Task, question: Question, attempt: int, loaded: Loaded
) -> Sequence[Row]:
    if isinstance(shard, AttentionShard):
        return measure(shard, anchor, family, question, attempt, loaded)
    if isinstance(shard, GenerationShard):
        return answer(shard, anchor, family, question, attempt, loaded)
    raise TypeError(f"nothing makes the rows of a {type(shard).__name__}")


def _failed(shard: Shard, example_id: str, attempt: int, error: Exception) -> Failed:
    category = "error"
    if isinstance(error, TooShort):
        category = "too_short"
    elif isinstance(error, TooLong):
        category = "too_long"
    elif is_out_of_memory(error):
        category = "out_of_memory"
    return Failed(
        attempt=attempt,
        suite=shard.suite,
        shard_id=shard.shard_id,
        model=shard.model.name,
        task=shard.task.name,
        example_id=example_id,
        category=category,  # type: ignore[arg-type]
        message=printable(f"{type(error).__name__}: {error}")[:2000],
    )
