"""The scripts that time the harness and check it on a GPU: their logic, on tiny models and the CPU."""

import json

import pytest
import torch

from scripts import bench_harness, bench_slurm, gpu_check
from scripts.benching import checks, setting, timing


@pytest.fixture(autouse=True)
def _small(monkeypatch):
    torch.set_num_threads(1)
    one = {"qwen2.5-1.5b": setting.ARCHITECTURES["qwen2.5-1.5b"]}
    for module in (setting, bench_harness, gpu_check):
        monkeypatch.setattr(module, "ARCHITECTURES", one)


def test_the_benchmark_prints_every_part_of_its_table(tmp_path, capsys):
    out = tmp_path / "rows.json"
    arguments = ["--tiny", "--lengths", "300", "--repeats", "1", "--new-tokens", "7", "--json", str(out)]
    assert bench_harness.main(arguments) == 0
    rows = json.loads(out.read_text())
    head, rule, *printed = capsys.readouterr().out.splitlines()
    assert (head.count("|"), rule.count("|"), len(printed)) == (5, 5, len(rows))
    assert all(line.endswith(" |  |") for line in printed)  # a tiny model has no target
    for what in ("certificate / deterministic", "score rows", "padded", "phase: decode", "throughput of 17"):
        assert any(what in row["what"] for row in rows), what
    times = [row["value"] for row in rows if row["unit"] in ("ms", "s", "MB", "ratio")]
    assert min(times) > 0


def test_the_check_holds_on_the_cpu_and_prints_the_table(capsys):
    assert gpu_check.main(["--device", "cpu", "--tiny"]) == 0
    printed = capsys.readouterr().out
    assert "every check holds" in printed
    assert "not on this device" in printed
    assert "throughput of 17 arms" in printed


def test_the_check_fails_where_a_product_is_rounded(monkeypatch, capsys):
    def rounding(one, other):
        return (one.bfloat16() @ other).float()

    monkeypatch.setattr(checks, "product", rounding)
    assert gpu_check.main(["--device", "cpu", "--tiny", "--seconds", "0"]) == 1
    printed = capsys.readouterr().out
    assert "DOES NOT HOLD" in printed
    assert "left out: no time" in printed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--repeats", "0"], "'0' is no whole number of at least 1"),
        (["--lengths", "300,-5"], "'-5' is no whole number"),
        (["--device", "nonsense"], "torch has no device 'nonsense' here"),
        (["--dtype", "int8"], "invalid choice: 'int8'"),
        (["--json", "/nowhere/rows.json"], "there is no folder /nowhere"),
        (["--no-embedded"], "leaves nothing to measure"),
    ],
)
def test_what_cannot_be_measured_is_said_before_anything_is(words, said, capsys):
    with pytest.raises(SystemExit) as ended:
        bench_harness.main(words)
    assert ended.value.code == 2
    told = capsys.readouterr()
    assert (said in told.err, told.out) == (True, "")


def test_a_prompt_that_is_too_short_for_the_arms_is_a_sentence(capsys):
    assert bench_harness.main(["--tiny", "--lengths", "30", "--only", "throughput"]) == 2
    assert "bench_harness: a budget of 0.25 keeps" in capsys.readouterr().err


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is one")
def test_without_a_gpu_the_check_says_so(capsys):
    assert gpu_check.main([]) == 2
    assert "no CUDA device" in capsys.readouterr().err


def test_a_peak_is_what_is_alive_at_once():
    def run() -> None:
        for _ in range(3):
            one = torch.ones(1000, 1000)
            two = one + 1
            del one, two

    assert timing.peak_bytes(run, torch.device("cpu")) == pytest.approx(8e6, rel=0.01)


def test_a_ratio_is_the_median_of_the_ratios_within_a_repeat():
    assert timing.ratio([2.0, 30.0, 4.0], [1.0, 10.0, 8.0]) == 2.0


@pytest.mark.slow
def test_the_benchmark_of_submit_and_status_prints_its_table(capsys):
    assert bench_slurm.main(["--shards", "10", "--repeats", "1"]) == 0
    printed = capsys.readouterr().out
    for what in ("submit, all of them, questions there", "status", "submit, a fifth of them again"):
        assert f"| {what} | " in printed
