"""Table 1: the claims and what became of them, as the report says it; nothing is computed here."""

from collections.abc import Iterator

from analysis.core.decide import Verdict, not_planned
from analysis.core.verdict_text import number
from analysis.core.verdicts import Report
from analysis.describe.parts import Part
from analysis.describe.scope import Scope
from analysis.describe.table import Row, Table, Value, column, share

ORDER = 1
CAUTION = "The verdicts as verdicts.json has them; nothing is computed here."
OBSERVED = "its quantities with their intervals"
VERDICT = "KILLED, SURVIVED, NOT_MET, INCOMPLETE or INVALID, with PREVIEW before it where it may still change"
REMARKS = "amendments, fragility, what is missing and the command that runs it"
CLAIMS = (
    column("claim", "", "id of the claim", "name"),
    column("statement", "", "what it says", "text"),
    column("kill", "kill condition", "the kill condition in words", "text"),
    column(
        "condition",
        "as an expression",
        "the kill condition as the expression that was evaluated",
        "expression",
    ),
    column("observed", "", OBSERVED, "text"),
    column("verdict", "", VERDICT, "name"),
    column("label", "in the registration's words", "what the registration calls that verdict", "text"),
    column("remarks", "", REMARKS, "text"),
)
CLUSTERS = "clusters that the resamples draw from; empty: it has none"
QUANTITIES = (
    column("claim", "", "id of the claim", "name"),
    column("quantity", "", "name of the quantity in the claim's conditions", "name"),
    column("meaning", "", "what it is, as registered", "text"),
    share("value", "estimate", "the quantity", "as its meaning says"),
    column("rows"),
    column("clusters", "", CLUSTERS, "count"),
    column("note", "", "what a reader should know besides", "text"),
)


def describe(scope: Scope) -> Iterator[Part]:
    """A line for each claim, and a second table with a line for each of its numbers (Table 1)."""
    report = scope.report
    if not report.verdicts:
        return
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
    yield Part("verdicts", "The claims and what became of them", tables=(made, numbers))


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


def _quantities(verdict: Verdict) -> Iterator[Row]:
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
