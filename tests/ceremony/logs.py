"""The logs of a small study, made under an anchor, and ways to forge them."""

import msgspec
import torch

from kvexp.records import GENERATIONS, Generation, Reader, encode
from kvexp.run.attempt import Place, Under
from kvexp.run.shard import run_shard
from kvexp.study import provenance
from tests import planted

ANCHOR = "a" * 64
read = Reader[Generation](Generation)


def folder_of(results, shard):
    return results / shard.suite / shard.shard_id


def run(results, shards, loaded, anchor=ANCHOR):
    torch.set_num_threads(1)  # attempts record it, whatever other tests left behind
    for shard in shards:
        place = Place(folder_of(results, shard), Under(anchor=anchor), (None, None), "cpu")
        run_shard(shard, place, lambda: loaded)


def log_of(results, shard):
    return [read(line) for line in (folder_of(results, shard) / GENERATIONS).read_bytes().splitlines()]


def is_poisson(row):
    return row.arm == "poisson"


def forge(results, shard, change, only=is_poisson, count=1):
    """Change the first rows of a shard that fit, and close it again as if nothing had happened."""
    rows, left = [], count
    for row in log_of(results, shard):
        if left and only(row):
            row, left = change(row), left - 1
        rows.append(row)
    assert left == 0
    rewrite(results, shard, rows)


def rewrite(results, shard, rows):
    folder = folder_of(results, shard)
    (folder / GENERATIONS).write_bytes(b"".join(encode(row) + b"\n" for row in rows))
    planted.close(folder)


def with_fields(**fields):
    return lambda row: msgspec.structs.replace(row, **fields)


def restate(results, shards, **changes):
    for shard in shards:
        planted.restate(folder_of(results, shard) / "attempt-001.json", **changes)


def elsewhere(results, shards):
    """As if the attempts had run on other software."""
    restate(results, shards, versions={**provenance.versions(), "torch": "2.0.0"})
