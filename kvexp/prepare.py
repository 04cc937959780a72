"""What `submit` writes before anything runs: the grid of expected rows, and the examples.

The analysis reads only what lies under `results/<study>`, so both are part of the evidence.
"""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from kvexp.compose import Selection
from kvexp.config import AttentionConf, SuiteBase, TaskConf
from kvexp.errors import IntegrityError
from kvexp.prompting import prompt_of
from kvexp.records import Example, Reader, RecordError, encode
from kvexp.resolved import Shard
from kvexp.shard_log import on_disk, replace
from kvexp.tasks import Question, Task, task

GRID = "grid.jsonl"


def grid_bytes(made: list[Shard]) -> bytes:
    """Every row that the complete study holds, one line each, in order."""
    return b"".join(encode(row) + b"\n" for shard in made for row in shard.expected())


def write_grid(results: Path, made: list[Shard]) -> None:
    """Write grid.jsonl; suites may join or change until they are begun.

    Raises IntegrityError if the grid of a begun suite is another one.
    """
    body, path = grid_bytes(made), results / GRID
    with on_disk(results):
        results.mkdir(parents=True, exist_ok=True)
        if path.exists():
            there = path.read_bytes()
            if there == body:
                return
            _refuse_changed(path, there, body)
        replace(path, body)


def _refuse_changed(path: Path, there: bytes, body: bytes) -> None:
    begun = _begun(path.parent)
    if not begun:
        return
    before, after = _by_suite(path, there), _by_suite(path, body)
    for suite in begun:
        if before.get(suite) != after.get(suite):
            raise IntegrityError(
                f"{path} expects other rows of suite {suite} than this configuration, and the suite has been "
                f"begun: go back to it, move {path.parent / suite} away, or give the new grid a name of its "
                "own with study.name=NAME"
            )


class _Suite(msgspec.Struct):
    """What must be known of a grid line here; whatever else it says is compared as bytes."""

    suite: str


def _by_suite(path: Path, body: bytes) -> dict[str, list[bytes]]:
    lines: dict[str, list[bytes]] = {}
    for number, line in enumerate(body.splitlines(), start=1):
        try:
            suite = msgspec.json.decode(line, type=_Suite).suite
        except (msgspec.MsgspecError, UnicodeDecodeError):
            raise IntegrityError(f"{path}:{number} is no line of a grid: restore the file") from None
        lines.setdefault(suite, []).append(line)
    return lines


def _begun(results: Path) -> list[str]:
    """Suites that have an attempt: until then, nothing depends on what was prepared."""
    return sorted({path.parent.parent.name for path in results.glob("*/*/attempt-*.json")})


def write_examples(results: Path, selection: Selection, load_tokenizer: Callable[[str], Any]) -> None:
    """Write examples/<suite>.<task>.jsonl where it is missing; tokenizers are loaded only if needed.

    Raises IntegrityError if the questions there are others and the suite has been begun.
    """
    folder = results / "examples"
    with on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for suite in selection.suites:
            for conf in (selection.tasks[name] for name in suite.tasks):
                path = folder / f"{suite.name}.{conf.name}.jsonl"
                family = task(conf.family, **conf.params)
                questions = family.load(suite.n_examples, suite.example_seed, suite.context_tokens)
                if _holds(path, family, questions):
                    continue
                if path.exists() and suite.name in _begun(results):
                    raise IntegrityError(
                        f"{path} holds other examples than this configuration: go back to it, or give the "
                        "new study a name of its own with study.name=NAME"
                    )
                tokenizers = {m.name: load_tokenizer(m.name) for m in selection.models}
                chat = {
                    m.name: suite.chat if isinstance(suite, AttentionConf) else m.chat
                    for m in selection.models
                }
                examples = [_example(suite, conf, family, q, tokenizers, chat) for q in questions]
                replace(path, b"".join(encode(e) + b"\n" for e in examples))


_example_reader: Reader[Example] = Reader(Example)


def _holds(path: Path, family: Task, questions: list[Question]) -> bool:
    """Whether a file is there and holds these questions in these words."""
    if not path.exists():
        return False
    try:
        there = [_example_reader(line) for line in path.read_bytes().splitlines()]
    except RecordError:
        return False
    return [(e.example_id, e.segments) for e in there] == [
        (q.example_id, _segments(family, q)) for q in questions
    ]


def _segments(family: Task, question: Question) -> dict[str, str]:
    text = family.prompt(question)
    parts = {
        "before": text.before,
        "context": text.context,
        "after": text.after,
        "answer_prefix": text.answer_prefix,
    }
    return {name: hashlib.sha256(part.encode()).hexdigest() for name, part in parts.items()}


def _example(
    suite: SuiteBase,
    conf: TaskConf,
    family: Task,
    question: Question,
    tokenizers: dict[str, Any],
    chat: dict[str, bool],
) -> Example:
    lengths = {
        model: prompt_of(tokenizer, family, question, chat[model]).n_context
        for model, tokenizer in tokenizers.items()
    }
    return Example(
        suite=suite.name,
        task=conf.name,
        example_id=question.example_id,
        question=question.question,
        references=list(question.references),
        segments=_segments(family, question),
        needle_depths=[round(s / len(question.context), 6) for s, _ in question.needle_spans],
        # Generated contexts have the suite's length from the start: nothing is cut.
        n_context={model: [n, n] for model, n in lengths.items()},
    )
