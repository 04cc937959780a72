"""The `kvexp` command: parses, calls, prints. What changes science is in conf/, never a flag.

Exit codes: 0 done, 1 internal error, 2 usage, 3 incomplete, 4 integrity.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from kvexp.errors import KvexpError

# Imports that bring torch or transformers stand inside the verbs: `kvexp --help` answers at once.

Verb = Callable[[argparse.Namespace, Console], int]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; the exit code."""
    os.environ.setdefault("TQDM_DISABLE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    parsed = _parser().parse_args(arguments)
    console = Console(highlight=False, soft_wrap=True)
    try:
        verb: Verb = parsed.verb
        return verb(parsed, console)
    except KvexpError as error:
        print(f"kvexp: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("kvexp: interrupted; what is on disk stays, submit again to continue", file=sys.stderr)
        return 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="kvexp", description="Pre-registered experiments on KV-cache eviction."
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")
    overrides = argparse.ArgumentParser(add_help=False)
    overrides.add_argument(
        "overrides",
        nargs="*",
        metavar="OVERRIDE",
        help="study=NAME, suite=NAME, model=NAME, task=NAME, cluster=NAME, or group.key=value",
    )
    as_json = argparse.ArgumentParser(add_help=False)
    as_json.add_argument("--json", action="store_true", help="print JSON for machines")

    def add(name: str, verb: Verb, text: str, *parents: argparse.ArgumentParser) -> Any:
        sub = verbs.add_parser(name, help=text, description=text, parents=list(parents))
        sub.set_defaults(verb=verb)
        return sub

    add("plan", _plan, "Show the shards and generations of a study.", overrides, as_json)
    add("submit", _submit, "Run what is missing of a study.", overrides)
    add("status", _status, "Show how far each shard is.", overrides, as_json)
    verdicts = add("verdicts", _verdicts, "Decide the claims of a study from its logs.", overrides)
    verdicts.add_argument("--json", action="store_true", help="print verdicts.json")
    attempt = add("try", _try, "Answer one question through chosen arms, beside their signals.", overrides)
    attempt.add_argument("--file", type=Path, required=True, help="text file with the context; - reads stdin")
    attempt.add_argument("--question", required=True, help="what to ask about it")
    attempt.add_argument("--answer-prefix", default="", help="how the answer begins")
    attempt.add_argument(
        "--arms", default="streaming_llm,h2o,snapkv,topk,poisson", help="names of conf/arm files"
    )
    attempt.add_argument("--budgets", default="0.25,0.5", help="shares of the cache that are kept")
    attempt.add_argument("--seeds", default="0", help="labels of the Poisson draws")
    attempt.add_argument("--max-new-tokens", type=int, default=24, help="longest answer")
    return parser


def _plan(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.config import project_root, select
    from kvexp.plan import print_plan, study_plan

    selection = select(parsed.overrides, project_root())
    plan = study_plan(selection)
    if parsed.json:
        print(json.dumps(plan, indent=2))
    else:
        print_plan(plan, console)
    return 0


def _submit(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.config import project_root, select
    from kvexp.submit import submit

    root = project_root()
    return submit(select(parsed.overrides, root), root, console)


def _status(parsed: argparse.Namespace, console: Console) -> int:
    from dataclasses import asdict

    from kvexp.config import project_root, select
    from kvexp.grid import chosen, shards
    from kvexp.status import shard_status

    root = project_root()
    selection = select(parsed.overrides, root)
    results = root / "results" / selection.study.name
    rows = [shard_status(results, s) for s in chosen(shards(selection), selection)]
    if parsed.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return 0
    table = Table("shard", "state", "rows", "idle", "note", box=None, title=f"study {selection.study.name}")
    order = {"broken": 0, "failed": 1, "running": 2, "partial": 3, "waiting": 4, "complete": 5}
    for row in sorted(rows, key=lambda r: order[r.state]):
        idle = "" if row.idle_seconds is None or row.state == "complete" else f"{row.idle_seconds:.0f} s"
        table.add_row(row.shard_id, row.state, f"{row.done}/{row.expected}", idle, row.note)
    console.print(table)
    done, expected = sum(r.done for r in rows), sum(r.expected for r in rows)
    whole = sum(r.state == "complete" for r in rows)
    console.print(f"{whole} of {len(rows)} shards complete, {done:,} of {expected:,} generations")
    return 0


def _verdicts(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.config import project_root, select

    root = project_root()
    study = select(parsed.overrides, root).study.name
    command = [sys.executable, "-m", "analysis", str(Path("results") / study)]
    # The frozen analysis is another program on purpose: it must run without kvexp's dependencies.
    return subprocess.run(command + (["--json"] if parsed.json else []), cwd=root, check=False).returncode


def _try(parsed: argparse.Namespace, console: Console) -> int:
    from kvexp.trial import trial

    return trial(parsed, console)


if __name__ == "__main__":
    sys.exit(main())
