"""Readings and sensitivities beside each claim: numbers and truths, no verdicts."""

from collections.abc import Iterator, Mapping

from analysis.decide import Answer
from analysis.verdict.report import Report
from analysis.verdict.words import RULE, number, word


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
