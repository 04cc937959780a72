"""LongBench: questions about long real texts, with the official prompts and scores.

Records come from the hub's data.zip at a pinned revision, as `kvexp fetch` left it in the local cache, or
from a folder or zip of one's own. They are read as lines of JSON and nothing else: the library `datasets`
refuses the hub's repository because of its script, and files inside a zip whenever HF_HUB_OFFLINE is set.
"""

import hashlib
import io
import re
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Annotated, Any

import msgspec

from kvexp import files
from kvexp.errors import ConfigError, InputError, NotFetched, suggest
from kvexp.records import ID_LENGTH, ID_PATTERN
from kvexp.scoring import retrieval
from kvexp.tasks._words import Choices
from kvexp.tasks.base import Count, HubFile, PromptText, Question, Task

HUB_FILE = HubFile("THUDM/LongBench", "5e628be450b7e67fb7ae6e201bd6d8f7056f7672", "data.zip")
HUB_SHA256 = "cb45b11a4133c6bc1d6a44b0f8e701335ff1e543195db1103472e575857f7f64"
# What is read of a file, unpacked: several times what LongBench has, and refused before memory is full.
FILE_LIMIT, LINE_LIMIT, LINES_LIMIT = 200_000_000, 4_000_000, 100_000  # bytes, bytes, lines

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
    """One data set of LongBench."""

    dataset: str  # its name in LongBench; decides prompt and score
    # A folder or zip with <file>.jsonl or data/<file>.jsonl, relative to the working directory; null reads
    # the hub's data.zip from the local cache.
    data_dir: str | None = None
    # Name of the file without its ending, where it is not the data set's (hotpotqa_e).
    file: str | None = None
    revision: str = HUB_FILE.revision  # of the hub's repository
    sha256: str = HUB_SHA256  # of its data.zip at that revision; another file is not used

    is_cut = True

    def __post_init__(self) -> None:
        if self.dataset not in PROMPTS:
            raise ConfigError(f"there is no dataset {self.dataset!r}; {suggest(self.dataset, list(PROMPTS))}")
        if self.data_dir is not None and (not isinstance(self.data_dir, str) or not self.data_dir.strip()):
            raise ConfigError(f"data_dir must be a folder, a zip or null, got {self.data_dir!r}")
        if self.file is not None and not re.match(ID_PATTERN, str(self.file)):
            raise ConfigError(f"file must be the name of a file without .jsonl, got {self.file!r}")
        for name, length in (("revision", 40), ("sha256", 64)):
            if not re.fullmatch(rf"[0-9a-f]{{{length}}}", getattr(self, name)):
                raise ConfigError(f"{name} has {length} hexadecimal digits, got {getattr(self, name)!r}")

    @property
    def score_name(self) -> str:  # type: ignore[override]  # fixed by the data set
        return "retrieval" if self.dataset == "passage_retrieval_en" else "token_f1"

    def source(self) -> HubFile | None:
        return HUB_FILE._replace(revision=self.revision) if self.data_dir is None else None

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
        source = self.source()
        place = _cached_archive(source, self.sha256) if source is not None else _expanded(str(self.data_dir))
        name = self.file or self.dataset
        candidates = [f"{name}.jsonl", f"data/{name}.jsonl"]
        if place.is_dir():
            if there := [place / one for one in candidates if (place / one).is_file()]:
                return there[0], None
        elif place.suffix == ".jsonl" or (place.is_file() and not _is_zip(place)):
            raise InputError(
                f"data_dir {self.data_dir} is a file of records, not their folder: name the folder, "
                f"task.data_dir={place.parent}"
            )
        elif not place.is_file():
            raise InputError(f"data_dir of {self.dataset} is not there: {place} is no folder and no zip")
        else:
            members = _members(place)
            if inside := [one for one in candidates if one in members]:
                return place, inside[0]
        raise InputError(f"{place} has neither {' nor '.join(candidates)}")


def _is_zip(path: Path) -> bool:
    """By its name, however damaged, or by what it holds."""
    return path.suffix == ".zip" or zipfile.is_zipfile(path)


def _expanded(data_dir: str) -> Path:
    try:
        return Path(data_dir).expanduser().absolute()
    except RuntimeError as error:  # a user whose home is unknown
        raise InputError(f"data_dir {data_dir!r}: {error}") from None


def _cached_archive(source: HubFile, sha256: str) -> Path:
    """The hub's file in the local cache. Raises NotFetched for none and for another one."""
    from huggingface_hub import try_to_load_from_cache  # only this needs it

    repo, revision, filename = source
    what = f"LongBench ({filename} of {repo})"
    found = try_to_load_from_cache(repo, filename, revision=revision, repo_type="dataset")
    if not isinstance(found, str):
        raise NotFetched(
            f"{what} is not on this machine: run `kvexp fetch` where there is a "
            "network, or set task.data_dir to a folder or zip that holds its records"
        )
    path = Path(found)
    digest = files.digest_once(path)
    if digest != sha256:
        raise NotFetched(
            f"{what} at {revision[:12]} is on this machine with the sha256 {digest[:12]}... instead of "
            f"{sha256[:12]}... and is not used: run `kvexp fetch`, which gets it again, or set task.data_dir "
            "to a folder or zip that holds its records"
        )
    return path


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
# A decoder keeps the last of repeated keys and says nothing. This one calls its hook for every value of a
# key that is read, and tells by the type which one it is.
_Keys = msgspec.defstruct(
    "_Keys", [(name, type(name, (), {}), None) for name in Record.__struct_encode_fields__]
)


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
    if line.startswith(b"\xef\xbb\xbf"):
        raise InputError(f"{where} begins with a byte order mark: save the file as UTF-8 without one")
    if b"\0" in line:
        raise InputError(f"{where} holds a NUL byte: records are lines of JSON in UTF-8")
    try:
        record = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise InputError(f"{where} is no record of LongBench: {error}") from None
    if twice := [key for key, n in _keys(line).items() if n > 1]:
        raise InputError(f"{where} has the key {twice[0]!r} twice: leave one of them")
    return record


def _keys(line: bytes) -> Counter[str]:
    """How often each key that is read stands in a line that is a record."""
    found: Counter[str] = Counter()

    def count(kind: type, _: object) -> object:
        found[kind.__name__] += 1
        return kind()

    msgspec.json.decode(line, type=_Keys, dec_hook=count)
    return found


def _check(record: Record, dataset: str, score: str, where: str) -> None:
    if any("\0" in text for text in (record.id, record.input, record.context, *record.answers)):
        raise InputError(f"{where} holds the character NUL, which no text has")
    # The files of LongBench-E call themselves either way.
    if record.dataset is not None and record.dataset.removesuffix("_e") != dataset:
        raise InputError(f"{where} is a record of {record.dataset!r}, not of {dataset}")
    if not any(answer.strip() for answer in record.answers):
        raise InputError(f"{where} has no answer: at least one of `answers` must say something")
    if score == "retrieval" and retrieval(record.answers[0], record.answers) != 1.0:
        raise InputError(f'{where} has the answer {record.answers[0][:40]!r}, but it must be "Paragraph N"')


def _lines(path: Path, member: str | None) -> Iterator[tuple[int, bytes]]:
    """Numbered lines, blank ones left out."""
    name = str(path) if member is None else f"{path}:{member}"
    try:
        with ExitStack() as stack:
            file, size = _opened(path, member, stack)
            if size > FILE_LIMIT:
                raise InputError(f"{name} has {size:,} bytes: more than {FILE_LIMIT:,} are not read")
            for number in range(1, LINES_LIMIT + 1):
                line = file.readline(LINE_LIMIT + 1)
                if len(line) > LINE_LIMIT:
                    raise InputError(f"{name}:{number} is longer than {LINE_LIMIT:,} bytes: it is no record")
                if not line:
                    return
                if line.strip():
                    yield number, line
            if file.read(1):
                raise InputError(f"{name} has more than {LINES_LIMIT:,} lines: they are not read")
    except _UNREADABLE as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def _opened(path: Path, member: str | None, stack: ExitStack) -> tuple[IO[bytes], int]:
    """A file, or one inside a zip, and how many bytes it has unpacked; no more than that are ever read."""
    if member is None:
        return stack.enter_context(path.open("rb")), path.stat().st_size
    archive = stack.enter_context(zipfile.ZipFile(path))
    info = archive.getinfo(member)
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise InputError(f"{path}:{member} is compressed in an unusual way: store or deflate it")
    packed: Any = stack.enter_context(archive.open(info))
    return stack.enter_context(io.BufferedReader(packed, 1 << 16)), info.file_size


def _members(path: Path) -> set[str]:
    """Names in a zip. Raises InputError for a name that stands twice: which one is meant?"""
    try:
        with zipfile.ZipFile(path) as archive:
            names = Counter(archive.namelist())
    except _UNREADABLE as error:
        raise InputError(f"{path} cannot be read as a zip: {error}") from None
    if twice := [name for name, n in names.items() if n > 1]:
        raise InputError(f"{path} holds {twice[0][:100]!r} twice: leave one of them")
    return set(names)


# Damaged, cut off, encrypted (RuntimeError), compressed in an unknown way (NotImplementedError).
_UNREADABLE = (OSError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError)
