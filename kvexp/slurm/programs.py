"""Slurm's own programs, called so that their output is the same everywhere, or why they do not answer."""

import os
import re
import shutil
import subprocess
from collections.abc import Sequence

from kvexp.errors import KvexpError
from kvexp.terminal import printable

SECONDS = 60.0  # a busy controller takes its time
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


def run(command: Sequence[str], seconds: float = SECONDS) -> str:
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
