"""Where two answers to one prompt part, and whether a near-tie of two tokens explains it.

Greedy decoding takes the likelier token. Where two are nearly as likely, the last bit of a logit decides,
and from there on two machines may answer differently; elsewhere they may not.
"""

from collections.abc import Callable, Sequence

BROKEN = "\ufffd"  # what stands for a part of a character


def parting(tokens: Sequence[int], text: str, decode: Callable[[Sequence[int]], str]) -> int:
    """The first of `tokens`, counted from 0, that does not continue towards `text`; their number if all do.

    Where they part within a character of several tokens, the last of these: none alone can be seen.
    """
    most = len(tokens)
    agreed = max(n for n in range(most + 1) if text.startswith(decode(tokens[:n])))
    if agreed == most:
        return most
    seen = (n for n in range(agreed + 1, most) if not decode(tokens[:n]).endswith(BROKEN))
    return next(seen, most) - 1


def is_near_tie(gaps: Sequence[float], until: int, logged_gap: float, tolerance: float) -> bool:
    """Whether both answers came by a choice that a difference of `tolerance` in logits can turn.

    `gaps` are between the two largest logits, by token of the answer here, and `until` is the token where
    the texts part: a token before it may have been another one with the same beginning. `logged_gap` is
    the smallest gap that the log states.
    """
    return logged_gap <= tolerance and min(gaps[: until + 1]) <= tolerance
