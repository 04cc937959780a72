"""How a task ended that did not complete its shard: a category, and the last lines of its log."""

import re
from dataclasses import dataclass
from pathlib import Path

from kvexp.slurm.accounting import Run
from kvexp.terminal import printable

SETUP_FAILED = 9  # exit status of a job whose setup command fails
UNSENT = "the submit that sent this task ended before it had written what to run: submit again"
TAIL_BYTES = 16_384
TAIL_LINES = 5
_BEGUN = re.compile(r"submitit INFO .* - Starting with JobEnvironment")
# The words of slurmstepd, of the kernel's memory control and of submitit, the most telling first.
_WORDS = (
    (
        "out_of_memory",
        re.compile(r"oom[-_ ]kill|exceeded (job |step )?memory limit|out of memory", re.IGNORECASE),
    ),
    ("setup", re.compile(r"kvexp: setup command failed")),
    ("timeout", re.compile(r"DUE TO TIME LIMIT|timed-out too many times")),
    ("node_failure", re.compile(r"DUE TO NODE FAILURE")),
    ("preempted", re.compile(r"DUE TO PREEMPTION")),
    ("cancelled", re.compile(r"CANCELLED AT")),
    ("stopped", re.compile(r"^kvexp: ", re.MULTILINE)),
    ("unsent", re.compile(r"could not find submitted jobs in path")),
    ("exception", re.compile(r"^Traceback |Submitted job triggered an exception", re.MULTILINE)),
    ("killed", re.compile(r"\bKilled\b|Exited with signal 9")),
)
_STATES = {
    "OUT_OF_MEMORY": "out_of_memory",
    "TIMEOUT": "timeout",
    "DEADLINE": "timeout",
    "NODE_FAIL": "node_failure",
    "BOOT_FAIL": "node_failure",
    "CANCELLED": "cancelled",
    "PREEMPTED": "preempted",
}


@dataclass(frozen=True)
class End:
    """What is known of it.

    Attributes:
        category: out_of_memory, setup, timeout, node_failure, preempted, cancelled, stopped (by kvexp, with
            a sentence), unsent, exception, killed, or unknown.
        tail: last lines of the log, fit for a terminal.
    """

    category: str
    tail: list[str]


def end_of(log: Path, run: Run | None) -> End:
    """Judge by the log of the last run, and by what accounting says of it, where it says something."""
    words = _last_run(log)
    tail = [printable(line)[:300] for line in words.splitlines() if line.strip()][-TAIL_LINES:]
    category = _category(words, run)
    return End(category, [UNSENT] if category == "unsent" else tail)


def _category(words: str, run: Run | None) -> str:
    if run is not None and run.state in _STATES:
        return _STATES[run.state]
    said = next((name for name, pattern in _WORDS if pattern.search(words)), None)
    if said is not None:
        return said
    if run is not None:
        status, _, signal = run.exit_code.partition(":")
        if "9" in (signal, status) and status != str(SETUP_FAILED):
            return "killed"
        if run.state == "FAILED":
            return "killed" if signal not in ("", "0") or status == "9" else "exception"
    return "unknown"


def _last_run(log: Path) -> str:
    """The end of the log, since the last start of the task."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    starts = list(_BEGUN.finditer(text))
    return text[starts[-1].end() :] if starts else text
