"""Verdicts and details as plain text for a terminal of 100 columns."""

from collections.abc import Iterator

from analysis.report import Report
from analysis.text.details import panel_tables, rate_table
from analysis.text.variants import variant_tables
from analysis.text.verdicts import summary, verdict_table
from analysis.text.words import wrapped

SHOWN = 20  # integrity problems


def to_text(report: Report, *, is_full: bool) -> str:
    """Everything for people; without `is_full` only the main arm and signals of the panel."""
    lines = [*_head(report, is_full=is_full), *verdict_table(report), *variant_tables(report.verdicts)]
    lines += [
        "AUC beside the verdicts, with bootstrap draws of their own. stratified: pairs within model, task,",
        "condition and budget; cell: what the bare condition x budget label tells without any signal.",
        "",
    ]
    for section in report.sections:
        lines += panel_tables(section, is_full)
    for section in report.sections:
        for suite in section.registered.content.suites:
            lines += rate_table("accuracy", suite, section.details.accuracy)
            lines += rate_table("induced-failure rate", suite, section.details.induced)
            if is_full:
                lines += rate_table("rescue rate", suite, section.details.rescued)
    if not is_full:
        lines += ["All arms, signals and tasks: verdicts.md; everything for machines: verdicts.json", ""]
        lines += summary(report.verdicts)
    return "\n".join(line.rstrip() for line in lines).rstrip() + "\n"


def _head(report: Report, *, is_full: bool) -> Iterator[str]:
    table = report.study.table
    there, total = int(table["present"].sum()), len(table)
    yield f"study {report.study.name}: {there:,} of {total:,} generations"
    for section in report.sections:
        content, digest = section.registered.content, section.registered.digest
        yield from wrapped(f"  {content.id}  ", content.title)
        yield f"     sha256 {digest[:16]}; existing data: {content.existing_data}"
        if is_full:
            yield from wrapped("     ", content.existing_data_note)
    problems = report.study.problems
    if problems:
        yield ""
        yield f"INTEGRITY: {len(problems)} problem{'s' if len(problems) > 1 else ''} in the logs"
        for problem in problems[:SHOWN]:
            yield from wrapped("  ", problem.message)
        if len(problems) > SHOWN:
            yield f"  and {len(problems) - SHOWN} more, in verdicts.json"
        yield ""
    yield "PREVIEW: nothing is sealed or locked, so no verdict below is evidence yet."
    yield ""
