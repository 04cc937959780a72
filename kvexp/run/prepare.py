"""What `submit` writes before anything runs: the grid of expected rows, and the examples.

The analysis reads only what lies under `results/<study>`, so both are part of the evidence.
"""

import hashlib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from kvexp.documents.manifest import read_bytes
from kvexp.errors import InputError, IntegrityError, named
from kvexp.files import digest, is_file, on_disk, write_whole
from kvexp.models.embedded import cache_folder
from kvexp.records import Example, Reader, RecordError, encode
from kvexp.study.plugins import family_of
from kvexp.study.prompts import counter, prompt_of
from kvexp.study.results import GRID, begun
from kvexp.study.shards import Shard
from kvexp.tasks.base import Question, Task

# What is asked, as digests: the same for a seal and for `examples/` beside the logs.


Asked = tuple[dict[str, str], list[str]]  # of one example: digests of its segments, references
_asked_reader: Reader[Example] = Reader(Example)


def questions_digest(asked: Mapping[str, Asked]) -> str:
    """sha256 of what is asked, example by example: id, digests of the prompt's segments, references.

    `examples/` states the same three of every example, so that it can be checked against a seal.
    """
    total = hashlib.sha256()
    for example_id, (segments, references) in asked.items():
        total.update(json.dumps([example_id, segments, references], sort_keys=True).encode() + b"\n")
    return total.hexdigest()


def asked_of(path: Path) -> dict[str, Asked]:
    """What a file of examples says is asked, by example. Raises IntegrityError for other files."""
    try:
        found = [_asked_reader(line) for line in read_bytes(path).splitlines()]
    except RecordError as error:
        raise IntegrityError(f"{path} holds no examples ({error}): restore it") from None
    return {one.example_id: (one.segments, one.references) for one in found}


# What was found to hold before, in the user's cache: questions are not made anew to be compared again.
#
# A note says that a file of some bytes holds what some settings make. It is about these alone:
# without it, or with other bytes, everything is compared again.


FOLDER = "checked"


class Note:
    """That a file holds what these settings make; `settings`: all that decides about it, as plain data."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        body = json.dumps(settings, sort_keys=True, allow_nan=False)
        self._name = hashlib.sha256(body.encode()).hexdigest()

    def says_so(self, path: Path) -> bool:
        """Whether it was found before of the bytes that the file has now."""
        with suppress(OSError, InputError):
            return self._path().read_text() == digest(path)
        return False

    def write(self, path: Path) -> None:
        """Remember it of a file. A cache that cannot be written remembers nothing."""
        with suppress(OSError, InputError):
            note = self._path()
            note.parent.mkdir(parents=True, exist_ok=True)
            write_whole(note, digest(path).encode())

    def _path(self) -> Path:
        return cache_folder() / FOLDER / self._name


T = TypeVar("T")
NOTED = 1  # raise it when `_holds` compares something else


def grid_bytes(made: list[Shard]) -> bytes:
    """Every row that the complete study holds, one line each, in order."""
    return b"".join(encode(row) + b"\n" for shard in made for row in shard.expected())


def write_grid(results: Path, made: list[Shard], left_out: Collection[str] = ()) -> None:
    """Write grid.jsonl; suites may join or change until they are begun.

    Suites that were left out, because their data are not on this machine, keep the lines that are there.
    Raises IntegrityError if the grid of a begun suite is another one.
    """
    body, path = grid_bytes(made), results / GRID
    with on_disk(results):
        results.mkdir(parents=True, exist_ok=True)
        if path.exists():
            there = path.read_bytes()
            if left_out:
                lines = _by_suite(path, there)
                body += b"".join(line + b"\n" for suite in left_out for line in lines.get(suite, []))
            if there == body:
                return
            _refuse_changed(path, there, body)
        write_whole(path, body)


def _refuse_changed(path: Path, there: bytes, body: bytes) -> None:
    suites = begun(path.parent)
    if not suites:
        return
    before, after = _by_suite(path, there), _by_suite(path, body)
    for suite in suites:
        if before.get(suite) != after.get(suite):
            raise IntegrityError(
                f"{path} expects other rows of suite {suite} than this configuration, and the suite has been "
                f"begun: go back to it, move {path.parent / suite} away, or give the new grid a name of its "
                "own with study.name=NAME"
            )


class _Place(msgspec.Struct):
    """Of a grid line, which example of which task it is about."""

    suite: str
    task: str
    example_id: str


def written_ids(path: Path) -> dict[tuple[str, str], list[str]]:
    """Ids of the examples in a grid, by suite and task, in order; none where there is no grid."""
    ids: dict[tuple[str, str], dict[str, None]] = {}
    for number, line in enumerate(path.read_bytes().splitlines() if is_file(path) else [], start=1):
        row = _grid_line(path, number, line, _Place)
        ids.setdefault((row.suite, row.task), {})[row.example_id] = None
    return {key: list(found) for key, found in ids.items()}


class _Suite(msgspec.Struct):
    """What must be known of a grid line here; whatever else it says is compared as bytes."""

    suite: str


def _by_suite(path: Path, body: bytes) -> dict[str, list[bytes]]:
    lines: dict[str, list[bytes]] = {}
    for number, line in enumerate(body.splitlines(), start=1):
        lines.setdefault(_grid_line(path, number, line, _Suite).suite, []).append(line)
    return lines


def _grid_line(path: Path, number: int, line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise IntegrityError(f"{path}:{number} is no line of a grid: restore the file") from None


def write_examples(results: Path, made: Iterable[Shard], load_tokenizer: Callable[[str], Any]) -> None:
    """Write examples/<suite>.<model>.<task>.jsonl for the given shards where it is missing.

    Tokenizers are loaded only if needed. Raises IntegrityError if the questions there are others and the
    suite has been begun.
    """
    folder = results / "examples"
    tasks = {(shard.suite, shard.model.name, shard.task.name): shard for shard in made}
    with on_disk(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for names, shard in tasks.items():
            _write_task(folder / f"{'.'.join(names)}.jsonl", shard, load_tokenizer)


def _write_task(path: Path, shard: Shard, load_tokenizer: Callable[[str], Any]) -> None:
    """All examples of a shard's task, not only the shard's own."""
    family = family_of(shard.task)
    note = _note(shard, family)
    if note is not None and note.says_so(path):
        return
    questions = _questions(shard, family, load_tokenizer)
    if not _holds(path, family, questions):
        if path.exists() and shard.suite in begun(path.parent.parent):
            raise IntegrityError(
                f"{path} holds other examples than this configuration: go back to it, or give the new study "
                "a name of its own with study.name=NAME"
            )
        examples = [_example(shard, family, q, load_tokenizer(shard.model.name)) for q in questions]
        write_whole(path, b"".join(encode(e) + b"\n" for e in examples))
    if note is not None:
        note.write(path)


def _note(shard: Shard, family: Task) -> Note | None:
    """That a file holds the questions of a shard's task; None for what other files decide as well."""
    if family.is_sized or family.source() is not None or hasattr(family, "data_dir"):
        return None
    from importlib import metadata  # here: who reads a grid does not wait for it

    return Note(
        {
            "version": NOTED,
            "task": asdict(shard.task),
            "examples": [shard.n_examples, shard.example_seed, shard.context_tokens],
            "code": shard.protocol_digest,
            "haystack": {name: metadata.version(name) for name in ("numpy", "networkx")},
        }
    )


def _questions(shard: Shard, family: Task, load_tokenizer: Callable[[str], Any]) -> list[Question]:
    with named(f"task {shard.task.name} of suite {shard.suite}"):
        count = counter(load_tokenizer(shard.model.name)) if family.is_sized else None
        return family.load(shard.n_examples, shard.example_seed, shard.context_tokens, count)


def questions_digests(made: Iterable[Shard], load_tokenizer: Callable[[str], Any]) -> Iterator[str]:
    """For each shard what `questions_digest` says of its examples; a task is loaded once."""
    loaded: dict[tuple[str, str, str], dict[str, Asked]] = {}
    for shard in made:
        names = (shard.suite, shard.model.name, shard.task.name)
        if names not in loaded:
            family = family_of(shard.task)
            questions = _questions(shard, family, load_tokenizer)
            loaded[names] = {q.example_id: (_segments(family, q), list(q.references)) for q in questions}
        yield questions_digest({i: loaded[names][i] for i in shard.example_ids})


_example_reader: Reader[Example] = Reader(Example)


def _holds(path: Path, family: Task, questions: list[Question]) -> bool:
    """Whether a file is there and holds these questions in these words, with these answers."""
    if not path.exists():
        return False
    try:
        there = [_example_reader(line) for line in path.read_bytes().splitlines()]
    except RecordError:
        return False
    return [(e.example_id, e.segments, e.references) for e in there] == [
        (q.example_id, _segments(family, q), list(q.references)) for q in questions
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


def _example(shard: Shard, family: Task, question: Question, tokenizer: Any) -> Example:
    try:
        prompt = prompt_of(tokenizer, family, question, shard.rendering)
    except InputError as error:
        said = str(error).replace("model.NAME.", f"model.{shard.model.name}.")
        raise InputError(f"task {shard.task.name}, example {question.example_id}: {said}") from None
    return Example(
        suite=shard.suite,
        model=shard.model.name,
        task=shard.task.name,
        example_id=question.example_id,
        question=question.question,
        references=list(question.references),
        segments=_segments(family, question),
        needle_depths=[round(s / len(question.context), 6) for s, _ in question.needle_spans],
        needle_tokens=list(prompt.needles),
        n_context_full=prompt.n_context_full,
        n_context=prompt.n_context,
        n_prompt=prompt.n,
        truncated=prompt.n_context < prompt.n_context_full,
        answer_survives=_survives(question, prompt.context) if shard.rendering.context else None,
        difference=prompt.difference,
    )


def _survives(question: Question, left: str) -> bool | None:
    """Whether a reference stands, as words and in whatever case, in what is left of the context."""
    words = [r for r in question.references if re.sub(r"\W", "", r).lower() not in ("yes", "no", "")]
    there = [word for word in words if _holds_words(question.context, word)]
    return any(_holds_words(left, word) for word in there) if there else None


def _holds_words(text: str, words: str) -> bool:
    """Letters and digits of the Latin alphabet end at others; most other scripts have no borders of words."""
    body = r"\s+".join(map(re.escape, words.split()))
    return re.search(rf"(?<![A-Za-z0-9])(?<!\d[.,]){body}(?![A-Za-z0-9])", text, re.IGNORECASE) is not None
