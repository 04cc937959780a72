"""Verdicts as plain text of 100 columns: what the analysis prints and verdicts.md holds."""

import sys
import textwrap
from collections.abc import Iterator, Mapping

from analysis.core.decide import Answer, Verdict, not_planned
from analysis.core.estimates import Estimate
from analysis.core.seals import SHORT, AmendmentStep
from analysis.core.study import Study
from analysis.core.verdicts import Report
from kvexp.documents.forms import GRADES, Evidence, LockEvidence, SealEvidence, vouched
from kvexp.documents.registration import Registered
from kvexp.errors import printable

WIDTH = 100
RULE = "-" * WIDTH
INDENT = " " * 6
SHOWN = 20  # integrity problems
SHOWN_PROBLEMS = 4  # shards per claim; the JSON has them all
FEW = 3
WORD = "as told by evidence.json, whose digests fit the files here; no time stamp was checked again"
STAGES = {"before-data": "amended before data", "after-data": "amended after data"}


def number(estimate: Estimate) -> str:
    """A count as a whole number, everything else with its interval."""
    is_count = estimate.value is not None and not estimate.clusters
    return f"{estimate.value:g}" if is_count else str(estimate)


def point(estimate: Estimate | None) -> str:
    """A value without its interval; "-" where there is none."""
    return "-" if estimate is None or estimate.value is None else f"{estimate.value:.3f}"


def word(truth: bool | None) -> str:
    """A three-valued truth."""
    return {True: "true", False: "false", None: "unknown"}[truth]


def wrapped(head: str, text: str) -> list[str]:
    """Text behind a head, as many lines as it takes, indented like the first."""
    rest = " " * len(head)
    lines = textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=rest)
    return lines or [head]


def joined(lines: list[str]) -> str:
    """Lines as text that ends with one line break."""
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def to_text(report: Report) -> str:
    """Everything that was decided."""
    lines = list(_head(report))
    if report.verdicts:
        lines += verdict_table(report)
    else:
        lines += ["No claim is registered: whatever follows is exploratory.", ""]
    lines += _amendments(report)
    lines += _evidence(report)
    if report.verdicts:
        lines += variant_tables(report)
    return joined(lines)


# The head: what was registered, how much of it is there, and what is wrong with it.


def _head(report: Report) -> Iterator[str]:
    name = ", ".join([f"study {report.study.name}", *report.marks])
    yield f"{name}: {', '.join(_sizes(report.study))}"
    for registered in report.registrations:
        yield from _registration(report, registered)
    for note in report.bound.notes:
        yield from wrapped("  note: ", printable(note))
    if report.unplanned:
        yield from wrapped("  not in the grid yet: ", ", ".join(report.unplanned))
    yield from _problems(report.study)
    yield from _provisional(report)
    yield ""


def _registration(report: Report, registered: Registered) -> Iterator[str]:
    content = registered.content
    yield from wrapped(f"  {content.id}  ", content.title)
    seal = report.bound.seals.get(content.id)
    sealed = "not sealed" if seal is None else f"seal {seal.id[:SHORT]}"
    yield f"     sha256 {registered.digest[:16]}; {sealed}; existing data: {content.existing_data}"


def _problems(study: Study) -> Iterator[str]:
    problems = study.problems
    if not problems:
        return
    yield ""
    yield f"INTEGRITY: {len(problems)} problem{'s' if len(problems) > 1 else ''} in the logs"
    for problem in problems[:SHOWN]:
        yield from wrapped("  ", problem.message)
    if len(problems) > SHOWN:
        yield f"  and {len(problems) - SHOWN} more, in verdicts.json"
    yield ""


def _provisional(report: Report) -> Iterator[str]:
    """What a preview lacks, each reason once."""
    if report.is_blind:
        yield "BLIND: outcomes are permuted within model and task, so that nothing below is a result."
    elif not report.bound.seals:
        yield "PREVIEW: nothing is sealed or locked, so no verdict below is evidence yet."
    else:
        reasons = dict.fromkeys(reason for one in report.verdicts for reason in report.provisional(one))
        if reasons:
            yield from wrapped("PREVIEW, not evidence yet: ", "; ".join(reasons))


def _sizes(study: Study) -> Iterator[str]:
    """How much is there of each kind of row that the study has."""
    kinds = [(study.table, "generations"), (study.cells, "cells")]
    for table, nouns in [kind for kind in kinds if len(kind[0])] or kinds[:1]:
        yield f"{int(table['present'].sum()):,} of {len(table):,} {nouns}"


# The verdict table: claim, state, conditions, observed numbers; and why a claim is not decided.


def verdict_table(report: Report) -> Iterator[str]:
    """Lines of the table."""
    yield f"{'claim':6}{'verdict':20}{'condition':38}observed"
    yield RULE
    for verdict in report.verdicts:
        columns = [_state(report, verdict), _conditions(verdict), _observed(verdict.answer)]
        for at in range(max(map(len, columns))):
            state, condition, seen = (column[at] if at < len(column) else "" for column in columns)
            name = verdict.claim_id if at == 0 else ""
            yield f"{name:6}{state:20}{condition:38}{seen}"
        yield from _why_not(report, verdict.answer)
    yield ""


def summary(report: Report) -> Iterator[str]:
    """Every claim, for the end of a long page, and last the marks of its title."""
    for verdict in report.verdicts:
        statement = verdict.registered.content.claim[verdict.claim_id].statement
        head = f"{verdict.claim_id:6}{report.word(verdict):19} "
        words = [part for part in (report.amended(verdict), statement) if part]
        yield from wrapped(head, "; ".join(words))
    if report.marks:
        yield ", ".join([f"study {report.study.name}", *report.marks])


def _state(report: Report, verdict: Verdict) -> list[str]:
    fragile = verdict.fragile
    words = [report.label(verdict), *report.history(verdict)]
    if fragile is not None and fragile.differ and not report.is_blind:
        words.append(f"fragile {fragile.differ}/{fragile.of}")
    return [line for text in (report.word(verdict), *words) for line in textwrap.wrap(text, 19)]


def _conditions(verdict: Verdict) -> list[str]:
    claim, answer = verdict.registered.content.claim[verdict.claim_id], verdict.answer
    texts = [f"kill: {claim.kill}: {word(answer.kill)}"]
    if claim.support is not None:
        texts.append(f"support: {claim.support}: {word(answer.support)}")
    return [line for text in texts for line in textwrap.wrap(text, 37, subsequent_indent="  ")]


def _observed(answer: Answer) -> list[str]:
    lines = []
    for name, found in answer.quantities.items():
        remark = "; ".join(part for part in (found.undefined, found.note) if part)
        text = f"{name} {number(found)}" + (f" ({remark})" if remark else "")
        lines += textwrap.wrap(text, WIDTH - 64, subsequent_indent="  ")
    return lines


def _why_not(report: Report, answer: Answer) -> Iterator[str]:
    if found := len(answer.problems):
        words = "problem touches its rows" if found == 1 else "problems touch its rows"
        yield f"{INDENT}{found} of the integrity {words}"
    for suite in answer.unplanned:
        yield from wrapped(INDENT, not_planned(suite))
    for part in answer.missing[:SHOWN_PROBLEMS]:
        count = f"{part.rows:,} of {part.of:,} {part.nouns} missing"
        yield from wrapped(INDENT, f"{part.suite}/{part.shard_id}: {count}, {part.reason}")
    if rest := answer.missing[SHOWN_PROBLEMS:]:
        yield f"{INDENT}and {sum(part.rows for part in rest):,} {rest[0].nouns} in {len(rest)} more shards"
    for command in report.commands(answer):
        yield f"{INDENT}run: {command}"


# What binds the claims: amendments and evidence in few words. evidence.md has all of it.


def _amendments(report: Report) -> Iterator[str]:
    amended = {name: seal for name, seal in sorted(report.bound.seals.items()) if seal.steps}
    for name, seal in amended.items():
        head = f"AMENDMENTS of {name}, first sealed as "
        yield from wrapped(head, seal.steps[0].stated.replaces[:SHORT])
        for step in seal.steps:
            head = f"  {step.name} {STAGES[step.stated.stage]}: "
            yield from wrapped(head, printable(f"{step.stated.why}; {touched(step)}"))
    if amended:
        yield ""


def touched(step: AmendmentStep) -> str:
    """Which claims an amendment touches, and by what."""
    if step.shared:
        return f"touches every claim: {', '.join(step.shared)}"
    claims = [f"{name} ({', '.join(what)})" for name, what in step.claims.items()]
    return f"touches {', '.join(claims)}" if claims else "touches no claim"


def _evidence(report: Report) -> Iterator[str]:
    shown, study = report.bound.shown, report.study.name
    if shown.evidence is not None:
        yield from wrapped("EVIDENCE ", f"{WORD}: run kvexp verify {shown.evidence.study} yourself")
        for head, text in _told(shown.evidence):
            yield from wrapped(printable(head), printable(text))
        yield ""
    elif shown.note or report.bound.seals:
        yield from wrapped("EVIDENCE: ", printable(shown.note or missing_evidence(study)))
        yield ""


def missing_evidence(study: str) -> str:
    """Why there is no evidence although there are seals."""
    return f"there is no evidence.json: run kvexp verify {study}"


def _told(found: Evidence) -> Iterator[tuple[str, str]]:
    failing = [one for one in found.checks if one.holds is False]
    yield from (("  FAILS: ", check.words) for check in failing[:FEW])
    yield from (("  ", check.words) for check in found.checks if check.name.startswith("existing data"))
    for seal in [one for one in found.seals if one.seal is not None][:FEW]:
        times = ", ".join(stamp.time for stamp in seal.stamps) or "no time stamp"
        yield f"  seal {seal.id} {str(seal.seal)[:SHORT]}: ", f"{times}; {worth(seal)}"
    counted = sum(one.counts for one in found.attempts)
    locks = ", ".join(one.suite for one in found.locks if one.manifest is not None) or "none"
    words = f"attempts: {counted} counted, {len(found.attempts) - counted} not; locks: {locks}"
    yield "  ", f"{words}; looks before the lock: {len(found.looks)}"
    told = [one.holds for one in found.checks]
    words = f"{told.count(True)} hold, {told.count(False)} fail, {told.count(None)} open"
    yield "  ", f"checks: {words}; in full, with what no file can exclude: evidence.md"


def worth(one: SealEvidence | LockEvidence) -> str:
    """What the time stamps of a seal or lock prove."""
    return vouched(one.stamps) if one.stamps else GRADES[one.grade]


# Readings and sensitivities beside each claim: numbers and truths, no verdicts.


def variant_tables(report: Report) -> Iterator[str]:
    """Lines of one table per claim."""
    yield "Readings (another population or label) and sensitivities (another choice): no verdicts."
    yield "'moves': the claim's verdict would be another one."
    for verdict in report.verdicts:
        declared = verdict.registered.content.claim[verdict.claim_id].quantities
        widths = {name: len(name) + 3 if q.count else 23 for name, q in declared.items()}
        yield RULE
        yield f"{verdict.claim_id:30}{'kill':9}" + _cells({name: name for name in widths}, widths)
        yield _variant("as registered", verdict.answer, widths)
        for name, answer in verdict.readings.items():
            yield _variant(f"reading: {name}", answer, widths)
        for name, answer in verdict.sensitivity.items():
            line = _variant(name, answer, widths)
            yield f"{line}{'' if line.endswith(' ') else ' '}moves" if verdict.moves(name) else line
    yield ""


def _variant(title: str, answer: Answer, widths: Mapping[str, int]) -> str:
    numbers = {name: number(found) for name, found in answer.quantities.items()}
    cells = _cells(numbers, widths) if numbers else answer.state.lower()
    return f"  {title:28}{word(answer.kill):9}{cells}"


def _cells(texts: Mapping[str, str], widths: Mapping[str, int]) -> str:
    return "".join(f"{texts[name]:{width}}" for name, width in widths.items())


# How the analysis puts text into Markdown, and how it complains.


def block(title: str, text: str) -> str:
    """Markdown of a text as it is. Indented, not fenced: no text can end an indented block."""
    return f"# {title}\n\n{textwrap.indent(text, '    ')}"


def complain(text: str) -> None:
    """One line on stderr, whatever the names and messages in it hold."""
    print(printable(text), file=sys.stderr)
