"""Names and numbers of jobs, as records hold them and as Slurm's programs take them (leaf)."""

import re
from collections.abc import Iterable
from typing import Annotated

import msgspec

from kvexp.records import ID_PATTERN

# What a record says is asked of Slurm's programs: nothing else may stand there.
JobName = Annotated[str, msgspec.Meta(pattern=ID_PATTERN, max_length=700)]
JobNumber = Annotated[str, msgspec.Meta(pattern=r"\A[0-9]{1,18}\Z")]
_TASK = re.compile(r"\A[0-9]{1,18}(_[0-9]{1,9})?\Z")
TaskNumber = Annotated[str, msgspec.Meta(pattern=_TASK.pattern)]


def is_task(job_id: str) -> bool:
    """Whether this is a job's number, or that of one task of an array."""
    return _TASK.match(job_id) is not None


def task_of(job_id: str) -> int:
    """The index of a task in its array, from `123_4`; 0 for a job that is none."""
    last = job_id.partition("_")[2]
    return int(last) if last.isascii() and last.isdecimal() else 0


def task_list(array_id: str, tasks: Iterable[int]) -> str:
    """Some tasks of an array as scontrol and scancel take them, `123_[0,4-6]`."""
    runs: list[list[int]] = []
    for task in sorted(tasks):
        if runs and runs[-1][-1] == task - 1:
            runs[-1][1:] = [task]
        else:
            runs.append([task])
    words = ",".join("-".join(map(str, run)) for run in runs)
    return f"{array_id}_{words}" if words.isdigit() else f"{array_id}_[{words}]"
