"""A file of conf/ that is read directly is what Hydra makes of it; the rest is left to Hydra."""

from dataclasses import asdict

import pytest

from kvexp.study import items
from tests.project import ROOT

CONF = ROOT / "conf"
FILES = sorted(CONF.glob("*/*.yaml"))
TASK = "defaults: [base_task, _self_]\nname: t\nfamily: words\nmax_new_tokens: 3\n"


def test_every_shipped_file_is_read_as_hydra_reads_it():
    direct = 0
    for path in FILES:
        made = items._read(path, path.parent.name)
        if made is None:
            continue
        direct += 1
        composed = items._compose(CONF, path.parent.name, path.stem, [], path.name)
        assert type(made) is type(composed), path
        assert repr(asdict(made)) == repr(asdict(composed)), path
    assert direct >= 50  # nearly all: the rest refers to other values


@pytest.mark.parametrize(
    "text",
    [
        TASK + "params: {a: 1e-9}\n",  # a number to Hydra, a text to YAML
        TASK + "params: {a: '1_000'}\n",
        TASK + "params: {a: 2026-11-30}\n",
        TASK + "params: {a: '${task.name}'}\n",
        TASK + "name: again\n",
        TASK + "unknown: 1\n",
        TASK.replace("family: words\n", ""),
        TASK.replace("name: t", "name: 7"),
        TASK.replace("name: t", "name: null"),
        TASK.replace("name: t", "name: ???"),
        TASK.replace("tokens: 3", "tokens: true"),
        TASK.replace("tokens: 3", "tokens: 3.0"),
        TASK.replace("tokens: 3", "tokens: 0"),
        TASK.replace("[base_task, _self_]", "[_self_, base_task]"),
        TASK.replace("[base_task, _self_]", "[gone, _self_]"),
        TASK.replace("defaults: [base_task, _self_]\n", ""),
        "# @package _global_\n" + TASK,
        "[1, 2]\n",
        "",
        ": [\n",
    ],
)
def test_what_hydra_may_read_otherwise_or_refuse_is_left_to_it(tmp_path, text):
    path = tmp_path / "t.yaml"
    path.write_text(TASK)
    assert items._read(path, "task") is not None
    path.write_text(text)
    assert items._read(path, "task") is None
