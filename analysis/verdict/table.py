"""The verdict table: claim, state, conditions, observed numbers; and why a claim is not decided."""

import textwrap
from collections.abc import Iterator

from analysis.decide import Answer, Verdict, not_planned
from analysis.verdict.report import Report
from analysis.verdict.words import RULE, WIDTH, number, word, wrapped

SHOWN = 4  # shards per claim; the JSON has them all
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
        head = f"{verdict.claim_id:6}{report.word(verdict):20}"
        words = [part for part in (report.amended(verdict), statement) if part]
        yield from wrapped(head, "; ".join(words))
    if report.marks:
        yield ", ".join([f"study {report.study.name}", *report.marks])


def _state(report: Report, verdict: Verdict) -> list[str]:
    fragile = verdict.fragile
    words = [report.label(verdict), *report.history(verdict)]
    if fragile is not None and fragile.differ and not report.is_blind:
        words.append(f"fragile {fragile.differ}/{fragile.of}")
    return [report.word(verdict), *(line for text in words for line in textwrap.wrap(text, 19))]


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
    for part in answer.missing[:SHOWN]:
        count = f"{part.rows:,} of {part.of:,} {part.nouns} missing"
        yield from wrapped(INDENT, f"{part.suite}/{part.shard_id}: {count}, {part.reason}")
    if rest := answer.missing[SHOWN:]:
        yield f"{INDENT}and {sum(part.rows for part in rest):,} {rest[0].nouns} in {len(rest)} more shards"
    for command in report.commands(answer):
        yield f"{INDENT}run: {command}"
