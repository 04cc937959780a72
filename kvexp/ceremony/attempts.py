"""Every process start in the logs of a study, with the rows it wrote and whether they count."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kvexp import files
from kvexp.ceremony.home import Home
from kvexp.ceremony.stamp import keying_anchor
from kvexp.documents.forms import AttemptEvidence
from kvexp.documents.seals import UNANCHORED, Lines, accepted, why_not
from kvexp.errors import IntegrityError
from kvexp.records import CELLS, FOOTER, GENERATIONS, Attempt
from kvexp.run import log as shard_log
from kvexp.run.log import read_attempts

FOREIGN_ANCHOR = "its draws are not keyed by the anchor of the registration"


def why_uncounted(attempt: Attempt, seals: dict[str, Lines], anchor: str) -> str:
    """Why the rows of an attempt do not count under a registration; empty: they do.

    Args:
        attempt: of a suite of the registration.
        seals: by seal id, the shards whose rows count.
        anchor: of the registration.
    """
    reason = why_not(attempt, seals, anchor != UNANCHORED)
    return reason or ("" if attempt.anchor == anchor else FOREIGN_ANCHOR)


@dataclass(frozen=True)
class Started:
    """One attempt, as its file and its shard's log have it."""

    suite: str
    folder: Path
    attempt: Attempt
    rows: int
    is_closed: bool
    sha256: str  # of the attempt's file

    def evidence(self, seals: dict[str, Lines], anchor: str) -> AttemptEvidence:
        """What the report shows of it; `anchor`: of the registration."""
        one = self.attempt
        reason = why_uncounted(one, seals, anchor) if seals else "the suite is not sealed"
        return AttemptEvidence(
            suite=self.suite,
            shard_id=one.shard_id,
            number=one.number,
            rows=self.rows,
            is_closed=self.is_closed,
            counts=not reason,
            reason=reason,
            started_at=one.started_at,
            host=one.host,
            git_commit=one.git_commit,
            git_dirty=one.git_dirty,
        )


def started(results: Path, suites: list[str]) -> Iterator[Started]:
    """All attempts of the suites, sorted by suite, shard and number."""
    for suite in suites:
        for folder in sorted(path for path in (results / suite).glob("*") if path.is_dir()):
            rows = _rows_by_attempt(folder)
            for path in sorted(folder.glob("attempt-*.json")):
                attempt = shard_log.read_attempt(path)
                yield Started(
                    suite,
                    folder,
                    attempt,
                    rows[attempt.number],
                    (folder / FOOTER).exists(),
                    files.digest(path),
                )


class _Row(msgspec.Struct):
    """What must be known of a log line here; the analysis reads the rest."""

    kind: str
    attempt: int


def _rows_by_attempt(folder: Path) -> Counter[int]:
    decoder = msgspec.json.Decoder(_Row)
    found: Counter[int] = Counter()
    for log in (GENERATIONS, CELLS):
        for number, line in shard_log.whole_lines(folder / log):
            try:
                row = decoder.decode(line)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise IntegrityError(
                    f"{folder / log}:{number} is no row of a log ({error}): restore it"
                ) from None
            found[row.attempt] += not row.kind.startswith("failed/")
    return found


def broken_chains(found: list[Started]) -> list[str]:
    """Shards whose attempts are not 1, 2, ... with each naming the digest of the one before."""
    by_shard: dict[Path, list[Started]] = {}
    for one in found:
        by_shard.setdefault(one.folder, []).append(one)
    broken = []
    for folder, ones in by_shard.items():
        numbers = [one.attempt.number for one in ones]
        expected = [None, *(one.sha256 for one in ones[:-1])]
        previous = [one.attempt.previous for one in ones]
        if numbers != list(range(1, len(ones) + 1)):
            broken.append(f"{folder.name} has the attempts {', '.join(map(str, numbers))}")
        elif previous != expected:
            number = next(
                i for i, pair in enumerate(zip(previous, expected, strict=True), 1) if pair[0] != pair[1]
            )
            broken.append(f"attempt {number} of {folder.name} does not name the one before it")
    return broken


def uncounted(home: Home, registration_id: str, folders: Iterable[Path]) -> list[str]:
    """One line for each folder of a shard that holds an attempt which does not count: the last such one.

    This is to be known before the analysis says so.
    """
    seals = accepted(home.folder, registration_id)
    anchor = keying_anchor(home, registration_id)
    found = {}
    for folder in folders:
        for attempt in read_attempts(folder):
            if reason := why_uncounted(attempt, seals, anchor):
                is_past = reason.startswith(("made ", "configured "))
                found[folder] = f"attempt {attempt.number} was {reason}" if is_past else reason
    return [f"{folder.relative_to(home.root)}: {reason}" for folder, reason in found.items()]
