"""Bring the tables of README.md and docs/reference-run.md up to date with the JSON of results/embedded.

Usage: python scripts/readme_verdicts.py [--check]; with --check nothing is written and 1 means stale.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
BEGIN, END = "<!-- made by scripts/readme_verdicts.py: {} -->", "<!-- end -->"
QUESTIONS = {"own_failure": "own failure", "induced_failure": "induced failure", "attribution": "attribution"}


def number(estimate: dict[str, Any]) -> str:
    """0.693 [0.644, 0.742], or a count."""
    if estimate["value"] is None:
        return "undefined"
    if estimate["lo"] is None:
        return f"{estimate['value']:g}"
    return f"{estimate['value']:.3f} [{estimate['lo']:.3f}, {estimate['hi']:.3f}]"


def verdict_rows(verdicts: dict[str, Any]) -> Iterator[str]:
    """One row a claim."""
    yield "| claim | verdict | says | killed if | observed |"
    yield "|---|---|---|---|---|"
    for claim in verdicts["claims"]:
        seen = ", ".join(f"{name} {number(found)}" for name, found in claim["quantities"].items())
        state = f"{'PREVIEW ' if claim['preview'] else ''}{claim['state']}"
        yield f"| {claim['id']} | {state} | {claim['statement']} | `{claim['kill_condition']}` | {seen} |"


def panel_rows(details: dict[str, Any]) -> Iterator[str]:
    """AUC of certificate and output log-probability: pooled, within strata, and the label alone."""
    yield "| suite | question | certificate | within strata | label alone | logprob | within strata |"
    yield "|---|---|---|---|---|---|---|"
    found = {
        (row["suite"], row["label"], row["signal"]): row
        for row in details["details"]["panel"]
        if row["arm"] == "poisson" and row["tasks"] == "main"
    }
    for suite in dict.fromkeys(suite for suite, _, _ in found):
        for label, question in QUESTIONS.items():
            certificate = found[suite, label, "certificate"]
            logprob = found[suite, label, "output_logprob"]
            cells = [
                number(certificate["pooled"]),
                number(certificate["stratified"]),
                f"{certificate['cell_label']['value']:.3f}",
                number(logprob["pooled"]),
                number(logprob["stratified"]),
            ]
            yield f"| {suite} | {question} | {' | '.join(cells)} |"


ESTIMATORS = {
    "hajek": "Poisson",
    "topk": "top-k",
    "no_offset": "Poisson without the offset",
    "uniform": "uniform",
}


def attention_rows(details: dict[str, Any]) -> Iterator[str]:
    """One row a budget: coverage, rank correlation, looseness, median errors of the four estimators."""
    yield f"| budget | covered | Spearman | ratio | {' | '.join(ESTIMATORS.values())} |"
    yield f"|---|---|---|---|{'---|' * len(ESTIMATORS)}"
    for suite in details["attention"]:
        for row in suite["budgets"]:
            parts = [number(row[name]) for name in ("coverage", "spearman", "ratio")]
            errors = [f"{row[name]['value']:.4f}" for name in ESTIMATORS]
            yield f"| {' | '.join([format(row['budget'], '.1%'), *parts, *errors])} |"


def main() -> int:
    folder = ROOT / "results/embedded"
    verdicts, details = (
        json.loads((folder / f"{name}.json").read_text()) for name in ("verdicts", "details")
    )
    tables = {
        "README.md": {"verdicts": verdict_rows(verdicts), "signals": panel_rows(details)},
        "docs/reference-run.md": {"attention": attention_rows(details)},
    }
    stale = False
    for name, found in tables.items():
        page = ROOT / name
        before = page.read_text()
        after = before
        for table, lines in found.items():
            after = with_table(after, table, "\n".join(lines))
        stale |= after != before
        if "--check" not in sys.argv[1:]:
            page.write_text(after)
    return int(stale and "--check" in sys.argv[1:])


def with_table(text: str, name: str, body: str) -> str:
    """The page with one table in place of the one between its marks."""
    begin = BEGIN.format(name)
    head, rest = text.split(begin)
    return f"{head}{begin}\n\n{body}\n\n{END}{rest.split(END, 1)[1]}"


if __name__ == "__main__":
    sys.exit(main())
