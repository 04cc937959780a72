"""How fast is the replay harness? One table of ratios from one run, against the peers' one arm at a time.

    python scripts/bench_harness.py                    # the embedded model, real weights, some minutes
    python scripts/bench_harness.py --paper            # also the paper's architectures, random weights
    python scripts/bench_harness.py --only steps,prefill --threads 1 --clock cpu --json out.json

Ratios are medians of interleaved repeats, without the first; absolute times are the machine's, which may
be shared. On a CPU the paper's architectures are a few layers deep (`--layers`), and the table says so.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))  # scripts/ is not installed

import torch

from kvexp.errors import KvexpError
from kvexp.study.schema import DTYPES
from scripts.benching import measures, timing
from scripts.benching.measures import Row
from scripts.benching.setting import (
    ARCHITECTURES,
    LENGTHS,
    TINY_LENGTHS,
    Setting,
    device,
    embedded,
    endless,
    grid,
    new_file,
    positive,
    positives,
    random_weights,
)

HEAD = "| setting | what | value | target |\n|---|---|---|---|"
PARTS = ("steps", "prefill", "throughput", "memory", "phases")


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    parsed = parser.parse_args(arguments)
    if parsed.threads:
        torch.set_num_threads(parsed.threads)
    timing.use(parsed.clock)
    if parsed.no_embedded and not (parsed.paper or parsed.tiny):
        parser.error("--no-embedded leaves nothing to measure, without --paper or --tiny")
    rows = []
    print(HEAD, flush=True)
    try:
        for setting in _settings(parsed):
            for row in measure(setting, parsed.only, parsed.repeats):
                rows.append(row)
                print(line(row, is_tiny=parsed.tiny), flush=True)
    except KvexpError as error:  # a prompt that is too short for these arms, for instance
        print(f"bench_harness: {error}", file=sys.stderr)
        return error.exit_code
    if parsed.json is not None:
        parsed.json.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="bench_harness.py", description="Speed and memory of the replay harness, as ratios."
    )
    parser.add_argument("--device", type=device, default="cpu")
    parser.add_argument("--dtype", choices=DTYPES, help="default: float32 on a CPU, bfloat16 elsewhere")
    parser.add_argument("--threads", type=positive, help="of torch (default: as many as it takes)")
    parser.add_argument("--clock", choices=sorted(timing.CLOCKS), default="wall")
    parser.add_argument("--repeats", type=positive, default=5)
    parser.add_argument("--tokens", type=positive, default=2048, help="of the embedded model's context")
    parser.add_argument("--new-tokens", type=positive, default=32, help="of an answer")
    parser.add_argument("--only", type=_parts, default=PARTS, help=f"of {', '.join(PARTS)}")
    parser.add_argument("--paper", action="store_true", help="also the paper's four architectures")
    parser.add_argument("--models", type=_names, default=tuple(ARCHITECTURES), help="of the paper's four")
    parser.add_argument("--no-embedded", action="store_true", help="not the embedded model")
    parser.add_argument("--layers", type=positive, help="of the paper's (default: 2 on a CPU, all)")
    parser.add_argument("--lengths", type=positives, help="of the paper's prompts")
    parser.add_argument("--tiny", action="store_true", help="tiny random weights: tests this script itself")
    parser.add_argument("--json", type=new_file, help="write the rows there too")
    return parser


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := set(parts) - set(PARTS):
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is none of {', '.join(PARTS)}")
    return parts


def _names(text: str) -> tuple[str, ...]:
    names = tuple(text.split(","))
    if unknown := set(names) - set(ARCHITECTURES):
        raise argparse.ArgumentTypeError(f"{unknown.pop()!r} is none of {', '.join(ARCHITECTURES)}")
    return names


def _settings(parsed: argparse.Namespace) -> Iterator[Setting]:
    dtype = parsed.dtype or ("float32" if parsed.device == "cpu" else "bfloat16")
    if not (parsed.no_embedded or parsed.tiny):
        yield embedded(parsed.tokens, parsed.new_tokens, dtype, parsed.device)
    layers = parsed.layers or (2 if parsed.device == "cpu" else None)
    lengths = parsed.lengths or (TINY_LENGTHS if parsed.tiny else LENGTHS)
    for name in parsed.models if parsed.paper or parsed.tiny else ():
        for n in lengths:
            yield random_weights(name, n, parsed.new_tokens, dtype, parsed.device, layers, parsed.tiny)


def measure(setting: Setting, parts: Sequence[str], repeats: int) -> Iterator[Row]:
    """The asked measurements of one setting."""
    full_length = endless(setting)
    if "steps" in parts:
        yield from measures.decode_steps(full_length, repeats)
    if "prefill" in parts:
        yield from measures.prefill_rows(setting, grid(), repeats)
    if "memory" in parts:
        yield from measures.memory(full_length)
    if "phases" in parts:
        yield from measures.by_phase(full_length, grid(), min(repeats, 3))
    if "throughput" in parts:
        yield from measures.throughput(full_length, grid(), min(repeats, 2))
        if setting.loaded.stop_ids:
            yield from measures.throughput(setting, grid(), min(repeats, 2))


def line(row: Row, *, is_tiny: bool = False) -> str:
    """One row of the table, in Markdown; targets are for models of a size."""
    digits = {"ratio": 3, "s": 2, "ms": 2, "MB": 1, "%": 1}[row.unit]
    unit = "" if row.unit == "ratio" else f" {row.unit}"
    return f"| {row.setting} | {row.what} | {row.value:.{digits}f}{unit} | {'' if is_tiny else row.target} |"


if __name__ == "__main__":
    sys.exit(main())
