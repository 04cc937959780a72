"""Table 1: the claims and what became of them, as the report says it; nothing is computed here."""

from collections.abc import Iterator

from analysis.core.decide import Verdict, not_planned
from analysis.core.verdicts import Report
from analysis.core.words import number
from analysis.describe.parts import Part
from analysis.describe.scope import Scope
from analysis.describe.table import Column, Table, Value

CAUTION = "The verdicts as verdicts.json has them; nothing is computed here."
CLAIMS = (
    Column("claim", "claim"),
    Column("statement", "statement"),
    Column("kill", "kill condition"),
    Column("condition", "as an expression"),
    Column("observed", "observed"),
    Column("verdict", "verdict"),
    Column("label", "in the registration's words"),
    Column("remarks", "remarks"),
)
QUANTITIES = (
    Column("claim", "claim"),
    Column("quantity", "quantity"),
    Column("meaning", "meaning"),
    Column("value", "estimate", "share", is_estimate=True),
    Column("rows", "rows"),
    Column("clusters", "clusters"),
    Column("note", "note"),
)


def verdicts(scope: Scope) -> Part | None:
    """A line for each claim, and a second table with a line for each of its numbers (Table 1)."""
    report = scope.report
    if not report.verdicts:
        return None
    title = ", ".join([f"The registered claims of study {report.study.name}", *report.marks])
    rows = tuple(tuple(_claim(report, verdict)) for verdict in report.verdicts)
    made = Table("table1", title, CLAIMS, rows, tuple(_previews(report)), caution=CAUTION)
    numbers = Table(
        "table1_quantities",
        f"{title}: their numbers",
        QUANTITIES,
        tuple(row for verdict in report.verdicts for row in _quantities(verdict)),
        caution=CAUTION,
    )
    return Part("verdicts", "The claims and what became of them", tables=(made, numbers))


def _claim(report: Report, verdict: Verdict) -> Iterator[Value]:
    claim = verdict.registered.content.claim[verdict.claim_id]
    yield verdict.claim_id
    yield claim.statement
    yield claim.kill_prose
    yield claim.kill
    yield "; ".join(f"{name} {number(found)}" for name, found in verdict.answer.quantities.items())
    yield report.word(verdict)
    yield report.label(verdict)
    yield "; ".join(_remarks(report, verdict))


def _remarks(report: Report, verdict: Verdict) -> Iterator[str]:
    """How the claim came to stand as it does, how sure its verdict is, and why there is none."""
    yield from report.history(verdict)
    fragile, answer = verdict.fragile, verdict.answer
    if fragile is not None and fragile.differ and not report.is_blind:
        yield f"another verdict on {fragile.differ} of {fragile.of} other bootstrap seeds"
    if answer.problems:
        yield f"integrity problems that touch its rows: {len(answer.problems)}"
    yield from map(not_planned, answer.unplanned)
    if answer.missing:
        lost, of = (sum(getattr(part, name) for part in answer.missing) for name in ("rows", "of"))
        shards = len(answer.missing)
        yield f"{lost:,} {answer.missing[0].nouns} missing, of {of:,} in {shards} unfinished shards"
    yield from (f"run: {command}" for command in report.commands(answer))


def _quantities(verdict: Verdict) -> Iterator[tuple[Value, ...]]:
    declared = verdict.registered.content.claim[verdict.claim_id].quantities
    for name, found in verdict.answer.quantities.items():
        yield (
            verdict.claim_id,
            name,
            declared[name].meaning,
            found,
            found.n,
            found.clusters or "",
            found.note,
        )


def _previews(report: Report) -> Iterator[str]:
    """Why verdicts are previews, each reason once."""
    reasons = dict.fromkeys(reason for one in report.verdicts for reason in report.provisional(one))
    if reasons and not report.is_blind:
        yield f"PREVIEW: {'; '.join(reasons)}."
