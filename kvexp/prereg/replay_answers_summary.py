"""What answering again says of a study: counts, largest differences, and what disagrees."""

from collections.abc import Iterable, Iterator

from kvexp.prereg.forms import Regenerated
from kvexp.prereg.replay_examples import Drawn
from kvexp.prereg.replay_generation import Matched
from kvexp.prereg.replay_summary import SHOWN
from kvexp.prereg.replay_tolerance import most_moved, most_parted


def summary(found: list[Matched], drawn: Drawn, seed: int) -> Regenerated:
    """What became of the rows of the examples that were drawn."""
    wrong = [one.wrong for one in found if one.wrong] + list(_too_many(found))
    return Regenerated(
        examples=len(drawn.chosen),
        of=drawn.of,
        failed=drawn.failed,
        missing=drawn.missing,
        seed=seed,
        rows=len(found),
        equal=sum(one.equal for one in found),
        keep_sets_equal=sum(one.keep_set_equal for one in found),
        texts_equal=sum(one.text_equal for one in found),
        near_ties=sum(one.near_tie for one in found),
        largest=_largest(found),
        same_stack=all(one.same_stack for one in found),
        holds=not wrong,
        disagreements=wrong[:SHOWN],
    )


def _too_many(found: list[Matched]) -> Iterator[str]:
    """Near-ties explain each text that parts, rounding each keep set that moved, but not any number."""
    abroad = [one for one in found if not one.same_stack]
    for dtype in sorted({one.dtype for one in abroad}):
        rows = [one for one in abroad if one.dtype == dtype]
        parted, most = sum(one.near_tie for one in rows), most_parted(dtype, len(rows))
        if parted > most:
            yield (
                f"on other software {parted} of {len(rows)} {dtype} texts part at near-ties, more than the "
                f"{most:g} that rounding explains"
            )
        moved = sum(not one.keep_set_equal for one in rows)
        if moved > (most := most_moved(dtype, [one.places for one in rows])):
            yield (
                f"on other software {moved} of {len(rows)} {dtype} keep sets moved, more than the {most:.1f} "
                "that rounding explains"
            )


def _largest(found: Iterable[Matched]) -> dict[str, float]:
    """By signal, the largest finite difference of rows that were explained."""
    largest: dict[str, float] = {}
    for one in found:
        if not one.wrong:
            for name, value in one.largest.items():
                largest[name] = max(value, largest.get(name, 0.0))
    return dict(sorted(largest.items()))
