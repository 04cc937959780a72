"""What no file can exclude: said in the evidence of every study, in plain sentences."""

from collections.abc import Iterator
from math import comb

from kvexp.ceremony.evidence import Found, told
from kvexp.documents.forms import Regenerated, Stamp

TO_ADD = (
    "an authority that is public and not shipped counts once its root's fingerprint stands in PUBLIC of "
    "kvexp/documents/forms.py before the seal is made: a change of a sealed file, which a reviewer sees"
)


def cannot_exclude(found: Found, regenerated: Regenerated | None = None) -> Iterator[str]:
    """What a reader must take on trust, whatever the checks say."""
    yield from _of_the_author(found)
    yield from _of_logs(found)
    yield from _of_answers(found, regenerated)
    yield from _of_stamps(found)
    yield (
        "These checks and verdicts are computed on a machine of the author: a Python or a kvexp that was "
        "tampered with prints what it likes, so run both from a fresh clone elsewhere."
    )
    yield (
        "Whether a condition asks what its statement says, and whether a text about this study passes "
        "numbers off as registered that were not, is for the reader to judge."
    )


def _of_the_author(found: Found) -> Iterator[str]:
    counts = [
        f"{seal.id} is said to be number {seal.registrations_made}"
        for seal in found.seals.values()
        if seal.registrations_made is not None
    ]
    yield (
        "The author may have registered other versions of this study and shown only this one, read raw logs "
        "by eye before the lock, or deleted the record of looks before it"
        f"{''.join(f'; {count}' for count in counts)}."
    )
    levels = ", ".join(f"{seal.id}: {told(seal.existing_data)}" for seal in found.seals.values())
    yield (
        "What deterministic arms answer follows from public models and data, so it could have been known "
        f"before the registration; the author's word on existing data is {levels}."
    )


def _of_logs(found: Found) -> Iterator[str]:
    yield (
        "Attempts that were deleted with every trace, and a lock that was thrown away to change logs and "
        "lock again, cannot be seen here; a cluster's own accounting, or a lock digest that was published, "
        "shows them. A shard that is run again draws the same keep sets, but other hardware may answer "
        "otherwise, and the better answer may have been kept."
    )
    if any(lock.manifest is not None and lock.grade < 2 for lock in found.locks.values()):
        yield "No third party vouches for the time of the locks: logs may have been changed and locked again."


def _of_answers(found: Found, regenerated: Regenerated | None) -> Iterator[str]:
    if regenerated is None:
        command = found.home.command("verify", "--decode", "20")
        yield (
            "A replay of keep sets vouches for those of random arms and for the scores of texts; texts, "
            "certificates and log-probabilities are the logs' word until examples are answered again "
            f"({command})."
        )
        return
    most = most_unseen(regenerated.examples, regenerated.of)
    yield (
        f"Of {regenerated.of:,} examples {regenerated.examples:,} were answered again; texts, certificates "
        f"and log-probabilities of the others are the logs' word. Had more than {most:,} been forged, "
        "such a draw would have met one of them 19 times in 20, if whoever forged them did not choose the "
        "seed: choose your own."
    )
    if regenerated.failed or regenerated.missing:
        yield (
            f"{regenerated.failed:,} examples that failed and {regenerated.missing:,} that lack rows have no "
            "answers to compare."
        )
    if not regenerated.same_stack:
        yield (
            "Answering again ran on other software than the attempts': texts that were exchanged from a "
            "near-tie on, and numbers that were changed by less than software changes them, are not found "
            "there; on the software that the attempts state they are."
        )
    yield "Seconds are never compared: times and costs are the logs' word."


def most_unseen(drawn: int, of: int) -> int:
    """The largest number of forged examples that a draw of some misses with a chance of 5 % or more."""
    most = 0
    while most < of and 20 * comb(of - most - 1, drawn) >= comb(of, drawn):
        most += 1
    return most


def _of_stamps(found: Found) -> Iterator[str]:
    stamps = found.stamps
    kinds = {stamp.kind for stamp in stamps}
    if any(seal.grade == 0 for seal in found.seals.values()):
        yield "Without a time stamp, the registration may have been written after the results."
    if stamps:
        yield (
            "One seal can be stamped again and again, and one query has many valid replies: the author may "
            "have run the random arms under several of their anchors and kept the stamp whose draws suited "
            "best. Each try costs a run of these arms; a cluster's accounting shows it."
        )
    if "self-run" in kinds:
        yield "Time stamps come from an authority that the author runs: their times are the author's word."
    if "pinned" in kinds:
        yield f"Time stamps come from {_names(stamps, 'pinned')}, pinned by this repository; {TO_ADD}."
    if "public" in kinds:
        yield (
            "An authority whose key was stolen, or that helps the author, can sign any time; two independent "
            "authorities over one seal make that harder."
        )
    for name, digest in sorted({(s.trust, s.root_sha256) for s in stamps if s.kind == "public"}):
        yield (
            f"That the pinned root {name} belongs to the authority of that name: compare its SHA-256 "
            f"fingerprint {digest} with the one that the authority publishes."
        )


def _names(stamps: list[Stamp], kind: str) -> str:
    return ", ".join(sorted({f"{one.trust} (root {one.root_sha256})" for one in stamps if one.kind == kind}))
