"""The verdict table: claim, state, conditions, observed numbers; and why a claim is not decided."""

import textwrap
from collections.abc import Iterator

from analysis.decide import Answer, Verdict, not_planned
from analysis.load import Study
from analysis.report import Report, submit_commands
from analysis.text.words import RULE, WIDTH, number, word, wrapped

SHOWN = 4  # shards per claim; the JSON has them all
INDENT = " " * 6


def verdict_table(report: Report) -> Iterator[str]:
    """Lines of the table."""
    yield f"{'claim':6}{'verdict':20}{'condition':38}observed"
    yield RULE
    for verdict in report.verdicts:
        columns = [_state(verdict), _conditions(verdict), _observed(verdict.answer)]
        for at in range(max(map(len, columns))):
            state, condition, seen = (column[at] if at < len(column) else "" for column in columns)
            name = verdict.claim_id if at == 0 else ""
            yield f"{name:6}{state:20}{condition:38}{seen}"
        yield from _why_not(report.study, verdict.answer)
    yield ""


def summary(verdicts: list[Verdict]) -> Iterator[str]:
    """One line a claim, for the end of a long page."""
    for verdict in verdicts:
        statement = verdict.registered.content.claim[verdict.claim_id].statement
        state = f"PREVIEW {verdict.answer.state}"
        yield f"{verdict.claim_id:6}{state:20}{textwrap.shorten(statement, WIDTH - 26, placeholder=' ...')}"


def _state(verdict: Verdict) -> list[str]:
    return [f"PREVIEW {verdict.answer.state}", *textwrap.wrap(verdict.label, 19)]


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


def _why_not(study: Study, answer: Answer) -> Iterator[str]:
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
    for command in submit_commands(study, answer):
        yield f"{INDENT}run: {command}"
