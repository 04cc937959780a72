"""Verdicts as plain text for a terminal of 100 columns."""

import textwrap
from collections.abc import Iterator, Mapping

from analysis.core.decide import Answer, Verdict, not_planned
from analysis.core.evidence_text import amendment_lines, evidence_lines
from analysis.core.seals import SHORT
from analysis.core.study import Study
from analysis.core.verdicts import Report
from analysis.core.words import RULE, WIDTH, number, word, wrapped
from kvexp.documents.registration import Registered
from kvexp.errors import printable

# The verdict table: claim, state, conditions, observed numbers; and why a claim is not decided.


SHOWN_PROBLEMS = 4  # shards per claim; the JSON has them all
INDENT = " " * 6


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


SHOWN = 20  # integrity problems


def to_text(report: Report, *, is_full: bool) -> str:
    """Everything that was decided; without `is_full` the evidence in few lines."""
    lines = list(_head(report, is_full=is_full))
    if report.verdicts:
        lines += verdict_table(report)
    else:
        lines += ["No claim is registered: whatever follows is exploratory.", ""]
    lines += amendment_lines(report, is_full=is_full)
    lines += evidence_lines(report, is_full=is_full)
    if report.verdicts:
        lines += variant_tables(report)
    return joined(lines)


def joined(lines: list[str]) -> str:
    """Lines as text that ends with one line break."""
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _head(report: Report, *, is_full: bool) -> Iterator[str]:
    name = ", ".join([f"study {report.study.name}", *report.marks])
    yield f"{name}: {', '.join(_sizes(report.study))}"
    for registered in report.registrations:
        yield from _registration(report, registered, is_full)
    for note in report.bound.notes:
        yield from wrapped("  note: ", printable(note))
    if report.unplanned:
        yield from wrapped("  not in the grid yet: ", ", ".join(report.unplanned))
    yield from _problems(report.study)
    yield from _provisional(report)
    yield ""


def _registration(report: Report, registered: Registered, is_full: bool) -> Iterator[str]:
    content = registered.content
    yield from wrapped(f"  {content.id}  ", content.title)
    seal = report.bound.seals.get(content.id)
    sealed = "not sealed" if seal is None else f"seal {seal.id[:SHORT]}"
    yield f"     sha256 {registered.digest[:16]}; {sealed}; existing data: {content.existing_data}"
    if is_full:
        yield from wrapped("     ", content.existing_data_note)


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
