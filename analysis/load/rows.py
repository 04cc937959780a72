"""What a row says about itself must agree with itself."""

import math

from analysis.load.plan import Level
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
    return ""


def cell_contradiction(row: Cell, level: Level) -> str:
    """The first contradiction inside a cell, in words; empty if there is none.

    Numbers are written with 7 digits, so what is recomputed from them may be off by SLACK.
    """
    log_level = math.log(1 / level.delta)
    # Root by root: products of large numbers would leave the floats.
    bound = math.sqrt(2 * log_level) * math.sqrt(row.variance) + row.largest * log_level
    stated = row.certificate * (row.estimate_norm + level.norm_floor)
    error = row.hajek * (row.norm + level.norm_floor)
    if row.largest * row.largest > row.variance * (1 + SLACK) + TINY * TINY:
        return f"largest {row.largest} squared exceeds the variance {row.variance}, of which it is one term"
    if max(bound, stated) > min(bound, stated) * (1 + SLACK) + TINY:
        return f"certificate {row.certificate} does not follow from variance, largest and estimate_norm"
    if (error > stated * (1 + SLACK) + TINY) if row.covered else (stated > error * (1 + SLACK) + TINY):
        truth = "covered" if row.covered else "not covered"
        return f"it is called {truth}, against its certificate {row.certificate} and error {row.hajek}"
    if row.tail_kept > row.kept:
        return f"tail_kept {row.tail_kept} exceeds kept {row.kept}"
    for name in ("kept", "uniform_kept", "expected_kept"):
        if getattr(row, name) > row.evictable * (1 + SLACK):
            return f"{name} {getattr(row, name)} exceeds evictable {row.evictable}"
    return ""


def world_contradiction(row: World, heads: int) -> str:
    """Whether the lists of a world run over the heads of a layer; empty if they do."""
    for name in ("topk", "hajek", "certificate", "covered"):
        if len(getattr(row, name)) != heads:
            return f"{name} has {len(getattr(row, name))} numbers for {heads} heads"
    return ""
