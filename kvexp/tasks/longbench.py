"""LongBench: questions about long real texts, with the official prompts and scores.

Records come from the hub's data.zip at a pinned revision, as `kvexp fetch` left it in the local cache, or
from a folder or zip of one's own. They are read as lines of JSON and nothing else: the library `datasets`
refuses the hub's repository because of its script, and files inside a zip whenever HF_HUB_OFFLINE is set.
"""

import hashlib
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated

import msgspec

from kvexp.errors import ConfigError, InputError, NotFetched
from kvexp.plugins import suggest
from kvexp.records import ID_LENGTH, ID_PATTERN
from kvexp.scoring import retrieval
from kvexp.tasks._choices import Choices
from kvexp.tasks.base import Count, HubFile, PromptText, Question, Task

HUB_FILE = HubFile("THUDM/LongBench", "5e628be450b7e67fb7ae6e201bd6d8f7056f7672", "data.zip")

_PASSAGES = (
    "Answer the question based on the given passages. Only give me the answer and do not output any other "
    "words.\n\nThe following are given passages.\n{context}\n\nAnswer the question based on the given "
    "passages. Only give me the answer and do not output any other words.\n\nQuestion: {input}\nAnswer:"
)
# LongBench/config/dataset2prompt.json of THUDM/LongBench at 2e00731 (MIT), byte for byte: "asconcisely"
# and the space at the end are theirs. Models have been compared on these bytes, so nothing is mended.
PROMPTS = {
    "hotpotqa": _PASSAGES,
    "2wikimqa": _PASSAGES,
    "musique": _PASSAGES,
    "multifieldqa_en": (
        "Read the following text and answer briefly.\n\n{context}\n\nNow, answer the following question "
        "based on the above text, only give me the answer and do not output any other words.\n\n"
        "Question: {input}\nAnswer:"
    ),
    "narrativeqa": (
        "You are given a story, which can be either a novel or a movie script, and a question. Answer the "
        "question asconcisely as you can, using a single phrase if possible. Do not provide any "
        "explanation.\n\nStory: {context}\n\nNow, answer the question based on the story asconcisely as "
        "you can, using a single phrase if possible. Do not provide any explanation.\n\n"
        "Question: {input}\n\nAnswer:"
    ),
    "passage_retrieval_en": (
        "Here are 30 paragraphs from Wikipedia, along with an abstract. Please determine which paragraph "
        "the abstract is from.\n\n{context}\n\nThe following is an abstract.\n\n{input}\n\nPlease enter the "
        'number of the paragraph that the abstract is from. The answer format must be like "Paragraph 1", '
        '"Paragraph 2", etc.\n\nThe answer is: '
    ),
}

_Text = Annotated[str, msgspec.Meta(pattern=r"\S")]


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is used of one line of a data set; it may hold more."""

    id: _Text = msgspec.field(name="_id")
    input: _Text
    context: _Text
    answers: list[str]
    dataset: str | None = None


@dataclass(frozen=True)
class Longbench(Task):
    """One data set of LongBench.

    Attributes:
        dataset: its name in LongBench; decides prompt and score.
        data_dir: a folder or zip with <file>.jsonl or data/<file>.jsonl, relative to the working
            directory; null reads the hub's data.zip from the local cache.
        file: name of the file without its ending, where it is not the data set's (hotpotqa_e).
    """

    dataset: str
    data_dir: str | None = None
    file: str | None = None

    is_cut = True

    def __post_init__(self) -> None:
        if self.dataset not in PROMPTS:
            raise ConfigError(f"there is no dataset {self.dataset!r}; {suggest(self.dataset, list(PROMPTS))}")
        if self.data_dir is not None and (not isinstance(self.data_dir, str) or not self.data_dir.strip()):
            raise ConfigError(f"data_dir must be a folder, a zip or null, got {self.data_dir!r}")
        if self.file is not None and not re.match(ID_PATTERN, str(self.file)):
            raise ConfigError(f"file must be the name of a file without .jsonl, got {self.file!r}")

    @property
    def score_name(self) -> str:  # type: ignore[override]  # fixed by the data set
        return "retrieval" if self.dataset == "passage_retrieval_en" else "token_f1"

    def source(self) -> HubFile | None:
        return HUB_FILE if self.data_dir is None else None

    def load(
        self, n_examples: int, seed: int, context_tokens: int, count: Count | None = None
    ) -> list[Question]:
        """All records if there are fewer than asked for. Contexts are whole; rendering cuts them."""
        return [
            Question(
                example_id=safe_id(record.id),
                context=record.context,
                question=record.input,
                references=tuple(record.answers),
            )
            for record in select(self._records(), self.dataset, n_examples, seed)
        ]

    def remark(self, n_examples: int) -> str | None:
        """What a person should know before running it: that there are fewer records than asked for."""
        there = len(self._records())
        if there >= n_examples:
            return None
        return (
            f"{self.file or self.dataset} has {there} records, not the {n_examples} asked for: all are used"
        )

    def prompt(self, question: Question) -> PromptText:
        before, after = PROMPTS[self.dataset].split("{context}")
        return PromptText(
            before=before,
            context=question.context,
            after=after.replace("{input}", question.question),
            question=question.question,
        )

    def _records(self) -> tuple[Record, ...]:
        path, member = self._find()
        stat = path.stat()
        return _read(path, member, self.dataset, self.score_name, stat.st_size, stat.st_mtime_ns)

    def _find(self) -> tuple[Path, str | None]:
        """The file on disk that holds the records and, if that is a zip, the name inside it."""
        place = _cached_archive() if self.data_dir is None else _expanded(self.data_dir)
        name = self.file or self.dataset
        candidates = [f"{name}.jsonl", f"data/{name}.jsonl"]
        if place.is_dir():
            if there := [place / one for one in candidates if (place / one).is_file()]:
                return there[0], None
        elif not place.is_file():
            raise InputError(f"data_dir of {self.dataset} is not there: {place} is no folder and no zip")
        else:
            members = _members(place)
            if inside := [one for one in candidates if one in members]:
                return place, inside[0]
        raise InputError(f"{place} has neither {' nor '.join(candidates)}")


def _expanded(data_dir: str) -> Path:
    try:
        return Path(data_dir).expanduser().absolute()
    except RuntimeError as error:  # a user whose home is unknown
        raise InputError(f"data_dir {data_dir!r}: {error}") from None


def _cached_archive() -> Path:
    from huggingface_hub import try_to_load_from_cache  # only this needs it

    repo, revision, filename = HUB_FILE
    found = try_to_load_from_cache(repo, filename, revision=revision, repo_type="dataset")
    if not isinstance(found, str):
        raise NotFetched(
            f"LongBench ({filename} of {repo}) is not on this machine: run `kvexp fetch` where there is a "
            "network, or set task.data_dir to a folder or zip that holds its records"
        )
    return Path(found)


# Which examples ----------------------------------------------------------------------------------


def select(records: tuple[Record, ...], dataset: str, n_examples: int, seed: int) -> list[Record]:
    """The first records of a seeded shuffle of the sorted `_id`s, whatever order a file has them in."""
    by_id = {record.id: record for record in records}
    order = Choices("longbench", dataset, seed).sample(sorted(by_id), len(by_id))
    return [by_id[name] for name in order[:n_examples]]


def safe_id(name: str) -> str:
    """An `_id` as it stands, if logs can hold it; otherwise a readable form and the digest of the `_id`."""
    if len(name) <= ID_LENGTH and re.match(ID_PATTERN, name):
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:12]
    readable = re.sub(r"[^A-Za-z0-9.=]+", "_", name).strip("._=")
    return f"{readable[:80] or 'id'}-{digest}"


# Reading -----------------------------------------------------------------------------------------

_decoder = msgspec.json.Decoder(Record)


@lru_cache(maxsize=len(PROMPTS))
def _read(
    path: Path, member: str | None, dataset: str, score: str, _size: int, _mtime_ns: int
) -> tuple[Record, ...]:
    """All records of a file, checked. Size and time are there for the cache: a changed file is read again."""
    lines_by_id: dict[str, int] = {}
    records = []
    name = str(path) if member is None else f"{path}:{member}"
    for number, line in _lines(path, member):
        record = _decoded(line, f"{name}:{number}")
        _check(record, dataset, score, f"{name}:{number}")
        # Two `_id`s may also come to the same safe id, if somebody means them to.
        first = lines_by_id.setdefault(safe_id(record.id), number)
        if first != number:
            raise InputError(f"{name}:{number} has the _id of line {first}: every record needs its own")
        records.append(record)
    if not records:
        raise InputError(f"{name} holds no records")
    return tuple(records)


def _decoded(line: bytes, where: str) -> Record:
    try:
        return _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"{where} is no record of LongBench: {error}") from None


def _check(record: Record, dataset: str, score: str, where: str) -> None:
    # The files of LongBench-E call themselves either way.
    if record.dataset is not None and record.dataset.removesuffix("_e") != dataset:
        raise InputError(f"{where} is a record of {record.dataset!r}, not of {dataset}")
    if not any(answer.strip() for answer in record.answers):
        raise InputError(f"{where} has no answer: at least one of `answers` must say something")
    if score == "retrieval" and retrieval(record.answers[0], record.answers) != 1.0:
        raise InputError(f'{where} has the answer {record.answers[0][:40]!r}, but it must be "Paragraph N"')


def _lines(path: Path, member: str | None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, blank ones left out."""
    try:
        with ExitStack() as stack:
            file: IO[bytes] = (
                stack.enter_context(path.open("rb"))
                if member is None
                else stack.enter_context(stack.enter_context(zipfile.ZipFile(path)).open(member))
            )
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except _UNREADABLE as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _members(path: Path) -> set[str]:
    try:
        with zipfile.ZipFile(path) as archive:
            return set(archive.namelist())
    except _UNREADABLE as error:
        raise InputError(f"{path} cannot be read as a zip: {error}") from None


# Damaged, cut off, encrypted (RuntimeError), compressed in an unknown way (NotImplementedError).
_UNREADABLE = (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError)
