"""generations.html: a browser of answers, each beside those of the other arms to the same question."""

import base64
import json
import zlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from analysis.load.grid import FULL
from analysis.report.answers import OUTCOMES, Read
from analysis.report.browser import digest
from analysis.report.templating import render
from analysis.statistics.base import Integers
from kvexp.records import SIGNALS, Generation

QUESTION = ("suite", "model", "task", "example_id")
PLACE = ("arm", "condition", "budget", "seed")
DIGITS = 4


class Texts:
    """Every different text once, by number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def __call__(self, text: str) -> int:
        """The number of a text."""
        return self._numbers.setdefault(text, len(self._numbers))

    @property
    def every(self) -> list[str]:
        return list(self._numbers)


def generations_page(found: Read) -> str:
    """The whole file; the same logs give the same bytes."""
    body = json.dumps(_data(found), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    packed = base64.b64encode(zlib.compress(body.encode(errors="replace"), 9)).decode()
    return render(
        "generations.html",
        "generations.css",
        "generations.js",
        study=found.study,
        digest=digest(found.table),
        present=len(found.rows),
        expected=len(found.table),
        problems=found.problems,
        packed=packed,
    )


def _data(found: Read) -> dict[str, Any]:
    """Columns of questions and of rows; the rows of a question stand together, the full cache first."""
    order = _order(found)
    rows = [found.rows[at] for at in order.tolist()]
    texts, places, reasons = Texts(), dict[tuple[Any, ...], int](), dict[str, int]()
    questions, starts = _questions(rows)
    return {
        "names": {name: sorted({key[at] for key in questions}) for at, name in enumerate(QUESTION[:3])},
        "outcomes": OUTCOMES,
        "signals": SIGNALS,
        "questions": {
            **{name: [key[at] for key in questions] for at, name in enumerate(QUESTION)},
            **_asked(found, questions, texts),
            "start": [*starts, len(rows)],
            "context": [rows[at].n_context for at in starts],
        },
        "rows": {
            "place": [places.setdefault(tuple(getattr(r, n) for n in PLACE), len(places)) for r in rows],
            "outcome": found.outcome[order].tolist(),
            "text": [texts(row.text) for row in rows],
            "score": [_short(row.score_value) for row in rows],
            **{name: [_short(getattr(row, name)) for row in rows] for name in SIGNALS},
            "kept": [_short(row.realised_kept) for row in rows],
            "evictable": [row.n_evictable for row in rows],
            "tokens": [row.n_generated for row in rows],
            "why": [_reason(row, reasons) for row in rows],
        },
        "score_names": _score_names(rows, starts),
        "places": [list(place) for place in places],
        "why": [json.loads(text) for text in reasons],
        "texts": texts.every,
    }


def _order(found: Read) -> Integers:
    present = np.array(sorted(found.rows), np.int64)
    if not len(present):
        return present
    here = found.table.iloc[present]
    codes = [here[name].cat.codes.to_numpy().astype(np.int64) for name in reversed(QUESTION)]
    return present[np.lexsort([(here["arm"] != FULL).to_numpy(), *codes])]


def _questions(rows: list[Generation]) -> tuple[list[tuple[str, ...]], list[int]]:
    """Keys of the questions, and the first row of each."""
    keys, starts = list[tuple[str, ...]](), list[int]()
    for at, row in enumerate(rows):
        key = (row.suite, row.model, row.task, row.example_id)
        if not keys or keys[-1] != key:
            keys.append(key)
            starts.append(at)
    return keys, starts


def _asked(found: Read, questions: Iterable[tuple[str, ...]], texts: Texts) -> dict[str, list[Any]]:
    """Question (null: not known) and references of each, as numbers of texts."""
    asked = list[int | None]()
    references = list[list[int]]()
    for suite, model, task, example_id in questions:
        examples = found.examples
        one = examples.get((suite, model, task, example_id)) or examples.get((suite, "", task, example_id))
        asked.append(None if one is None else texts(one.question))
        references.append([] if one is None else [texts(text) for text in one.references])
    return {"question": asked, "references": references}


def _score_names(rows: list[Generation], starts: Iterable[int]) -> list[str]:
    return [rows[at].score_name for at in starts]


def _reason(row: Generation, known: dict[str, int]) -> int:
    """Number of what a row says about its undefined signals."""
    return known.setdefault(json.dumps(row.undefined, sort_keys=True), len(known))


def _short(value: float | None) -> float | int | None:
    """With DIGITS significant digits, and whole numbers without a point."""
    if value is None:
        return None
    rounded = float(f"{value:.{DIGITS}g}") + 0.0
    return int(rounded) if rounded.is_integer() and abs(rounded) < 1e15 else rounded
