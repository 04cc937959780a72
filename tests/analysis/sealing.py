"""Seals, amendments and locks of planted studies, written by hand: what `kvexp` writes for real ones."""

import hashlib
import json
import shutil
import tomllib
from collections import defaultdict
from pathlib import Path

import msgspec

from kvexp.documents import seals
from kvexp.documents.forms import Amendment, Lock, Sealed, SealedShard
from kvexp.documents.manifest import Manifest, core_files, read_manifest
from kvexp.files import digest
from kvexp.records import Attempt, encode
from tests import planted

ROOT = Path(__file__).resolve().parents[2]
PREFIX = "preregistration/embedded"
COMMIT = "c0ffee" * 6 + "c0ff"
ANCHOR = "a" * 64


def attempts(results, suites):
    """Attempt files of these suites."""
    return sorted(path for suite in suites for path in results.glob(f"{suite}/*/attempt-*.json"))


def shards(results, suites, **changes):
    """What a seal lists of a planted study, as its grid and attempts are now."""
    lines = defaultdict(list)
    for line in (results / "grid.jsonl").read_bytes().splitlines(keepends=True):
        row = json.loads(line)
        lines[row["suite"], row["shard_id"]].append(line)
    for path in attempts(results, suites):
        one = msgspec.json.decode(path.read_bytes(), type=Attempt)
        if one.number == 1:
            here = lines[path.parent.parent.name, one.shard_id]
            fields = {
                "suite": path.parent.parent.name,
                "shard_id": one.shard_id,
                "shard_digest": one.shard_digest,
                "protocol_digest": one.protocol_digest,
                "rows": len(here),
                "grid_sha256": hashlib.sha256(b"".join(here)).hexdigest(),
                "questions_sha256": "0" * 64,
                "model_digest": None,
                "config": {},
            }
            yield SealedShard(**{**fields, **changes})


def seal(results, home, name, *, amends=None, data_seal=None, listed=None, root=ROOT):
    """Seal home/NAME.toml over the study as it is now; returns the seal id."""
    content = tomllib.loads((home / f"{name}.toml").read_text())
    folder = home / "seals"
    folder.mkdir(exist_ok=True)
    parent = content.get("parent")
    about = Sealed(
        study=results.name,
        id=name,
        suites=content["suites"],
        parent=None if parent is None else seals.chain(home, parent)[0].read_manifest().digest,
        amends=amends,
        data_seal=data_seal,
        git_commit=COMMIT,
    )
    (folder / f"{name}.json").write_bytes(encode(about) + b"\n")
    listed = list(shards(results, content["suites"])) if listed is None else listed
    (folder / f"{name}.shards.jsonl").write_bytes(b"".join(encode(one) + b"\n" for one in listed))
    shutil.copyfile(home / f"{name}.toml", folder / f"{name}.toml")
    own = [home / f"{name}.toml", *(folder / f"{name}.{end}" for end in ("json", "toml", "shards.jsonl"))]
    own += [path for one in seals.amendments(home, name) for path in one.iterdir()]
    files = {path: digest(root / path) for path in core_files(root, content["claim"])}
    files |= {f"{PREFIX}/{path.relative_to(home)}": digest(path) for path in own}
    (folder / f"{name}.sha256").write_bytes(Manifest(files, "").body)
    return read_manifest(folder / f"{name}.sha256").digest


def amend(
    results,
    home,
    name,
    *,
    stage="after-data",
    accepts_protocol=False,
    files=("analysis/core/decide.py",),
    edit=lambda text: text,
    **changes,
):
    """Keep the seal that stands as an amendment, edit the registration and seal again; returns the new id."""
    folder = home / "amendments" / f"{name}-{len(seals.amendments(home, name)) + 1}"
    folder.mkdir(parents=True)
    before = read_manifest(home / "seals" / f"{name}.sha256").digest
    for path in (home / "seals").glob(f"{name}.*"):
        shutil.copyfile(path, folder / path.name)
    statement = Amendment(
        format="kvexp-amendment/1",
        registration=name,
        number=int(folder.name.rpartition("-")[2]),
        stage=stage,
        why="a wrong constant",
        data_seen="the verdicts",
        replaces=before,
        accepts_protocol=accepts_protocol,
        attempts=3 if stage == "after-data" else 0,
        looks=0,
        files=dict.fromkeys(files, "changed"),
    )
    text = home / f"{name}.toml"
    text.write_text(edit(text.read_text()))
    table = msgspec.to_builtins(statement)
    files = table.pop("files")
    lines = [f"{key} = {json.dumps(value)}" for key, value in table.items()]
    lines += ["[files]", *(f"{json.dumps(key)} = {json.dumps(value)}" for key, value in files.items())]
    (folder / "amendment.toml").write_text("\n".join(lines) + "\n")
    data_seal = before if stage == "after-data" else None
    return seal(results, home, name, amends=before, data_seal=data_seal, **changes)


def put_under(results, suites, seal_id, anchor=ANCHOR):
    """Let every attempt of the suites say that it was made under a seal."""
    for path in attempts(results, suites):
        planted.restate(path, seal=seal_id, anchor=anchor)


def lock(results, home, name, suite, *, incomplete=None):
    """Lock a suite; returns the digest of the manifest."""
    target = results / "locks" / "registration"
    for folder in ("seals", "amendments"):
        if (home / folder).is_dir():
            shutil.copytree(home / folder, target / folder, dirs_exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(home / f"{name}.toml", target / f"{name}.toml")
    about = Lock(
        study=results.name,
        suite=suite,
        registration=name,
        seal=read_manifest(home / "seals" / f"{name}.sha256").digest,
        rows=1,
        expected=1,
        incomplete=incomplete,
        looks=0,
        looks_sha256="0" * 64,
    )
    (results / "locks" / f"{suite}.json").write_bytes(encode(about) + b"\n")
    paths = [path for path in (results / suite).rglob("*") if path.is_file()]
    paths += [path for path in (results / "locks").rglob("*") if path.is_file() and f"{name}." in path.name]
    paths.append(results / "locks" / f"{suite}.json")
    names = [path.relative_to(results).as_posix() for path in paths]
    body = Manifest({path: digest(results / path) for path in names}, "").body
    (results / "locks" / f"{suite}.sha256").write_bytes(body)
    return hashlib.sha256(body).hexdigest()


def verdicts(folder):
    """What a run wrote for machines."""
    return json.loads((folder / "verdicts.json").read_bytes())


def flat(text):
    """Wrapped lines as one."""
    return " ".join(text.split())
