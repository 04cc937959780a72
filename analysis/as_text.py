"""Verdicts and details as plain text for a terminal of 100 columns."""

import textwrap
from collections.abc import Iterator, Sequence

from analysis.decide import Answer, Verdict
from analysis.details import PanelRow, Rate
from analysis.load import Study
from analysis.report import Report, Section, submit_commands
from analysis.statistics import Estimate

WIDTH = 100
SHOWN = 4  # shards or problems per claim; the JSON has them all
RULE = "-" * WIDTH
INDENT = " " * 6
MAIN_SIGNALS = ("certificate", "output_logprob", "entropy")


def to_text(report: Report, *, is_full: bool) -> str:
    """Everything for people; without `is_full` only the main arm and signals of the panel."""
    lines = [*_head(report), *_verdict_table(report), *_variant_tables(report.verdicts)]
    for section in report.sections:
        lines += _panel_tables(section, is_full)
    for section in report.sections:
        for suite in section.registered.content.suites:
            lines += _rate_table("accuracy", suite, section.details.accuracy)
            lines += _rate_table("induced-failure rate", suite, section.details.induced)
    if not is_full:
        lines.append("All arms, signals and tasks: verdicts.md; everything for machines: verdicts.json")
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _head(report: Report) -> Iterator[str]:
    table = report.study.table
    there, total = int(table["present"].sum()), len(table)
    yield f"study {report.study.name}: {there:,} of {total:,} generations"
    for section in report.sections:
        content, digest = section.registered.content, section.registered.digest
        yield from _wrapped(f"  {content.id}  ", f"{content.title} (sha256 {digest[:16]})")
        note = f"existing data: {content.existing_data}. {content.existing_data_note}"
        yield from _wrapped("     ", note)
    yield "PREVIEW: nothing is sealed or locked, so no verdict below is evidence yet."
    yield ""


# ------------------------------------------------------------------ verdicts


def _verdict_table(report: Report) -> Iterator[str]:
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


def _state(verdict: Verdict) -> list[str]:
    return [f"PREVIEW {verdict.answer.state}", *textwrap.wrap(verdict.label, 19)]


def _conditions(verdict: Verdict) -> list[str]:
    claim, answer = verdict.registered.content.claim[verdict.claim_id], verdict.answer
    texts = [f"kill: {claim.kill}: {_word(answer.kill)}"]
    if claim.support is not None:
        texts.append(f"support: {claim.support}: {_word(answer.support)}")
    return [line for text in texts for line in textwrap.wrap(text, 37, subsequent_indent="  ")]


def _observed(answer: Answer) -> list[str]:
    lines = []
    for name, number in answer.quantities.items():
        remark = "; ".join(part for part in (number.undefined, number.note) if part)
        text = f"{name} {_number(number)}" + (f" ({remark})" if remark else "")
        lines += textwrap.wrap(text, WIDTH - 64, subsequent_indent="  ")
    return lines


def _why_not(study: Study, answer: Answer) -> Iterator[str]:
    for problem in answer.problems[:SHOWN]:
        yield from _wrapped(INDENT, problem)
    for part in answer.missing[:SHOWN]:
        count = f"{part.rows:,} of {part.of:,} rows missing"
        yield from _wrapped(INDENT, f"{part.suite}/{part.shard_id}: {count}, {part.reason}")
    if more := len(answer.problems[SHOWN:]):
        yield f"{INDENT}and {more} more"
    if rest := answer.missing[SHOWN:]:
        yield f"{INDENT}and {sum(part.rows for part in rest):,} rows in {len(rest)} more shards"
    for command in submit_commands(study, answer.missing):
        yield f"{INDENT}run: {command}"


# ------------------------------------------------------------------ readings and sensitivities


def _variant_tables(verdicts: Sequence[Verdict]) -> Iterator[str]:
    yield "Readings (another population or label) and sensitivities (another choice): no verdicts."
    yield "'moves': the claim's verdict would be another one."
    for verdict in verdicts:
        names = list(verdict.registered.content.claim[verdict.claim_id].quantities)
        yield RULE
        yield f"{verdict.claim_id:36}{'kill':9}" + "".join(f"{name:{_width(name)}}" for name in names)
        yield _variant("as registered", verdict.answer, names)
        for name, answer in verdict.readings.items():
            yield _variant(f"reading: {name}", answer, names)
        for name, answer in verdict.sensitivity.items():
            yield _variant(name, answer, names) + ("moves" if verdict.moves(name) else "")
    yield ""


def _variant(title: str, answer: Answer, names: Sequence[str]) -> str:
    if answer.quantities:
        cells = "".join(f"{_number(answer.quantities[name]):{_width(name)}}" for name in names)
    else:
        cells = answer.state.lower()
    return f"  {title:34}{_word(answer.kill):9}{cells}"


def _width(name: str) -> int:
    return 10 if name == "visible" else 24


# ------------------------------------------------------------------ details


def _panel_tables(section: Section, is_full: bool) -> Iterator[str]:
    main = section.registered.content.details.arm
    rows = [
        row
        for row in section.details.panel
        if is_full or (row.arm == main and row.tasks == "real" and row.signal in MAIN_SIGNALS)
    ]
    for suite, tasks, arm in dict.fromkeys((row.suite, row.tasks, row.arm) for row in rows):
        yield f"AUC on {suite}, {tasks} tasks, arm {arm}"
        yield (f"{'label':17}{'signal':16}{'positive/rows':>15}  {'pooled':22}{'stratified':22}cell")
        yield RULE
        for row in rows:
            if (row.suite, row.tasks, row.arm) == (suite, tasks, arm):
                yield _panel_line(row)
        yield ""


def _panel_line(row: PanelRow) -> str:
    size = f"{row.positives:,}/{row.pooled.n:,}"
    return f"{row.label:17}{row.signal:16}{size:>15}  {row.pooled!s:22}{row.stratified!s:22}{row.cell_label}"


def _rate_table(title: str, suite: str, rates: Sequence[Rate]) -> Iterator[str]:
    here = [rate for rate in rates if rate.suite == suite]
    if not here:
        return
    tasks = list(dict.fromkeys(rate.task for rate in here if rate.task is not None))
    cells = {(rate.arm, rate.condition, rate.budget, rate.task): rate.estimate for rate in here}
    yield f"{title}, {suite}"
    heads = "".join(f"{task[:12]:>13}" for task in tasks)
    yield f"{'arm':16}{'condition':10}{'budget':6}{heads}   real tasks"
    yield RULE
    for arm, condition, budget in dict.fromkeys(key[:3] for key in cells):
        key = (arm, condition, budget)
        points = [_point(cells.get((*key, task))) for task in tasks]
        row = "".join(f"{point:>13}" for point in points)
        amount = "" if budget is None else f"{budget:g}"
        pooled = cells.get((*key, None))
        yield f"{arm:16}{condition or '':10}{amount:6}{row}   {'-' if pooled is None else pooled}"
    yield ""


# ------------------------------------------------------------------ words


def _number(estimate: Estimate) -> str:
    is_count = estimate.value is not None and not estimate.clusters
    return f"{estimate.value:g}" if is_count else str(estimate)


def _point(estimate: Estimate | None) -> str:
    return "-" if estimate is None or estimate.value is None else f"{estimate.value:.3f}"


def _word(truth: bool | None) -> str:
    return {True: "true", False: "false", None: "unknown"}[truth]


def _wrapped(head: str, text: str) -> list[str]:
    rest = " " * len(head)
    lines = textwrap.wrap(text, WIDTH, initial_indent=head, subsequent_indent=rest)
    return lines or [head]
