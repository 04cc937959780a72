"""Amendments as text: the first seal, every step after it, and how to get the verdict before each."""

from collections.abc import Iterator

from analysis.sealed.amendments import Step
from analysis.sealed.seals import SHORT, Seal
from analysis.verdict.before import commands
from analysis.verdict.evidence import stamp_lines
from analysis.verdict.report import Report
from analysis.verdict.words import wrapped
from kvexp.prereg.forms import Stamp
from kvexp.terminal import printable

STAGES = {"before-data": "amended before data", "after-data": "amended after data"}


def amendment_lines(report: Report, *, is_full: bool) -> Iterator[str]:
    """Lines of the section; nothing if nothing was amended."""
    amended = {name: seal for name, seal in sorted(report.bound.seals.items()) if seal.steps}
    for name, seal in amended.items():
        yield from _line(f"AMENDMENTS of {name}, first sealed as ", seal.steps[0].stated.replaces[:SHORT])
        for step in seal.steps:
            yield from _step(step, report, seal) if is_full else _short(step)
    if amended:
        yield ""


def _short(step: Step) -> Iterator[str]:
    yield from _line(f"  {step.name} {STAGES[step.stated.stage]}: ", f"{step.stated.why}; {_touched(step)}")


def _step(step: Step, report: Report, seal: Seal) -> Iterator[str]:
    stated = step.stated
    yield from _line(f"  seal {stated.replaces[:SHORT]}", _stamped(step, report))
    for stamp in _stamps(step, report):
        yield from stamp_lines("     stamped ", stamp)
    made = (
        f"{STAGES[stated.stage]}, {stated.attempts} attempts and {stated.looks} recorded looks: {stated.why}"
    )
    yield from _line(f"  {step.name} ", made)
    yield from _line("     data seen: ", stated.data_seen)
    for path, kind in sorted(stated.files.items()):
        yield from _line("     ", f"{kind}  {path}")
    yield from _line("     ", _touched(step))
    for line in step.lines:
        yield from _line("     ", line)
    yield from commands(step, report.study.name, seal, report.bound.seals.get(seal.parent or ""))


def _touched(step: Step) -> str:
    """Which claims it touches, and by what."""
    if step.shared:
        return f"touches every claim: {', '.join(step.shared)}"
    claims = [f"{name} ({', '.join(what)})" for name, what in step.claims.items()]
    return f"touches {', '.join(claims)}" if claims else "touches no claim"


def _stamped(step: Step, report: Report) -> str:
    if _stamps(step, report):
        return ""
    is_known = report.bound.shown.evidence is not None
    return ": no time stamp" if is_known else f": for its time stamp run kvexp verify {report.study.name}"


def _stamps(step: Step, report: Report) -> list[Stamp]:
    """Of the seal that it replaced, as the evidence has them."""
    found = report.bound.shown.evidence
    steps = [] if found is None else found.amendments
    return [stamp for one in steps if one.replaces == step.stated.replaces for stamp in one.stamps]


def _line(head: str, text: str) -> list[str]:
    return wrapped(printable(head), printable(text))
