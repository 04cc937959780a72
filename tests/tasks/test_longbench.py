"""LongBench: official prompts, which records, where they are read from, and the cut in the middle."""

import hashlib
import json
import os
import re
import socket
import string
import subprocess
import sys
import zipfile
from functools import cache
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from kvexp import tasks
from kvexp.errors import ConfigError, InputError, NotFetched
from kvexp.models.embedded import embedded_model
from kvexp.models.load import load_tokenizer
from kvexp.records import ID_LENGTH, ID_PATTERN, Example, Reader
from kvexp.run.prepare import write_examples
from kvexp.study.plugins import build_task
from kvexp.study.prompts import Rendering, prompt_of
from kvexp.tasks.longbench import FILE_LIMIT, HUB_FILE, HUB_SHA256, LINE_LIMIT, PROMPTS, Longbench, safe_id
from tests import project, tiny

# sha256 of the entries of LongBench/config/dataset2prompt.json at 2e00731, made from that file; answer
# lengths from dataset2maxlen.json beside it; digests of prompts, which change only with the data made.
GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "longbench.json").read_text())
DATASETS = list(GOLDEN["prompts"])
SEED = 1
# Words of many scripts, an end of turn, braces and line separators: text that must survive as it is.
ODD = "Ōsaka {context} 1\u2028two <|im_end|> naïve {0} \U0001f98a ß"


def record(number: int = 0, dataset: str = "hotpotqa", **fields: object) -> dict[str, object]:
    """An own record in LongBench's shape."""
    sentences = [f"Sentence {i} of text {number} says {ODD}." for i in range(80)]
    reference = f"Paragraph {number + 1}" if dataset == "passage_retrieval_en" else f"answer {number}"
    return {
        "_id": hashlib.md5(str(number).encode()).hexdigest(),
        "input": f"What does text {number} say {{input}}?",
        "context": "\n".join(sentences),
        "answers": [reference],
        "length": 80,
        "dataset": dataset,
        "language": "en",
        "all_classes": None,
        **fields,
    }


def to_lines(records: list[dict[str, object]]) -> bytes:
    return b"".join(json.dumps(r, ensure_ascii=False).encode() + b"\n" for r in records)


def write(path: Path, records: list[dict[str, object]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(to_lines(records))
    return path


def zipped(path: Path, member: str, body: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(member, body)
    return path


def family(data_dir: object = None, dataset: str = "hotpotqa", **params: object) -> Longbench:
    made = build_task(
        "longbench", dataset=dataset, data_dir=None if data_dir is None else str(data_dir), **params
    )
    assert isinstance(made, Longbench)
    return made


@cache
def tokenizer(name: str):
    return tiny.tokenizer() if name == "bytes" else load_tokenizer(embedded_model())


def digest(ids) -> str:
    return hashlib.sha256(" ".join(map(str, ids.tolist())).encode()).hexdigest()


# Prompts, lengths and scores ---------------------------------------------------------------------


def test_prompts_are_the_official_ones_byte_for_byte():
    assert {n: hashlib.sha256(p.encode()).hexdigest() for n, p in PROMPTS.items()} == GOLDEN["prompts"]


@pytest.mark.parametrize("dataset", DATASETS)
def test_a_prompt_is_what_the_official_code_formats(dataset, tmp_path):
    write(tmp_path / f"{dataset}.jsonl", [record(0, dataset)])
    made = family(tmp_path, dataset)
    [question] = made.load(1, SEED, 6000)
    parts = made.prompt(question)
    whole = PROMPTS[dataset].format(**record(0, dataset))
    assert parts.before + parts.context + parts.after + parts.answer_prefix == whole
    assert parts.context == record(0, dataset)["context"]
    assert parts.after.count(parts.question) == 1


def test_the_shipped_tasks_have_official_lengths():
    for dataset in DATASETS:
        conf = OmegaConf.load(project.ROOT / "conf" / "task" / f"{dataset}.yaml")
        assert conf.family == "longbench"
        assert (conf.params, conf.data_dir) == ({"dataset": dataset}, None)
        assert conf.max_new_tokens == GOLDEN["max_new_tokens"][dataset]


def test_scores_equal_those_of_another_project(shared_data):
    rows = [json.loads(line) for line in (shared_data / "peer_scores.jsonl").read_text("utf-8").splitlines()]
    ours = [row for row in rows if row["dataset"] in DATASETS]
    assert len(ours) > 30
    for row in ours:
        made = family(dataset=row["dataset"])
        question = tasks.Question("x", "", "", tuple(row["answers"]))
        assert made.score(row["pred"], question) == row["score"], row["_id"]
    assert {family(dataset=n).score_name for n in DATASETS} == {"token_f1", "retrieval"}


# Which records -----------------------------------------------------------------------------------


def shuffled(ids: list[str], key: str) -> list[str]:
    """Fisher-Yates on sha256 of "key#counter", written for this test."""
    pool = sorted(ids)
    for place in range(len(pool)):
        word = hashlib.sha256(f"{key}#{place}".encode()).digest()[:8]
        other = place + int.from_bytes(word, "big") % (len(pool) - place)
        pool[place], pool[other] = pool[other], pool[place]
    return pool


@pytest.fixture(scope="module")
def official(shared_data, tmp_path_factory) -> Path:
    """122 records with official ids; they are of a data set that the study does not have."""
    lines = (shared_data / "longbench" / "qasper_ids.jsonl").read_text("utf-8").splitlines()
    rows = [{**json.loads(line), "dataset": "multifieldqa_en"} for line in lines]
    return write(tmp_path_factory.mktemp("ids") / "multifieldqa_en.jsonl", rows)


def test_a_hundred_official_ids_are_chosen_by_a_keyed_shuffle(official):
    rows = [json.loads(line) for line in official.read_bytes().splitlines()]
    made = family(official.parent, "multifieldqa_en")
    ids = made.example_ids(100, SEED, 6000)
    assert ids == shuffled([row["_id"] for row in rows], f"longbench/multifieldqa_en/{SEED}")[:100]
    assert hashlib.sha256("\n".join(ids).encode()).hexdigest() == GOLDEN["qasper_ids"]
    assert all(re.fullmatch("[0-9a-f]{48}", i) for i in ids)
    questions = {row["_id"]: (row["input"], row["context"], tuple(row["answers"])) for row in rows}
    assert {q.example_id: (q.question, q.context, q.references) for q in made.load(100, SEED, 6000)} == {
        i: questions[i] for i in ids
    }


def test_fewer_examples_are_the_first_ones_at_any_length_and_in_any_file_order(official, tmp_path):
    made = family(official.parent, "multifieldqa_en")
    ids = made.example_ids(100, SEED, 6000)
    assert made.example_ids(40, SEED, 16_000) == ids[:40]
    assert made.example_ids(100, SEED + 1, 6000) != ids
    lines = official.read_bytes().splitlines(keepends=True)
    (tmp_path / "multifieldqa_en.jsonl").write_bytes(b"".join(lines[::-1]))
    assert family(tmp_path, "multifieldqa_en").example_ids(100, SEED, 6000) == ids


def test_fewer_records_than_asked_for_are_all_used_and_said(tmp_path):
    write(tmp_path / "hotpotqa.jsonl", [record(i) for i in range(5)])
    made = family(tmp_path)
    assert len(made.load(100, SEED, 6000)) == 5
    assert made.remark(100) == "hotpotqa has 5 records, not the 100 asked for: all are used"
    assert made.remark(5) is None


@pytest.mark.parametrize(
    "name", ["musique:2hop__1/2", "../../etc", "-x", ".hidden", "", "a b", "Ō" * 300, "x" * 201, "a\n"]
)
def test_any_id_becomes_one_that_logs_can_hold(name):
    made = safe_id(name)
    assert re.match(ID_PATTERN, made)
    assert len(made) <= ID_LENGTH
    assert made == safe_id(name) != safe_id(name + "_")


def test_a_valid_id_stays_and_another_one_stays_readable():
    assert safe_id("3ac3eef636db") == "3ac3eef636db"
    wanted = hashlib.sha256(b"musique:2hop__1").hexdigest()[:12]
    assert safe_id("musique:2hop__1") == f"musique_2hop_1-{wanted}"


# Where records are read from ---------------------------------------------------------------------


def test_folder_and_zip_give_the_same(tmp_path, monkeypatch):
    rows = [record(i) for i in range(4)]
    write(tmp_path / "flat" / "hotpotqa.jsonl", rows)
    write(tmp_path / "deep" / "data" / "hotpotqa.jsonl", rows)
    zipped(tmp_path / "data.zip", "data/hotpotqa.jsonl", to_lines(rows))
    zipped(tmp_path / "flat.zip", "hotpotqa.jsonl", to_lines(rows))
    wanted = family(tmp_path / "flat").load(4, SEED, 6000)
    assert len(wanted) == 4
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for place in (tmp_path / "deep", tmp_path / "data.zip", "flat.zip", "./flat", "~/deep", "~/data.zip"):
        assert family(place).load(4, SEED, 6000) == wanted
        assert family(place).source() is None


def test_another_file_of_the_same_data_set(tmp_path):
    write(tmp_path / "hotpotqa_e.jsonl", [record(7, "hotpotqa_e")])
    [question] = family(tmp_path, file="hotpotqa_e").load(1, SEED, 6000)
    assert question.references == ("answer 7",)


def test_a_changed_file_is_read_again(tmp_path):
    path = write(tmp_path / "hotpotqa.jsonl", [record(0)])
    assert len(family(tmp_path).load(9, SEED, 6000)) == 1
    write(path, [record(0), record(1)])
    assert len(family(tmp_path).load(9, SEED, 6000)) == 2


@pytest.fixture
def hub_cache(tmp_path, monkeypatch) -> Path:
    """An empty cache of the hub's client, and no network."""

    def refused(*_: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(socket.socket, "connect", refused)
    return tmp_path / "hub"


def test_what_is_not_in_the_cache_has_to_be_fetched(hub_cache):
    with pytest.raises(NotFetched, match=r"`kvexp fetch`.*data_dir"):
        family().load(1, SEED, 6000)
    assert not hub_cache.exists()


def test_the_pinned_archive_is_read_from_the_cache(hub_cache):
    assert family().source() == HUB_FILE == ("THUDM/LongBench", GOLDEN["revision"], "data.zip")
    assert family().sha256 == HUB_SHA256
    snapshots = hub_cache / "datasets--THUDM--LongBench" / "snapshots"
    other = zipped(snapshots / ("0" * 40) / "data.zip", "data/hotpotqa.jsonl", to_lines([record(1)]))
    with pytest.raises(NotFetched):  # another revision is another data set
        family().load(1, SEED, 6000)
    there = zipped(snapshots / GOLDEN["revision"] / "data.zip", "data/hotpotqa.jsonl", to_lines([record(2)]))
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in (other, there)}
    with pytest.raises(NotFetched, match=f"sha256 {digests[there][:12]}.*{HUB_SHA256[:12]}.*not used.*fetch"):
        family().load(1, SEED, 6000)
    assert family(sha256=digests[there]).load(1, SEED, 6000)[0].references == ("answer 2",)
    made = family(revision="0" * 40, sha256=digests[other])
    assert made.load(1, SEED, 6000)[0].references == ("answer 1",)


def test_nothing_beside_the_records_is_run(tmp_path):
    write(tmp_path / "hotpotqa.jsonl", [record(0)])
    for name in ("LongBench.py", "hotpotqa.py", f"{tmp_path.name}.py", "__init__.py"):
        (tmp_path / name).write_text("raise SystemExit('this was run')")
    assert len(family(tmp_path).load(1, SEED, 6000)) == 1


def test_further_fields_and_blank_lines_do_not_matter(tmp_path):
    body = b"\n" + to_lines([record(0, longbench_row=3, supporting={"titles": [1]})]) + b" \n"
    (tmp_path / "hotpotqa.jsonl").write_bytes(body)
    assert len(family(tmp_path).load(1, SEED, 6000)) == 1


# Mistakes ----------------------------------------------------------------------------------------


def without(name: str) -> bytes:
    return to_lines([{k: v for k, v in record(9).items() if k != name}])


BAD_LINES = {
    "not JSON": (b"{oops}\n", "JSON is malformed"),
    "no object": (b"[]\n", "Expected `object`"),
    "not UTF-8": (b'{"_id": "\xff"}\n', "UTF-8"),
    "half a character": (to_lines([record(9)]).replace(b"answer 9", b"\\ud800"), "surrogate"),
    "too deep": (b'{"x":' + b"[" * 100_000 + b"\n", "recursion"),
    "no id": (without("_id"), "`_id`"),
    "no input": (without("input"), "`input`"),
    "no context": (without("context"), "`context`"),
    "no answers": (without("answers"), "`answers`"),
    "blank input": (to_lines([record(9, input=" \n")]), r"\$.input"),
    "empty context": (to_lines([record(9, context="")]), r"\$.context"),
    "id is a number": (to_lines([record(9, _id=3)]), r"\$._id"),
    "answers is a text": (to_lines([record(9, answers="yes")]), r"\$.answers"),
    "an answer is a number": (to_lines([record(9, answers=["yes", 1])]), r"answers\[1\]"),
    "empty answers": (to_lines([record(9, answers=["", " "])]), "has no answer"),
    "of another data set": (to_lines([record(9, dataset="musique")]), "record of 'musique'"),
    "an id twice": (to_lines([record(0)]), "has the _id of line 1"),
    "a key twice": (to_lines([record(9)]).replace(b"{", b'{"answers": ["no"], ', 1), "'answers' twice"),
    "a key twice, once escaped": (
        to_lines([record(9)]).replace(b"{", b'{"\\u005fid": "x", ', 1),
        "'_id' twice",
    ),
    "a null twice": (
        to_lines([record(9, dataset=None)]).replace(b"{", b'{"dataset":null,', 1),
        "'dataset' t",
    ),
    "a byte order mark": (b"\xef\xbb\xbf" + to_lines([record(9)]), "byte order mark"),
    "UTF-16": (to_lines([record(9)]).decode().encode("utf-16-le"), "NUL byte"),
    "a NUL byte": (to_lines([record(9)]).replace(b"answer 9", b"answer\0"), "NUL byte"),
    "a NUL in a context": (to_lines([record(9, context="a\0b")]), "the character NUL"),
    "a NUL in an answer": (to_lines([record(9, answers=["yes", "\0"])]), "the character NUL"),
    "a long line": (b" " * LINE_LIMIT + b"\n", "longer than 4,000,000 bytes"),
}


@pytest.mark.parametrize("is_zip", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize("name", BAD_LINES)
def test_a_bad_line_is_named(name, is_zip, tmp_path):
    line, reason = BAD_LINES[name]
    body = to_lines([record(0)]) + line
    if is_zip:
        made = family(zipped(tmp_path / "data.zip", "data/hotpotqa.jsonl", body))
        where = f"{tmp_path / 'data.zip'}:data/hotpotqa.jsonl:2"
    else:
        (tmp_path / "hotpotqa.jsonl").write_bytes(body)
        made, where = family(tmp_path), f"{tmp_path / 'hotpotqa.jsonl'}:2"
    with pytest.raises(InputError, match=f"^{re.escape(where)} .*{reason}") as caught:
        made.load(1, SEED, 6000)
    assert "\n" not in str(caught.value)


def test_a_key_that_is_not_read_may_stand_twice(tmp_path):
    body = to_lines([record(0)]).replace(b"{", b'{"length": 3, "length": 3, "x": {"_id": 1, "_id": 2}, ', 1)
    (tmp_path / "hotpotqa.jsonl").write_bytes(body)
    assert len(family(tmp_path).load(1, SEED, 6000)) == 1


# Each is a sentence within a second and 200 MB, whatever it would unpack to ------------------------

HOSTILE = {
    "a long line": "longer than 4,000,000 bytes",
    "a long file": r"has 300,000,000 bytes: more than 200,000,000",
    "a bomb": r"has 4,000,000,000 bytes: more than 200,000,000",
    "a bomb that lies": "cannot be read",
    "one line in a zip": "longer than 4,000,000 bytes",
    "blank lines": "more than 100,000 lines",
    "a member twice": "holds 'data/hotpotqa.jsonl' twice",
    "a damaged lzma": "compressed in an unusual way",
    "brackets": "recursion|malformed|Expected",
    "answers": "has no answer",
}
READ = """
import sys, time
from pathlib import Path
from kvexp.errors import InputError
from kvexp.tasks.longbench import Longbench
start = time.process_time()
try:
    Longbench(dataset="hotpotqa", data_dir=sys.argv[1]).load(1, 1, 6000)
except InputError as error:
    print(error)
seconds = time.process_time() - start
# Its own peak: what getrusage says is at least what the process that started it had in memory.
peak = Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]
print(seconds, int(peak) / 1024)
"""


def zeros(path: Path, size: int, said: int | None = None) -> Path:
    """A zip with one member of zeros, written in pieces; its directory may say another size."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        with archive.open("data/hotpotqa.jsonl", "w", force_zip64=True) as member:
            for _ in range(size // 10_000_000):
                member.write(b" " * 10_000_000)
        if said is not None:
            archive.getinfo("data/hotpotqa.jsonl").file_size = said
    return path


def hostile(name: str, folder: Path) -> Path:
    flat, archive = folder / "hotpotqa.jsonl", folder / "data.zip"
    bodies = {
        "blank lines": b"\n" * (FILE_LIMIT // 2),
        "brackets": b'{"_id":"a","input":"b","context":"c","answers":' + b"[" * 3_900_000 + b"\n",
        "answers": b'{"_id":"a","input":"b","context":"c","answers":[' + b'"  ",' * 790_000 + b'""]}\n',
    }
    if name in bodies:
        flat.write_bytes(bodies[name])
    elif name in ("a long line", "a long file"):
        flat.touch()
        os.truncate(flat, {"a long line": 190_000_000, "a long file": 300_000_000}[name])
    elif name == "a damaged lzma":
        with zipfile.ZipFile(archive, "w", zipfile.ZIP_LZMA) as made:
            made.writestr("data/hotpotqa.jsonl", to_lines([record(0)]))
    elif name == "a member twice":
        zipped(archive, "data/hotpotqa.jsonl", to_lines([record(0)]))
        with zipfile.ZipFile(archive, "a") as made, pytest.warns(UserWarning, match="Duplicate name"):
            made.writestr("data/hotpotqa.jsonl", to_lines([record(1)]))
    else:
        size = {"a bomb": 20_000_000, "a bomb that lies": 400_000_000, "one line in a zip": 190_000_000}[name]
        zeros(archive, size, {"a bomb": 4_000_000_000, "a bomb that lies": 1000}.get(name))
    return folder if flat.exists() else archive


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_data_is_refused_quickly_and_in_little_memory(name, tmp_path):
    command = [sys.executable, "-c", READ, str(hostile(name, tmp_path))]
    run = subprocess.run(command, cwd=project.ROOT, capture_output=True, text=True, timeout=60)
    assert run.stderr == ""
    said, numbers = run.stdout.splitlines()
    assert re.search(HOSTILE[name], said)
    assert len(said) < 500
    seconds, megabytes = map(float, numbers.split())
    assert seconds < 10
    assert megabytes < 200


def test_a_gold_paragraph_must_have_a_number(tmp_path):
    name = "passage_retrieval_en"
    write(tmp_path / f"{name}.jsonl", [record(0, name), record(1, name, answers=["7"])])
    with pytest.raises(InputError, match=r"jsonl:2 .*'7'.*Paragraph N"):
        family(tmp_path, name).load(1, SEED, 6000)


def test_two_ids_that_logs_could_not_tell_apart_are_refused(tmp_path):
    write(tmp_path / "hotpotqa.jsonl", [record(0, _id="a:b"), record(1, _id=safe_id("a:b"))])
    with pytest.raises(InputError, match="has the _id of line 1"):
        family(tmp_path).load(2, SEED, 6000)


def test_a_place_without_the_records_is_a_sentence(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.zip").write_text("no archive")
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "hotpotqa.jsonl").write_bytes(b"\n")
    other = zipped(tmp_path / "other.zip", "data/musique.jsonl", to_lines([record(0)]))
    for place, reason in (
        (tmp_path / "nowhere", "is not there"),
        (tmp_path / "empty", r"neither hotpotqa\.jsonl nor data/hotpotqa\.jsonl"),
        (other, r"neither hotpotqa\.jsonl nor data/hotpotqa\.jsonl"),
        (tmp_path / "text.zip", "cannot be read as a zip"),
        (tmp_path / "blank", "holds no records"),
        ("~no-such-user-here/x", "data_dir '~no-such-user-here/x'"),
    ):
        with pytest.raises(InputError, match=reason):
            family(place).load(1, SEED, 6000)


def test_a_damaged_archive_is_a_sentence(tmp_path):
    body = to_lines([record(i) for i in range(20)])
    whole = zipped(tmp_path / "whole.zip", "data/hotpotqa.jsonl", body).read_bytes()
    middle = len(whole) // 2
    encrypted = bytearray(whole)
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        encrypted[whole.rindex(signature) + offset] |= 1
    unknown = bytearray(whole)
    for signature, offset in ((b"PK\x03\x04", 8), (b"PK\x01\x02", 10)):
        unknown[whole.rindex(signature) + offset] = 99
    damaged = {
        "cut": whole[:middle],
        "flipped": whole[:middle] + bytes(b ^ 0xFF for b in whole[middle : middle + 9]) + whole[middle + 9 :],
        "encrypted": bytes(encrypted),
        "unknown": bytes(unknown),
    }
    for name, data in damaged.items():
        (tmp_path / f"{name}.zip").write_bytes(data)
        with pytest.raises(InputError, match=f"{name}.zip"):
            family(tmp_path / f"{name}.zip").load(1, SEED, 6000)


@pytest.mark.parametrize(
    ("params", "reason"),
    [
        ({"dataset": "hotpot"}, "did you mean 'hotpotqa'"),
        ({"dataset": "hotpotqa", "data_dir": " "}, "data_dir must be"),
        ({"dataset": "hotpotqa", "data_dir": 3}, "'data_dir' of 'longbench' must be str"),
        ({"dataset": "hotpotqa", "file": "../x"}, "file must be"),
        ({"dataset": "hotpotqa", "sha256": "x"}, "sha256 has 64 hexadecimal digits"),
        ({"dataset": "hotpotqa", "folder": "x"}, "no parameter 'folder'"),
        ({}, "dataset"),
    ],
)
def test_wrong_parameters_are_sentences(params, reason):
    with pytest.raises(ConfigError, match=reason):
        build_task("longbench", **params)


# The cut -----------------------------------------------------------------------------------------


def check_cut(made: Longbench, question: tasks.Question, name: str, limit: int, chat: bool) -> None:
    """A cut prompt against the uncut ids of its parts."""
    to_ids = tokenizer(name)
    uncut = to_ids(question.context, add_special_tokens=False, split_special_tokens=True)["input_ids"]
    prompt = prompt_of(to_ids, made, question, Rendering(chat, limit))
    whole = prompt_of(to_ids, made, question, Rendering(chat, len(uncut)))
    ids, all_ids = prompt.ids.tolist(), whole.ids.tolist()
    kept = min(limit, len(uncut))
    wanted = uncut if len(uncut) <= limit else uncut[: (limit + 1) // 2] + uncut[len(uncut) - limit // 2 :]
    after = prompt.n_prefix + kept
    assert (prompt.n_context, prompt.n_context_full, whole.n_context) == (kept, len(uncut), len(uncut))
    assert ids[prompt.n_prefix : after] == wanted
    # What stands around the context is that of the whole prompt, and so is what the model reads there.
    assert ids[: prompt.n_prefix] == all_ids[: whole.n_prefix]
    assert ids[after:] == all_ids[whole.n_prefix + len(uncut) :]
    parts = made.prompt(question)
    assert to_ids.decode(ids[: prompt.n_prefix]).endswith(parts.before)
    assert parts.after in to_ids.decode(ids[after:])
    assert to_ids.decode(ids[slice(*prompt.question)]).strip().startswith(question.question.strip())
    # The decoded prompt is the rendered one, or it says where not.
    expected = to_ids.decode(ids[: prompt.n_prefix]) + prompt.context + to_ids.decode(ids[after:])
    assert (prompt.difference == "") == (to_ids.decode(ids) == expected)
    bare = prompt_of(to_ids, made, question, Rendering(chat, limit, context=False)).ids.tolist()
    assert bare == ids[: prompt.n_prefix] + ids[after:]


@pytest.mark.parametrize("limit", [1, 2, 501, 502, 100_000])
@pytest.mark.parametrize("name", ["bytes", "smollm2"])
@pytest.mark.parametrize("dataset", DATASETS)
def test_the_middle_of_the_context_is_cut_on_ids(dataset, name, limit, tmp_path):
    write(tmp_path / f"{dataset}.jsonl", [record(0, dataset)])
    made = family(tmp_path, dataset)
    [question] = made.load(1, SEED, limit)
    for chat in (True, False):
        check_cut(made, question, name, limit, chat)


@pytest.mark.parametrize("dataset", DATASETS)
def test_the_middle_of_real_contexts_is_cut(dataset, shared_data):
    made = family(shared_data / "longbench", dataset)
    for question in made.load(2, SEED, 6000):
        check_cut(made, question, "smollm2", 6001, chat=True)


def test_the_middle_of_a_real_context_is_cut_between_bytes(shared_data):
    made = family(shared_data / "longbench", "multifieldqa_en")
    for question in made.load(2, SEED, 6000):
        check_cut(made, question, "bytes", 6001, chat=True)


# Golden prompts and the record of an example -----------------------------------------------------


def test_prompts_of_own_records_are_the_registered_ones(tmp_path):
    """Which come from another run, with another hash seed: two runs give the same bytes."""
    found = {}
    for dataset in DATASETS:
        write(tmp_path / f"{dataset}.jsonl", [record(i, dataset) for i in range(3)])
        made = family(tmp_path, dataset)
        [question] = made.load(1, SEED, 2001)
        found[dataset] = digest(prompt_of(tokenizer("bytes"), made, question, Rendering(True, 2001)).ids)
    assert found == GOLDEN["own_records"]


@pytest.mark.parametrize("limit", [6000, 16_000])
def test_prompts_of_real_records_are_the_registered_ones(limit, shared_data):
    found = {}
    for dataset in DATASETS:
        made = family(shared_data / "longbench", dataset)
        [question] = made.load(1, SEED, limit)
        found[dataset] = digest(prompt_of(tokenizer("bytes"), made, question, Rendering(True, limit)).ids)
    assert found == GOLDEN["real_records"][str(limit)]


def test_an_examples_record_tells_what_the_cut_left(tmp_path, tiny_folder):
    """Lengths before and after; does the gold answer survive, and was it there before?"""
    filler = string.ascii_lowercase * 40
    rows = [
        record(0, context="answer 0 " + filler),
        record(1, context=filler[:520] + " answer 1 " + filler[:520]),
        record(2, context=filler),
        record(3, context="short, with ANSWER 3"),
    ]
    data = write(tmp_path / "data" / "hotpotqa.jsonl", rows).parent
    root = project.make(tmp_path, tiny_folder)
    project.write(root, "suite/mini", project.SUITE.replace("[words]", "[hotpotqa]"))
    shards = project.made(root, f"task.hotpotqa.params.data_dir={data}")
    assert len({shard.shard_id for shard in shards}) == 2
    write_examples(tmp_path / "results", shards, lambda _: tokenizer("bytes"))
    lines = (tmp_path / "results" / "examples" / "mini.tiny.hotpotqa.jsonl").read_bytes().splitlines()
    read: Reader[Example] = Reader(Example)
    found = {example.references[0]: example for example in map(read, lines)}
    assert {
        name: (e.n_context_full, e.n_context, e.truncated, e.answer_survives) for name, e in found.items()
    } == {
        "answer 0": (1049, 256, True, True),
        "answer 1": (1050, 256, True, False),
        "answer 2": (1040, 256, True, None),
        "answer 3": (20, 20, False, True),
    }
