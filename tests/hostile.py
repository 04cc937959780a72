"""A results folder whose every free text means harm to whoever shows it.

Names of suites, models, tasks, examples and arms cannot: the log schema admits letters, digits and . _ = -.
"""

import json
import shutil
from pathlib import Path

import msgspec

from kvexp import records
from kvexp.documents.forms import AttemptEvidence, Check, Evidence, LockEvidence, Look, SealEvidence, Stamp
from tests import planted
from tests.planted import SHORT

# Each piece sets a global where it is not shown as text.
HARM = (
    "</script><script>window.pwned=1</script>",
    '<img src=x onerror="window.pwned=1">',
    '<svg onload="window.pwned=1"><a xlink:href="javascript:window.pwned=1">x</a></svg>',
    '" onmouseover="window.pwned=1" autofocus onfocus="window.pwned=1',
    "' onmouseover='window.pwned=1",
    "</style></textarea></title><!-- --!> ]]>",
    "<iframe srcdoc='<script>parent.pwned=1</script>'></iframe>",
    "{{ 7 * 7 }}{% raw %} ${7 * 7} &lt;b&gt;",
)
STRANGE = "\u2028\u2029\u202eright to left\u200b\ufeff"
NUL = "\x00\x1b[2J"
LONG_WORD = "W" * 3000
A_MEGABYTE = 1_000_000  # of one word, in the first row of each log
NAME = "study <img src=x onerror=window.pwned=1> \" onmouseover='window.pwned=1"
BENIGN = "the answer as usual"


def folder(base: Path, registrations: Path) -> tuple[Path, Path]:
    """Write the study below `base`, with these registrations made hostile; returns both folders."""
    home = base / "home"
    shutil.copytree(registrations, home)
    for path in home.glob("*.toml"):
        path.write_text(_registration(path.read_text()), encoding="utf-8")
    grid = planted.plan(examples=10)
    results = planted.write(base / NAME, grid, planted.World(blame={"certificate": 1.0}))
    for number, log in enumerate(sorted(results.glob("*/*/generations.jsonl"))):
        rows = [msgspec.json.decode(line, type=records.Generation) for line in log.read_bytes().splitlines()]
        told = (_harmful(row, number + at, 0 if at else A_MEGABYTE) for at, row in enumerate(rows))
        log.write_bytes(planted.lines(told))
        planted.close(log.parent)
    _examples(results / "examples", grid)
    return results, home


def text(number: int) -> str:
    """A harmful text; every few are harmless."""
    if number % 9 == 8:
        return BENIGN
    return HARM[number % len(HARM)] + STRANGE + NUL + (LONG_WORD if number % 7 == 0 else "")


def evidence(ids: list[str]) -> Evidence:
    """Evidence about registrations without seals, harmful in every sentence."""
    words = " ".join(HARM)
    stamp = Stamp(
        trust=words,
        witness=words,
        root_sha256="0" * 64,
        kind="self-run",
        time="2026-11-01T00:00:00Z",
        serial="1",
        anchor="a" * 64,
    )
    seals = [
        SealEvidence(
            id=name,
            title=words,
            seal=None,
            existing_data="after-analysis",
            parent=None,
            commit=None,
            differences=[words],
            stamps=[stamp],
            grade=1,
            anchor="unanchored",
        )
        for name in ids
    ]
    lock = LockEvidence(suite=SHORT, manifest=None, incomplete=words, differences=[words], stamps=[], grade=0)
    attempt = AttemptEvidence(
        suite=SHORT,
        shard_id=SHORT,
        number=1,
        rows=1,
        is_closed=True,
        counts=False,
        reason=words,
        started_at=words,
        host=words,
        git_commit=words,
        git_dirty=None,
    )
    look = Look(at=words, user=words, suites=[SHORT], claims=[words], rows=1, verdicts_sha256="0" * 64)
    return Evidence(
        study="embedded",
        home="preregistration/embedded",
        read={},
        grade=1,
        seals=seals,
        amendments=[],
        attempts=[attempt],
        locks=[lock],
        looks=[look],
        replay=None,
        checks=[Check(name=words, holds=None, words=words)],
        cannot=[words],
    )


def _registration(body: str) -> str:
    harm = json.dumps(" ".join(HARM))  # a registration with characters that nobody sees is refused
    lines = []
    for line in body.splitlines():
        key = line.partition(" = ")[0]
        if key in ("title", "statement", "kill_prose", "stopping", "exclusions", "missing"):
            line = f"{key} = {harm}"
        elif key == "authors":
            line = f"authors = [{harm}]"
        elif key == "labels":
            line = f"labels = {{ KILLED = {harm}, SURVIVED = {harm}, NOT_MET = {harm} }}"
        elif key == '"f1 >= 0.3"':
            line = line.replace('"f1 >= 0.3"', json.dumps(HARM[0] + HARM[3]), 1)
        lines.append(line.replace('meaning = "', f"meaning = {json.dumps(HARM[1])[:-1]} "))
    return "\n".join(lines) + "\n"


def _harmful(row: records.Generation, number: int, length: int) -> records.Generation:
    undefined = {name: HARM[1] + HARM[3] for name in row.undefined}
    return msgspec.structs.replace(row, text=text(number) + "W" * length, undefined=undefined)


def _examples(target: Path, grid: list[records.Expected]) -> None:
    target.mkdir()
    for suite, model, task in sorted({(row.suite, row.model, row.task) for row in grid}):
        ids = dict.fromkeys(row.example_id for row in grid if (row.suite, row.task) == (suite, task))
        rows = [
            records.Example(
                suite=suite,
                model=model,
                task=task,
                example_id=name,
                question=text(at) + f" question {at}",
                references=[text(at + 1), *HARM],
                segments={},
                needle_depths=[],
                needle_tokens=[],
                n_context_full=900,
                n_context=900,
                n_prompt=1000,
                truncated=False,
                answer_survives=None,
                difference="",
            )
            for at, name in enumerate(ids)
        ]
        (target / f"{suite}.{model}.{task}.jsonl").write_bytes(planted.lines(rows))
