"""What is in the queue now. No answer is no verdict: callers get an error, never an empty queue."""

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass

from kvexp.slurm.ids import task_of
from kvexp.slurm.programs import SECONDS, SlurmError, run
from kvexp.terminal import printable

# Names of ours hold no bar, so that only those of others, and the reason, may be cut or go on.
# The end of an entry is said, since names of others may hold line breaks.
_END = "|."
_FORMAT = f"%i|%T|%u|%j|%r{_END}"
RUNNING = ("RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT")


@dataclass(frozen=True)
class Entry:
    """A job, or one task of an array, that is pending or running.

    Attributes:
        job_id: as squeue writes it, `123` or `123_4`.
        task: index in the array; 0 for a job that is none.
        state: Slurm's word.
        reason: why it is pending, in Slurm's words.
        user: whose it is.
        name: of the job; kvexp never gives the same one twice.
    """

    job_id: str
    task: int
    state: str
    reason: str
    user: str
    name: str

    @property
    def is_running(self) -> bool:
        """Whether it has a node; else it waits, for the first time or after a requeue."""
        return self.state in RUNNING

    @property
    def is_held(self) -> bool:
        """Whether it waits for somebody to release it: JobHeldAdmin, launch failed requeued held."""
        return not self.is_running and "held" in self.reason.lower()

    @property
    def array_id(self) -> str:
        """The job's number, that of all its tasks."""
        return self.job_id.partition("_")[0]


def me() -> str:
    """The user who calls."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())


def read_queue(users: Iterable[str], seconds: float = SECONDS) -> list[Entry]:
    """Every task of these users and of the caller in the queue.

    Raises SlurmError without an answer, or for one that is none: what cannot be read is no empty queue.
    """
    known = sorted({me(), *(user for user in users if _exists(user))})
    text = run(["squeue", "-h", "-r", "-u", ",".join(known), "-o", _FORMAT], seconds)
    entries = text.split(f"{_END}\n")
    if rest := entries.pop().strip():
        raise SlurmError(f"squeue says what nobody asked, {printable(rest)[:80]!r}")
    return [_entry(one) for one in entries]


def _exists(user: str) -> bool:
    """squeue refuses the whole question for one user whom it does not know."""
    try:
        pwd.getpwnam(user)
    except KeyError:
        return False
    return True


def _entry(line: str) -> Entry:
    if line.count("|") < 4:
        raise SlurmError(f"squeue says what nobody asked, {printable(line)[:80]!r}")
    job_id, state, user, name, reason = line.split("|", 4)
    return Entry(job_id, task_of(job_id), state, reason, user, name)
