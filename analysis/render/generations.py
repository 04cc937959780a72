"""generations.html: a browser of answers, each beside those of the other arms to the same question."""

import base64
import hashlib
import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from analysis.core import populations
from analysis.core.estimates import Integers
from analysis.core.folders import Folders
from analysis.core.grid import FULL
from analysis.core.open import opened
from analysis.core.study import Study
from analysis.render.html import render
from kvexp import files
from kvexp.documents.registration import Registered
from kvexp.records import SIGNALS, Generation, Key

# Every generation with its text and its question, for people to read: what no statistic looks at.
#
# Logs are read by the same rules as for verdicts, so a row is here if it counts there.


OUTCOMES = ("correct", "rescued", "induced failure", "inherent failure", "failure", "unknown")


class Asked(msgspec.Struct, frozen=True):
    """What people read of an example; whatever else its record says is passed over."""

    suite: str
    task: str
    example_id: str
    question: str
    references: list[str]
    model: str | None = None  # older records hold for every model


@dataclass(frozen=True)
class Read:
    """The generations of a study, as they are logged."""

    study: str  # its name
    table: pd.DataFrame  # see `analysis.core.study.Study.table`
    rows: Mapping[int, Generation]  # by position in the table the record of each present row
    outcome: Integers  # (rows of the table,) position in OUTCOMES
    examples: Mapping[tuple[str, str, str, str], Asked]  # by (suite, model, task, example id)
    open_suites: list[str]  # sealed and not locked
    problems: int  # how many contradictions the logs hold


def read(results: Path, repository: Path, chosen: Path | None, *, is_anew: bool = False) -> Read:
    """Read a results folder, opened and checked as for the verdicts.

    Args:
        results: results/<study>.
        repository: where registrations and seals are looked for.
        chosen: folder of registrations instead of the study's.
        is_anew: whether the code of the repository may differ from the sealed one.

    Raises KvexpError, as the analysis does, for what is no results folder, or is not as it was sealed.
    """
    found = opened(Folders(results, repository, chosen, is_anew))
    rows = dict[int, Generation]()
    study = found.load(rows.__setitem__)
    return Read(
        study.name,
        study.table,
        rows,
        _outcome(study.table, found.owners),
        _examples(results / "examples"),
        found.bound.open_suites(found.registrations),
        len(study.problems),
    )


def _outcome(table: pd.DataFrame, owners: Mapping[str, Registered]) -> Integers:
    """By the thresholds of the registration that lists the suite; unknown without one."""
    suites = table["suite"].astype(str).to_numpy()
    at, present = table["full_at"].to_numpy(np.int64), table["present"].to_numpy(bool)
    is_full = at == np.arange(len(table))
    outcome = np.full(len(table), OUTCOMES.index("unknown"), np.int64)
    for suite, registered in owners.items():
        thresholds = registered.content.success
        here = (suites == suite) & present
        if not here.any() or not thresholds:
            continue
        own = populations.succeeded(table, thresholds)
        has_full = (at >= 0) & present[at] & ~is_full
        full = own[at]
        told = np.select(
            [own & has_full & ~full, own, ~own & has_full & full, ~own & has_full],
            [OUTCOMES.index(word) for word in ("rescued", "correct", "induced failure", "inherent failure")],
            OUTCOMES.index("failure"),
        )
        outcome[here] = told[here]
    return outcome


def _examples(folder: Path) -> dict[tuple[str, str, str, str], Asked]:
    """Questions and references; a file that cannot be read leaves its questions unknown."""
    found: dict[tuple[str, str, str, str], Asked] = {}
    decoder = msgspec.json.Decoder(Asked)
    for path in sorted(folder.glob("*.jsonl")) if folder.is_dir() else ():
        try:
            asked = decoder.decode_lines(files.read(path))
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
            continue
        for one in asked:
            found[one.suite, one.model or "", one.task, one.example_id] = one
    return found


# generations.html beside a report, and whether it is about the same logs.


FILE = "generations.html"
HEAD = 4096  # bytes of the page in which it says what it is about
# What a row says; its text is in no table, but no text changes without its shard's digest.
_SAID = ("present", "score_value", "output_logprob", "n_generated")


def is_stale(folder: Path, study: Study) -> bool:
    """Whether a folder holds the page of other logs, by the first bytes of the page; not if it holds none."""
    path = folder / FILE
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return digest(study.table).encode() not in file.read(HEAD)


def digest(table: pd.DataFrame) -> str:
    """Names the answers of a study: sha256 over the keys of its generations and what they say."""
    found = hashlib.sha256()
    for name in (*Key._fields, *_SAID):
        column = table[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            found.update("\n".join(map(str, column.cat.categories)).encode())
            found.update(column.cat.codes.to_numpy().astype("<i4").tobytes())
        else:
            found.update(column.to_numpy(np.float64).astype("<f8").tobytes())
    return found.hexdigest()


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
