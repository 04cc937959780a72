"""Does the harness do on this GPU what it does on a CPU, and how fast? Checks first, then the table.

scripts/gpu_check.sh runs it. `--device cpu --tiny` runs all of its logic in seconds, on tiny random weights.
"""

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # scripts/ is not installed

import torch

from scripts.bench_harness import HEAD, line
from scripts.benching import checks, measures
from scripts.benching.checks import Check
from scripts.benching.measures import Row
from scripts.benching.setting import (
    ARCHITECTURES,
    LENGTHS,
    TINY_LENGTHS,
    Setting,
    device,
    embedded,
    grid,
    random_weights,
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="gpu_check.py", description="Check and time the harness on a GPU.")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="tiny random weights")
    parser.add_argument("--seconds", type=float, default=460, help="what is not begun by then is left out")
    parsed = parser.parse_args(arguments)
    if parsed.device.startswith("cuda") and not torch.cuda.is_available():
        print("gpu_check: no CUDA device here, or a build of torch without CUDA", file=sys.stderr)
        return 2
    if not parsed.seconds >= 0:
        parser.error("--seconds is at least 0")
    try:
        device(parsed.device)
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    end = time.monotonic() + parsed.seconds
    print(_machine(parsed.device))
    bad = 0
    for check in _checks(parsed):
        print(_line(check), flush=True)
        bad += not check.holds
    print(HEAD)
    for row in _table(parsed, end):
        print(row if isinstance(row, str) else line(row, is_tiny=parsed.tiny), flush=True)
    print("gpu_check: every check holds" if not bad else f"gpu_check: {bad} checks do not hold")
    return int(bad > 0)


def _machine(device: str) -> str:
    card = torch.cuda.get_device_name(device) if device.startswith("cuda") else "CPU"
    return f"gpu_check: {card}, torch {torch.__version__}"


def _line(check: Check) -> str:
    if check.value is None:
        return f"| {check.what} | not on this device | |"
    sign = ">=" if check.at_least else "<="
    verdict = "holds" if check.holds else "DOES NOT HOLD"
    return f"| {check.what} | {check.value:.3g} (wanted {sign} {check.limit:g}) | {verdict} |"


def _checks(parsed: argparse.Namespace) -> Iterator[Check]:
    if parsed.tiny:
        reference = random_weights("qwen2.5-1.5b", 400, 8, "float32", "cpu", None, tiny=True)
    else:
        reference = embedded(1500, 16)
    yield from checks.arithmetic(parsed.device)
    yield from checks.against(reference, parsed.device)
    for dtype in ("float32", "bfloat16"):
        setting = checks.moved(reference, parsed.device, dtype)
        yield from checks.fused(setting)
        yield from checks.waits(setting)


def _table(parsed: argparse.Namespace, end: float) -> Iterator[Row | str]:
    lengths = TINY_LENGTHS if parsed.tiny else LENGTHS
    for name in ARCHITECTURES:
        for n in lengths:
            setting = random_weights(
                name, n, 32 if not parsed.tiny else 8, "bfloat16", parsed.device, None, parsed.tiny
            )
            yield from _until(end, setting, _parts(setting, n == lengths[0]))
            del setting
            if parsed.device.startswith("cuda"):
                torch.cuda.empty_cache()


Part = tuple[str, Callable[[], Sequence[Row]]]


def _parts(setting: Setting, with_throughput: bool) -> list[Part]:
    made: list[Part] = [
        ("decode steps", lambda: measures.decode_steps(setting, 2)),
        ("prefill", lambda: measures.prefill_rows(setting, grid(), 3)),
        ("memory", lambda: measures.memory(setting)),
        ("phases", lambda: measures.by_phase(setting, grid(), 1)),
    ]
    if with_throughput:
        made.append(("throughput", lambda: measures.throughput(setting, grid(), 1)))
    return made


def _until(end: float, setting: Setting, parts: list[Part]) -> Iterator[Row | str]:
    for name, run in parts:
        if time.monotonic() > end:
            yield f"| {setting.name} | {name} | left out: no time | |"
        else:
            yield from run()


if __name__ == "__main__":
    sys.exit(main())
