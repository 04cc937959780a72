"""What a replay says of a study: counts, agreement with its interval, and what disagrees."""

import math
from collections.abc import Iterable

from kvexp.errors import IncompleteError
from kvexp.prereg.forms import Replayed
from kvexp.prereg.replay_compare import Compared
from kvexp.prereg.stack import STACK
from kvexp.replay.probe import PLACES

SHOWN = 20
Z = 1.959964  # 97.5 % quantile of the normal distribution


def summary(found: list[Compared], rescored: list[str], of: int, seed: int) -> Replayed:
    """What a replay found: compared rows, and sentences about the scores of others.

    Raises IncompleteError if nothing can be said of the rows on this software.
    """
    abroad = [one for one in found if not one.same_stack]
    if abroad and not all(one.digest_equal for one in abroad) and not any(o.has_probe for o in abroad):
        raise IncompleteError(
            "the rows show no probe of their keep sets (they were logged before there was one), so nothing "
            f"can be said of them on other software than the attempts': replay with the {', '.join(STACK)} "
            "and device that the attempts state"
        )
    wrong = [one.wrong for one in found if one.wrong] + rescored
    for needed in sorted({one.needed for one in abroad}):
        share = _share(one for one in abroad if one.needed == needed)
        if share < needed:
            wrong.append(f"on other software {share:.5f} of the places agree, fewer than {needed}")
    share = _share(found)
    lo, hi = wilson(share, len(found))
    return Replayed(
        rows=len(found),
        of=of,
        seed=seed,
        digests_equal=sum(one.digest_equal for one in found),
        probed=PLACES * len(found),
        agree=sum(one.agree for one in found),
        agreement=share,
        lo=lo,
        hi=hi,
        scores_equal=sum(one.score_equal for one in found),
        same_stack=not abroad,
        holds=not wrong,
        disagreements=wrong[:SHOWN],
    )


def _share(rows: Iterable[Compared]) -> float:
    each = [one.agree / PLACES for one in rows]
    return math.fsum(each) / len(each)


def wilson(share: float, n: int) -> tuple[float, float]:
    """95 % score interval of a share whose `n` clusters may each agree or disagree as a whole.

    With rows as clusters it allows for rows that were forged whole and were not drawn. It is never too
    narrow, since a cluster's own share, in [0, 1], varies at most as a yes or no does.
    """
    centre = (share + Z**2 / (2 * n)) / (1 + Z**2 / n)
    half = Z / (1 + Z**2 / n) * math.sqrt(share * (1 - share) / n + Z**2 / (4 * n**2))
    # In exact arithmetic a share of 0 or 1 is an end of its own interval.
    return min(share, max(0.0, centre - half)), max(share, min(1.0, centre + half))
