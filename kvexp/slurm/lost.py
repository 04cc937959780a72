"""Answers of sbatch that were lost, with a killed submit or on a full disk, found again by the job's name."""

from collections.abc import Sequence
from datetime import UTC, datetime

from kvexp import provenance
from kvexp.moments import seconds_of
from kvexp.slurm.accounting import runs_named
from kvexp.slurm.programs import SECONDS
from kvexp.slurm.submission import Refused, Sent, Submitted
from kvexp.slurm.submissions import Book

DAY = 86400
MARGIN = 2  # days, for clocks and zones


def answered(book: Book, sent: Sequence[Sent], seconds: float = SECONDS) -> list[Sent]:
    """The submissions, those without an answer with accounting's, where it knows their jobs.

    Called by whoever holds the book. Raises SlurmError if accounting does not answer.
    """
    lost = [one for one in sent if one.after is None and not one.may_be_at_work]
    if not lost:
        return list(sent)
    oldest = min(seconds_of(one.before.at) for one in lost)
    days = int(max(0.0, datetime.now(UTC).timestamp() - oldest) // DAY) + MARGIN
    runs = runs_named([one.before.name for one in lost], days, seconds)
    ids = {run.name: run.job_id.partition("_")[0] for run in runs}
    return [_settled(book, one, ids.get(one.before.name)) if one in lost else one for one in sent]


def _settled(book: Book, one: Sent, job_id: str | None) -> Sent:
    """With accounting's answer; after a day without, there was no job, and nobody asks again."""
    if job_id is not None:
        return found(book, one, job_id)
    if datetime.now(UTC).timestamp() - seconds_of(one.before.at) < DAY:
        return one
    reason = "neither the queue nor accounting has ever had such a job"
    return book.write_after(one, Refused(name=one.before.name, reason=reason, at=provenance.now()))


def found(book: Book, one: Sent, job_id: str) -> Sent:
    """Record an answer that somebody else remembers."""
    return book.write_after(
        one, Submitted(name=one.before.name, job_id=job_id, at=provenance.now(), found_in_queue=True)
    )
