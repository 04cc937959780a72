"""Rows of each kind: the same numbers, in the same words, whichever command tells them."""

import re
import shutil
from itertools import chain

import pytest

from kvexp.cli import main
from kvexp.slurm.status import study_status
from kvexp.study.compose import select
from kvexp.study.grid import Counts, counts_of, shards
from tests.project import ROOT


def test_every_kind_that_is_there_is_told():
    both = Counts(cells=2, worlds=3) + Counts(1000)
    assert both.total == 1005
    assert str(both) == "1,000 generations, 2 cells, 3 world rows"
    assert str(Counts()) == "0 generations"
    assert Counts(cells=1).done_of(both) == "0 of 1,000 generations, 1 of 2 cells, 0 of 3 world rows"
    assert Counts(cells=1).done_of(Counts(4)) == "0 of 4 generations, 1 of 0 cells"


def test_counts_are_those_of_the_keys():
    """Against the keys themselves, one by one."""
    made = shards(select(["study=demo"], ROOT))
    keys = [type(key).__name__ for key in chain.from_iterable(shard.keys() for shard in made)]
    names = {"Key": "generations", "CellKey": "cells", "WorldKey": "worlds"}
    counted = Counts(**{kind: keys.count(name) for name, kind in names.items()})
    assert counts_of(made) == counted
    assert min(counted.generations, counted.cells, counted.worlds) > 0


@pytest.mark.skipif(not (ROOT / "results/embedded/grid.jsonl").exists(), reason="no reference run here")
def test_plan_and_status_say_the_same_of_the_reference_run(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    words = ["study=embedded", "suite=attention"]
    assert main(["plan", *words]) == 0
    told = re.search(r"shards, (.*), [0-9,]+ minutes", capsys.readouterr().out)[1]
    assert main(["status", *words]) == 0
    counts = re.findall(r"([0-9,]+) of ([0-9,]+) (cells|world rows)", capsys.readouterr().out)
    assert ", ".join(f"{whole} {kind}" for _, whole, kind in counts) == told
    assert all(done == whole for done, whole, _ in counts)
    # A log that was cut among its world rows, and one whose rows are other than the footer's shard.
    selection = select(words, ROOT)
    shutil.copytree(ROOT / "results/embedded/attention", tmp_path / "attention")
    first = min((tmp_path / "attention").iterdir())
    lines = (first / "cells.jsonl").read_bytes().splitlines(keepends=True)
    kinds = [line[:20] for line in lines]
    at = next(i for i, kind in enumerate(kinds) if b"world" in kind) + 5
    (first / "cells.jsonl").write_bytes(b"".join(lines[:at]))
    (first / "footer.json").unlink()
    row = study_status(selection, tmp_path)[0]
    assert row.state == "partial"
    assert (row.rows.cells, row.rows.worlds) == (at - 5, 5)
    assert row.rows.total == row.done
