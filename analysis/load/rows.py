"""What a row says about itself must agree with itself."""

import math

from analysis.load.plan import Settings
from kvexp.records import SIGNALS, Cell, Generation, World

SLACK = 1e-5  # relative: 7 written digits, through a sum and a square root
TINY = 1e-150  # below it a square leaves the floats, and digits are lost


def contradiction(row: Generation) -> str:
    """The first contradiction inside a row, in words; empty if there is none."""
    steps = row.certificate_steps
    if (steps is None) != (row.certificate is None):
        return "certificate and certificate_steps are not there together"
    if steps is not None and not steps:
        return "certificate_steps is empty"
    if steps is not None and row.certificate != max(steps):
        return f"certificate {row.certificate} is not the largest of certificate_steps, {max(steps)}"
    absent = {name for name in SIGNALS if getattr(row, name) is None}
    if unexplained := sorted(absent - row.undefined.keys()):
        return f"{unexplained[0]} is null without a reason in undefined"
    if needless := sorted(row.undefined.keys() - absent):
        return f"undefined gives a reason for {needless[0]}, which is there or is no signal"
    return _kept_contradiction(row)


def _kept_contradiction(row: Generation) -> str:
    """Whether the sizes of the kept set lie within each other; they are means of float32 sums."""
    for name in ("expected_kept", "realised_kept"):
        if not 0 <= getattr(row, name) <= row.n_evictable * (1 + SLACK):
            return f"{name} {getattr(row, name)} is not between 0 and {row.n_evictable} evictable tokens"
    if row.tail_kept is not None and not 0 <= row.tail_kept <= row.realised_kept * (1 + SLACK):
        return f"tail_kept {row.tail_kept} is not between 0 and {row.realised_kept} kept tokens"
    return ""


def cell_contradiction(row: Cell, settings: Settings) -> str:
    """The first contradiction inside a cell or with its attempt's config, in words; empty if there is none.

    Numbers are written with 7 digits, so what is recomputed from them may be off by SLACK.
    """
    level = settings.protocol
    log_level = -math.log(level.delta)
    # Root by root: squares of small numbers would lose their digits.
    bound = math.sqrt(2 * log_level) * math.sqrt(row.variance) + row.largest * log_level
    stated = row.certificate * (row.estimate_norm + level.norm_floor)
    square = row.largest * row.largest
    if row.score != settings.attention.score:
        return f"score {row.score} is not that of its attempt, {settings.attention.score}"
    if square > row.variance * (1 + SLACK) + TINY * TINY:
        return f"largest {row.largest} squared exceeds the variance {row.variance}, of which it is one term"
    if row.variance > row.tail_kept * square * (1 + SLACK) + TINY * TINY:
        return f"variance {row.variance} exceeds {row.tail_kept} terms of which the largest is {square:g}"
    if max(bound, stated) > min(bound, stated) * (1 + SLACK) + TINY:
        return f"certificate {row.certificate} does not follow from variance, largest and estimate_norm"
    certified = (row.covered, row.certificate, row.hajek, row.norm, row.estimate_norm)
    return _error_contradiction(*certified, level.norm_floor) or _count_contradiction(row, settings)


def _error_contradiction(
    covered: bool, certificate: float, hajek: float, norm: float, estimate_norm: float, floor: float
) -> str:
    """Whether the error fits its flag, and the two norms, between which it lies (triangle inequality)."""
    stated, error = certificate * (estimate_norm + floor), hajek * (norm + floor)
    if (error > stated * (1 + SLACK) + TINY) if covered else (stated > error * (1 + SLACK) + TINY):
        truth = "covered" if covered else "not covered"
        return f"it is called {truth}, against its certificate {certificate} and error {hajek}"
    slack = SLACK * (norm + estimate_norm) + TINY
    if not abs(norm - estimate_norm) - slack <= error <= norm + estimate_norm + slack:
        return f"no estimate of norm {estimate_norm} is {error:g} away from an output of norm {norm}"
    return ""


def _count_contradiction(row: Cell, settings: Settings) -> str:
    """Whether the kept tokens fit the budget rule."""
    protected = settings.protocol.sinks + settings.protocol.recent
    if row.tail_kept > row.kept:
        return f"tail_kept {row.tail_kept} exceeds kept {row.kept}"
    for name in ("kept", "uniform_kept", "expected_kept"):
        value = getattr(row, name)
        if not protected * (1 - SLACK) <= value <= row.evictable * (1 + SLACK):
            return f"{name} {value} is not between {protected} protected and {row.evictable} evictable tokens"
    design, slots = settings.attention.design_params, round(row.budget * row.evictable)
    if design.allocation == "iterated" and row.expected_kept < slots * (1 - SLACK):
        return (
            f"expected_kept {row.expected_kept} is less than the {slots} that an iterated allocation spends"
        )
    # Where few scores are above 0 the floor of pi comes on top of the budget.
    if row.expected_kept > (slots + design.floor * row.evictable) * (1 + SLACK):
        return f"expected_kept {row.expected_kept} exceeds the budget {row.budget} of {row.evictable} tokens"
    return ""


def world_contradiction(row: World, heads: int, settings: Settings) -> str:
    """The first contradiction inside a world or with its attempt's config, in words; empty if none."""
    for name in ("norm", "estimate_norm", "topk", "hajek", "certificate", "covered"):
        if len(getattr(row, name)) != heads:
            return f"{name} has {len(getattr(row, name))} numbers for {heads} heads"
    conf = settings.attention
    score = conf.rotation_score if row.change == "rotation" else conf.score
    place = (row.budget, row.seed, row.offset, row.score)
    if place != (conf.world_budget, conf.seeds[0], conf.query_offsets[0], score):
        return "its budget, seed, offset or score is not that of its attempt"
    columns = (row.covered, row.certificate, row.hajek, row.norm, row.estimate_norm)
    for head, numbers in enumerate(zip(*columns, strict=True)):
        if words := _error_contradiction(*numbers, settings.protocol.norm_floor):
            return f"head {head}: {words}"
    return ""
