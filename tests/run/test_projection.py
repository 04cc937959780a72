"""What a study will cost: against arithmetic by hand, and against the seconds of the reference run."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from kvexp.documents.manifest import read_manifest
from kvexp.errors import ConfigError
from kvexp.records import GENERATIONS, Generation, Reader
from kvexp.records import seconds_of as clock
from kvexp.run.log import model_seconds, read_attempts, read_footer
from kvexp.run.progress import AFTER, AROUND, expected_minutes, expected_seconds, project, rate_of
from kvexp.study.compose import select
from kvexp.study.grid import chosen, shards
from kvexp.study.rates import Rate, Roofline, Shape, estimated
from kvexp.study.schema import ClusterConf, SlurmConf
from scripts.measure_rates import fit, main, nonnegative
from tests.project import ROOT
from tests.study.test_grid import FIXED

FROM = {"device": "a machine", "dtype": "float32", "date": "2026-01-01", "command": "a clock"}
RATE = Rate(
    **FROM,
    prefill_token_s=0.01,
    prefill_square_s=1e-6,
    plan_token_s=1e-4,
    step_s=0.5,
    arm_s=0.25,
    cached_s=0.001,
    answer_share=0.75,
    arm_share=0.5,
    cell_s=0.002,
    world_s=0.003,
)


def cluster(**changes):
    made = ClusterConf(name="c", executor="local", workers=2, rates={"m": RATE})
    return replace(made, **changes)


def test_by_hand():
    """2 examples of 512 + 64 tokens; full, and 25 % aware and stream with two seeds each; 8 answer tokens."""
    assert (AROUND, AFTER) == (64, 32)
    prefill = 576 * 0.01 + 576 * 576 * 1e-6
    plans = 5 * 576 * 1e-4
    suffix = 2 * 32 * 0.01
    full = 4 * (0.25 + 576 * 0.001)
    quarter = 4 * 4 * (0.25 + 144 * 0.001)
    seconds = 2 * (prefill + plans + suffix + 6 * 0.5 + full + quarter)
    assert expected_seconds(FIXED, cluster()) == pytest.approx(seconds, rel=1e-12)
    assert expected_minutes(FIXED, cluster()) == pytest.approx(seconds / 60 / 2, rel=1e-12)
    # Without a context there is only what is around it.
    bare = 64 * 0.01 + 64 * 64 * 1e-6 + 64 * 1e-4 + 6 * 0.5 + 4 * (0.25 + 64 * 0.001)
    no_context = replace(FIXED, arms=FIXED.arms[:1], no_context=True)
    assert expected_seconds(no_context, cluster()) == pytest.approx(2 * bare, rel=1e-12)


def test_attention_by_hand():
    selection = select(["study=demo", "suite=demo-attention"], ROOT)
    shard = chosen(shards(selection), selection)[0]
    n, budgets, cells = len(shard.example_ids), 3, 30 * 9
    rows = n * budgets * cells * 0.002 + len(shard.world_ids) * 2 * 7 * 30 * 0.003
    length = shard.context_tokens
    seconds = n * (length * 0.01 + length**2 * 1e-6) + rows
    assert shard.world_ids
    assert expected_seconds(shard, cluster(rates={"smollm2-135m": RATE})) == pytest.approx(seconds, rel=1e-12)


@pytest.mark.parametrize(
    ("changes", "gpus"),
    [
        ({"slurm": SlurmConf(gres="gpu:2")}, 2),
        ({"slurm": SlurmConf()}, 1),
        ({"slurm": SlurmConf(gres="shard:1", gpu_share=0.25)}, 0.25),
        ({"slurm": SlurmConf(gres="mps:25", gpu_share=0.01)}, 0.25),
        ({"executor": "local", "workers": 4}, 0.25),
        ({"executor": "debug"}, 1),
    ],
    ids=str,
)
def test_hours_of_a_gpu_are_those_of_the_part_that_a_shard_has(changes, gpus):
    here = cluster(device="cuda", **{"executor": "slurm", **changes})
    hours = project([FIXED], replace(here, rates={FIXED.model.name: RATE})).total
    alone = expected_seconds(FIXED, replace(here, rates={FIXED.model.name: RATE}))
    assert hours * 3600 == pytest.approx(gpus * alone, rel=1e-12)


def test_rates_without_cells_are_a_floor_and_say_so():
    selection = select(["study=demo", "suite=demo-attention"], ROOT)
    made = chosen(shards(selection), selection)
    whole = project(made, cluster(rates={"smollm2-135m": RATE}))
    bare = project(made, cluster(rates={"smollm2-135m": replace(RATE, world_s=0.0)}))
    assert (whole.is_floor, bare.is_floor) == (False, True)
    assert "attention cells" in bare.left_out
    assert "attention cells" not in whole.left_out


def test_rates_come_from_sound_logs_of_one_device(tmp_path, capsys, monkeypatch):
    source = ROOT / "results" / "embedded" / "embedded-1k"
    folders = sorted(source.iterdir())[:2]
    for folder in folders:
        shutil.copytree(folder, tmp_path / "mini" / source.name / folder.name)
    monkeypatch.setattr("sys.argv", ["measure_rates", str(tmp_path / "mini")])
    assert main() == 0
    assert f"command: python -m scripts.measure_rates {tmp_path}/mini" in capsys.readouterr().out
    attempt = tmp_path / "mini" / source.name / folders[1].name / "attempt-001.json"
    attempt.write_text(attempt.read_text().replace('"device":"cpu"', '"device":"cuda:0"'))
    assert main() == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert "were made on several devices (cpu float32 1 threads; cuda:0 float32 1 threads)" in told.err
    shutil.rmtree(attempt.parent)
    log = tmp_path / "mini" / source.name / folders[0].name / GENERATIONS
    log.write_bytes(log.read_bytes()[:-40])
    assert main() == 4
    assert str(log) in capsys.readouterr().err
    shutil.rmtree(tmp_path / "mini")
    assert main() == 2
    assert "has no closed shard" in capsys.readouterr().err


SHAPE = Shape(params=1e9, layers=10, width=1000, kv_width=100)
ROOF = Roofline(
    device="a card", dtype="bfloat16", date="2026-01-01", source="its sheet", flops=1e15, bytes_per_s=4e12,
    flops_share=0.5, bytes_share=0.25, kernels_per_layer=20, kernel_s=5e-6,
)  # fmt: skip


def test_a_roofline_by_hand():
    made = estimated(SHAPE, ROOF)
    assert made.prefill_token_s == pytest.approx(2e9 / 5e14)
    assert made.prefill_square_s == pytest.approx(2 * 10 * 1000 / 5e14)
    assert made.step_s == pytest.approx(2e9 / 1e12)  # reading 2 GB, longer than launching 200 kernels
    assert made.arm_s == pytest.approx(2e9 / 5e14)
    assert made.cached_s == pytest.approx(2 * 10 * 100 * 2 / 1e12)
    slow = estimated(SHAPE, replace(ROOF, kernel_s=5e-5))
    assert slow.step_s == pytest.approx(200 * 5e-5)


def test_what_is_measured_comes_before_what_is_estimated_and_each_says_which():
    both = cluster(shapes={"m": SHAPE}, roofline=ROOF)
    assert rate_of("m", both) is RATE
    assert project([FIXED], both).bases == ("measured on a machine, float32, 2026-01-01: a clock",)
    only = replace(both, rates={}, device="cuda", executor="slurm")
    only.slurm = replace(only.slurm, gres="gpu:h100:2")
    told = project([FIXED], only)
    assert told.bases == ("estimated, not measured: a card, bfloat16, 2026-01-01: its sheet",)
    assert "certificates" in told.left_out
    assert told.unit == "GPU-hours"
    assert told.total == pytest.approx(
        2 * expected_seconds(FIXED, only) / 3600
    )  # a shard holds both its GPUs
    none = project([FIXED], replace(both, rates={}, roofline=None))
    assert (none.total, none.by_suite, none.lacking) == (None, {"s": None}, ("m",))
    assert "certificates" not in project([FIXED], both).left_out


@pytest.mark.parametrize(
    "words",
    [
        "rates.smollm2-135m.step_s=-1",
        "rates.smollm2-135m.answer_share=1.5",
        "rates.smollm2-135m.arm_share=1.5",
        "rates.smollm2-135m.cached_s=inf",
        "rates.smollm2-135m.step_s=1e30",
    ],
)
def test_rates_that_are_none_are_refused(words):
    with pytest.raises(ConfigError, match=r"conf/cluster/local\.yaml"):
        select(["study=demo", f"cluster.{words}"], ROOT)


@pytest.mark.parametrize(
    "words", ["flops=0", "flops=1e-300", "bytes_share=0", "flops_share=7", "kernel_s=-1"]
)
def test_a_roofline_that_is_none_is_refused(words):
    with pytest.raises(ConfigError, match=f"roofline: {words.split('=')[0]} "):
        select(["study=demo", "cluster=slurm_h100", f"cluster.roofline.{words}"], ROOT)


def test_a_field_of_a_roofline_that_is_not_there_is_one_sentence():
    with pytest.raises(ConfigError, match=r"^conf/cluster/local\.yaml with cluster\.roofline.flops=1 "):
        select(["study=demo", "cluster.roofline.flops=1"], ROOT)


def test_every_model_of_the_paper_has_an_estimate():
    selection = select(["study=paper", "cluster=slurm_h100"], ROOT)
    assert not selection.cluster.rates
    rates = [rate_of(model.name, selection.cluster) for model in selection.models]
    assert all(rate is not None for rate in rates)
    for model in selection.models:
        assert selection.cluster.shapes[model.name].layers == model.layers


REFERENCE = ROOT / "results" / "embedded"


def test_the_reference_run_from_its_own_rates():
    """All suites: the seconds of the model where they are logged, else those between start and end."""
    spent = 0.0
    for path in REFERENCE.glob("*/*/footer.json"):
        footer, first = read_footer(path.parent), read_attempts(path.parent)[0]
        whole = clock(footer.ended_at) - clock(first.started_at)
        # Footers of this run count a batch once for each of its budgets: the rows do not.
        log = path.parent / GENERATIONS
        lines = log.read_bytes().splitlines() if log.exists() else []
        seconds = model_seconds(map(Reader[Generation](Generation), lines))
        spent += whole if seconds is None else seconds
    if not spent:
        pytest.skip("the reference run is not here")
    rate = fit(REFERENCE, "smollm2-135m")
    made = shards(select(["study=embedded"], ROOT))
    projected = project(made, ClusterConf(name="c", executor="local", rates={"smollm2-135m": rate}))
    assert projected.total * 3600 == pytest.approx(spent, rel=0.15)


def test_least_squares_without_negative_terms():
    """Against a grid of coefficients, where the free solution has a negative one."""
    columns = np.array([[1.0, 1.0], [1.0, 2.0], [1.0, 3.0], [1.0, 5.0]])
    wanted = np.array([0.5, 3.0, 5.0, 10.0])
    assert min(np.linalg.lstsq(columns, wanted, rcond=None)[0]) < 0
    found = nonnegative(columns, wanted)
    grid = [(a, b) for a in np.linspace(0, 4, 201) for b in np.linspace(0, 4, 201)]
    errors = [float(np.sum((columns @ np.array(one) - wanted) ** 2)) for one in grid]
    assert np.sum((columns @ np.array(found) - wanted) ** 2) <= min(errors)
    assert found == pytest.approx(grid[int(np.argmin(errors))], abs=0.02)
    assert nonnegative(columns, columns @ np.array([2.0, 3.0])) == pytest.approx([2.0, 3.0])


def test_rates_are_in_no_digest_and_in_no_seal():
    words = ["study=demo", "cluster=slurm_h100", "cluster.roofline.kernel_s=1"]
    plain, other = (shards(select(w, ROOT)) for w in (["study=demo"], words))
    assert [shard.digest for shard in plain] == [shard.digest for shard in other]
    assert "kernel_s" not in json.dumps([shard.resolved() for shard in other])
    sealed = [read_manifest(path) for path in ROOT.glob("preregistration/*/seals/*.sha256")]
    assert sealed
    paths = {path for one in sealed for path in one.files}
    assert not [
        p for p in paths if p.startswith("conf/") or p in ("kvexp/study/rates.py", "kvexp/run/progress.py")
    ]
