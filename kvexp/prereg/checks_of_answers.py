"""What answering examples again bears out, in one sentence."""

from collections.abc import Iterator

from kvexp.prereg.forms import Check, Regenerated


def answers_check(again: Regenerated) -> Check:
    """The sentence of `kvexp verify --decode`."""
    words = "; ".join(_parts(again))
    return Check(name="answers", holds=again.holds, words=words)


def _parts(again: Regenerated) -> Iterator[str]:
    stack = "the software of the attempts" if again.same_stack else "other software than the attempts'"
    yield (
        f"{again.examples} of {again.of} examples were answered again with all arms on {stack} (chosen by "
        f"--seed {again.seed})"
    )
    yield (
        f"{again.equal} of {again.rows} rows are the logged ones in every digit, {again.texts_equal} have "
        f"the same text and {again.keep_sets_equal} the same keep set"
    )
    if again.near_ties:
        yield f"{again.near_ties} texts part at a near-tie of two tokens"
    if not again.same_stack and again.largest:
        name, value = max(again.largest.items(), key=lambda item: item[1])
        yield f"the largest difference of a signal that can be compared is {value:.2g} ({name})"
    if again.failed or again.missing:
        yield f"left out: {again.failed} examples that failed and {again.missing} that lack rows"
    if again.disagreements:
        yield f"{len(again.disagreements)} disagreements, first: {again.disagreements[0]}"
