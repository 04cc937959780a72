"""Slurm's own programs, called so that their output is the same everywhere, or why they do not answer."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Sequence
from typing import Annotated

import msgspec

from kvexp.errors import KvexpError, printable
from kvexp.records import ID_PATTERN

TIMEOUT_SECONDS = 60.0  # a busy controller takes its time
# Times as seconds since 1970: Slurm writes local ones otherwise.
_FILTERS = ("SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_")
_ERROR = re.compile(r"\b(error|fatal):", re.IGNORECASE)
_ENVIRONMENT = {"SLURM_TIME_FORMAT": "%s", "LC_ALL": "C"}


class SlurmError(KvexpError):
    """A program of Slurm that is not there, does not answer or refuses."""

    exit_code = 3


def is_here(program: str = "sbatch") -> bool:
    """Whether this machine has a program of Slurm."""
    return shutil.which(program) is not None


def run(command: Sequence[str], seconds: float = TIMEOUT_SECONDS) -> str:
    """What a program prints. Raises SlurmError with its own words if it fails, or takes too long."""
    try:
        done = subprocess.run(
            command,
            env={**_environment(), **_ENVIRONMENT},
            capture_output=True,
            text=True,
            errors="replace",
            stdin=subprocess.DEVNULL,
            timeout=seconds,
            check=False,
        )
    except FileNotFoundError:
        raise SlurmError(f"there is no {command[0]} on this machine: run this on a login node") from None
    except subprocess.TimeoutExpired:
        raise SlurmError(f"{command[0]} has not answered for {seconds:.0f} s") from None
    if done.returncode != 0:
        raise SlurmError(f"{command[0]} does not answer: {said(done.stderr)}")
    return done.stdout


def _environment() -> dict[str, str]:
    """Without what would have a program leave something out, such as SQUEUE_STATES."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_FILTERS)}


def said(text: str) -> str:
    """What a program complains of, on one line: its first error, or else its last words."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)]
    return printable((errors or lines[-1:])[0])[:300] if lines else "it said nothing"


# Names and numbers of jobs, as records hold them and as Slurm's programs take them (leaf).


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
