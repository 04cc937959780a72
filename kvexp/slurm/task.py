"""What jobs run: a shard, begun again where it was and under the code it was sent with, or the analysis."""

import pickle
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import submitit

if TYPE_CHECKING:
    from kvexp.run.launch import ShardJob

# Nothing here imports torch: until submitit has this object, no signal of Slurm is answered.


def let_signals_in() -> None:
    """From here on USR2 reaches submitit, also one that came while Python started."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGUSR2])


class ArrayTask:
    """Checkpointing asks for the same call again: progress lies in the shard's folder.

    Args:
        job: the shard and its place.
        root: of the repository.
        code: files that made the shard's protocol digest.
    """

    def __init__(self, job: "ShardJob", root: Path, code: Mapping[str, str]) -> None:
        self.shard_id = job.shard.shard_id
        self._job = pickle.dumps(job)  # opened when signals are handled
        self._root, self._code = root, tuple(code)

    def __call__(self) -> str:
        from kvexp.errors import KvexpError

        let_signals_in()
        try:
            outcome = self._run()
        except KvexpError as error:
            self._fail(str(error), error.exit_code)
        if outcome.error is not None:
            self._fail(outcome.error, outcome.exit_code)
        return "complete"

    def _run(self) -> Any:
        from kvexp.study import provenance

        job = self._opened()
        self._refuse_other_code(job.shard.protocol_digest)
        git = provenance.git_state(self._root)
        if git[0] is not None:  # what runs now, not what was there at submission
            job.place = replace(job.place, git=git)
        return job()

    def _opened(self) -> "ShardJob":
        """Raises IntegrityError if kvexp has changed so much that it does not know what it wrote."""
        from kvexp.errors import IntegrityError

        try:
            job: ShardJob = pickle.loads(self._job)
        except (AttributeError, ImportError) as error:
            raise IntegrityError(
                f"shard {self.shard_id}: kvexp has changed since it was submitted ({error}): submit again"
            ) from None
        return job

    def _refuse_other_code(self, digest: str) -> None:
        """Raises IntegrityError if the files that make data have changed since the submission."""
        from kvexp.documents.manifest import manifest
        from kvexp.errors import IntegrityError
        from kvexp.study import provenance

        if manifest(provenance.PACKAGE.parent, self._code).digest != digest:
            raise IntegrityError(
                f"shard {self.shard_id}: the code that makes data has changed since it was submitted: go "
                "back to that code, or submit again"
            )

    def _fail(self, sentence: str, exit_code: int) -> NoReturn:
        """A job that did not complete its shard is a failed job."""
        print(f"kvexp: {sentence}", file=sys.stderr, flush=True)
        raise SystemExit(exit_code)

    def checkpoint(self) -> submitit.helpers.DelayedSubmission:
        """Requeue the same call."""
        return submitit.helpers.DelayedSubmission(self)


class Follow:
    """`submit --then-analyze`, once all arrays have ended.

    Locks every suite that is complete, then verifies, analyses and writes the pages.

    Args:
        root: of the repository.
        suites: of the study that the command chose.
        overrides: words of the submit command, without the choice of a cluster.
    """

    def __init__(self, root: Path, suites: Sequence[str], overrides: Sequence[str]) -> None:
        self._root, self._suites, self._overrides = root, tuple(suites), tuple(overrides)

    def __call__(self) -> str:
        from kvexp.errors import IncompleteError

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
