"""How much a verdict hangs on the bootstrap's seed: it is decided again with other seeds."""

from collections.abc import Mapping

from analysis.core import decide
from analysis.core.decide import Fragile, Verdict
from analysis.core.study import Study
from kvexp.documents.condition import Expression
from kvexp.documents.registration import Question
from kvexp.documents.schema import Quantity

SEEDS = 20


def fragile(study: Study, decided: Verdict) -> Fragile | None:
    """How many of SEEDS other seeds give another state; None for a claim that is not decided.

    Whether an interval exists at all is taken from the registered seed.
    """
    registered, claim_id = decided.registered, decided.claim_id
    if not decided.answer.is_decided:
        return None
    question = registered.question(claim_id)
    if not _is_drawn(question, decided.answer.kill):
        return Fragile(0, SEEDS)
    compute = decide.load_claim(claim_id)
    data = decide.data_of(study, question)
    states = [
        decide.state_of(question, compute(data.redrawn(registered.seed(f"{claim_id} {number}"))))
        for number in range(1, SEEDS + 1)
    ]
    return Fragile(sum(state is not decided.answer.state for state in states), SEEDS)


def _is_drawn(question: Question, kill: bool | None) -> bool:
    """Whether the state can depend on the resamples: values do not, interval ends and counts of them do."""
    conditions = [question.kill]
    if not kill or _reads_draws(question.kill, question.quantities):
        conditions += [question.support] if question.support is not None else []
    return any(_reads_draws(condition, question.quantities) for condition in conditions)


def _reads_draws(condition: Expression, quantities: Mapping[str, Quantity]) -> bool:
    return any(field in ("lo", "hi") or quantities[name].count for name, field in condition.fields)
