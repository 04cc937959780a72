"""How long do `submit` and `status` take where a study has thousands of shards on Slurm?

Makes a project of its own in a temporary folder, with stand-ins for Slurm's programs that answer at once, so
that what is measured is kvexp's own time. The first submit also makes the questions, the second not; then
three fifths of the shards are made complete, one fifth half done and dead, one fifth stays in the queue.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from kvexp.records import GENERATIONS, encode  # noqa: E402
from kvexp.slurm.submissions import Book, Sent  # noqa: E402
from kvexp.study.compose import select  # noqa: E402
from kvexp.study.grid import shards  # noqa: E402
from kvexp.study.shards import Shard  # noqa: E402
from scripts.benching.setting import positive  # noqa: E402
from scripts.planting.rows import attempt, close, generation, lines  # noqa: E402

SHARDS = 5000
STUDY = """
defaults: [base_study, _self_]
name: many
suites: [many]
models: [smollm2-135m]
"""
SUITE = """
defaults: [base_suite, _self_]
name: many
tasks: [passcodes]
context_tokens: 512
n_examples: {shards}
example_seed: 1
shard_examples: 1
arms:
  - {{arm: full}}
  - {{arm: h2o, conditions: [stream], budgets: [0.25, 0.5]}}
  - {{arm: poisson, conditions: [stream], budgets: [0.25, 0.5], seeds: [0, 1]}}
"""
WORDS = ("study=many", "cluster=slurm_dev", "--unregistered")
PROGRAMS = {
    "sbatch": 'echo x >> "$STAND_INS/sent"; echo "Submitted batch job $(wc -l < "$STAND_INS/sent")"',
    "srun": "exit 0",
    "scontrol": "echo 'MaxArraySize = 1001'",
    "squeue": 'cat "$STAND_INS/queue"',
    "sacct": 'cat "$STAND_INS/runs"',
}


@dataclass(frozen=True)
class Spent:
    """Seconds of one command, by the clock and of processor time, its children's included."""

    wall: float
    cpu: float


def project(folder: Path, count: int) -> Path:
    """A project with one study of so many shards, and the stand-ins."""
    shutil.copytree(ROOT / "conf", folder / "conf")
    for name, text in (("study", STUDY), ("suite", SUITE.format(shards=count))):
        (folder / "conf" / name / "many.yaml").write_text(text, encoding="utf-8")
    programs = folder / "programs"
    programs.mkdir()
    for name, line in PROGRAMS.items():
        (programs / name).write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
        (programs / name).chmod(0o755)
    for name in ("queue", "runs", "sent"):
        (programs / name).touch()
    return folder


def kvexp(root: Path, verb: str) -> Spent:
    """The command as a user calls it. Ends the benchmark if it fails."""
    environment = {
        **os.environ,
        "PATH": f"{root / 'programs'}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "STAND_INS": str(root / "programs"),
    }
    command = [sys.executable, "-m", "kvexp.cli", verb, *WORDS]
    start = time.perf_counter()
    with (root / f"{verb}.txt").open("wb") as told:
        child = subprocess.Popen(command, cwd=root, env=environment, stdout=told, stderr=subprocess.STDOUT)
        _, status, usage = os.wait4(child.pid, 0)
    spent = Spent(time.perf_counter() - start, usage.ru_utime + usage.ru_stime)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"kvexp {verb} failed: {(root / f'{verb}.txt').read_text(errors='replace')[-2000:]}")
    return spent


def run_some(root: Path) -> None:
    """Make shards complete, half done or queued, with what Slurm would say of their tasks."""
    results = root / "results" / "scratch" / "many"
    by_id = {shard.shard_id: shard for shard in shards(select(["study=many"], root))}
    queue, runs = [], []
    for number, (sent, task, shard_id) in enumerate(_tasks(Book(root, results).read())):
        state = ("complete", "complete", "complete", "dead", "queued")[number % 5]
        job, name = sent.task_id(task), sent.before.name
        if state == "queued":
            queue.append(f"{job}|PENDING|{sent.before.user}|{name}|Priority|.")
            continue
        word = "COMPLETED" if state == "complete" else "FAILED"
        runs.append(f"{job}|{number + 1}|{word}|0:0|1796027422|1796027522|100|gres/gpu=1|n|{name}")
        _answer(results, by_id[shard_id], whole=state == "complete", job=str(number + 1))
    (root / "programs/queue").write_text("\n".join([*queue, ""]), encoding="utf-8")
    (root / "programs/runs").write_text("\n".join([*runs, ""]), encoding="utf-8")


def _tasks(sent: Iterable[Sent]) -> Iterable[tuple[Sent, int, str]]:
    return ((one, task, shard_id) for one in sent for task, shard_id in enumerate(one.before.shards))


def _answer(results: Path, shard: Shard, *, whole: bool, job: str) -> None:
    folder = results / shard.suite / shard.shard_id
    folder.mkdir(parents=True)
    begun = attempt(
        shard.shard_id, shard_digest=shard.digest, config=shard.resolved(), slurm={"SLURM_JOB_ID": job}
    )
    (folder / "attempt-001.json").write_bytes(encode(begun))
    rows = list(shard.expected())
    told = [generation(row, "match", 1.0, {"entropy": 0.5}) for row in (rows if whole else rows[:3])]
    (folder / GENERATIONS).write_bytes(lines(told))
    if whole:
        close(folder)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--shards", type=positive, default=SHARDS)
    parser.add_argument("--repeats", type=positive, default=3, help="of status; the median counts")
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        root = project(Path(folder), parsed.shards)
        print(f"| {parsed.shards:,} shards | by the clock | processor | target |\n|---|---|---|---|")
        _print("submit, all of them, making the questions", kvexp(root, "submit"))
        shutil.rmtree(root / "slurm")  # as if nothing had been sent
        _print("submit, all of them, questions there", kvexp(root, "submit"), "< 10 s")
        run_some(root)
        spent = sorted((kvexp(root, "status") for _ in range(parsed.repeats)), key=lambda one: one.cpu)
        _print("status", spent[len(spent) // 2], "< 3 s")
        _print("submit, a fifth of them again", kvexp(root, "submit"), "< 10 s")
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "import torch"], check=True)
        print(f"| of these, importing torch | {time.perf_counter() - start:.1f} s | | |")
    return 0


def _print(what: str, spent: Spent, target: str = "") -> None:
    print(f"| {what} | {spent.wall:.1f} s | {spent.cpu:.1f} s | {target} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
