"""`submit --then-analyze`: the job that runs once all arrays have ended, locks and judges."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import submitit

from kvexp.errors import IncompleteError
from kvexp.slurm.task import let_signals_in


class Follow:
    """Locks every suite that is complete, then verifies, analyses and writes the pages.

    Args:
        root: of the repository.
        suites: of the study that the command chose.
        overrides: words of the submit command, without the choice of a cluster.
    """

    def __init__(self, root: Path, suites: Sequence[str], overrides: Sequence[str]) -> None:
        self._root, self._suites, self._overrides = root, tuple(suites), tuple(overrides)

    def __call__(self) -> str:
        let_signals_in()
        for suite in self._suites:
            # Whatever is incomplete or unsealed stays open; the analysis says so.
            self._kvexp("lock", suite)
        code = self._kvexp("report")
        if code not in (0, IncompleteError.exit_code):  # what is incomplete is reported, and no failed job
            raise SystemExit(code)
        return "analysed" if code == 0 else "analysed, incomplete"

    def _kvexp(self, *words: str) -> int:
        command = [sys.executable, "-m", "kvexp.cli", *words, *self._overrides]
        print(f"kvexp {' '.join(words)}", flush=True)
        code = subprocess.run(command, cwd=self._root, check=False).returncode
        print(f"kvexp {words[0]} ended with {code}", flush=True)
        return code

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Requeue the same call."""
        return submitit.helpers.DelayedSubmission(self)
