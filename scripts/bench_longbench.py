"""How long do loading and cutting LongBench records take? Made texts, as long as NarrativeQA's on average.

python scripts/bench_longbench.py [RECORDS [WORDS [LIMIT]]]
"""

import json
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path

from kvexp.models.embedded import embedded_model
from kvexp.models.load import load_tokenizer
from kvexp.study.plugins import build_task
from kvexp.study.prompts import Rendering, prompt_of
from kvexp.tasks._haystack import passages

RECORDS, WORDS, LIMIT = 400, 18_409, 16_000


def write_archive(path: Path, records: int, words: int) -> None:
    every = [word for passage in passages() for word in " ".join(passage).split()]
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        lines = []
        for number in range(records):
            text = islice(cycle(every), number * 997, number * 997 + words)
            fields = {"_id": f"{number:048x}", "input": "What is said?", "answers": ["nothing"]}
            lines.append(json.dumps({**fields, "context": " ".join(text)}))
        archive.writestr("data/narrativeqa.jsonl", "\n".join(lines))


@contextmanager
def timed(what: str) -> Iterator[None]:
    """Prints seconds by the clock and of this process, which others on the machine do not slow down."""
    wall, cpu = time.perf_counter(), time.process_time()
    yield
    print(f"{what}: {time.perf_counter() - wall:.1f} s, {time.process_time() - cpu:.1f} s of CPU")


def main() -> None:
    records, words, limit = [*map(int, sys.argv[1:]), *(RECORDS, WORDS, LIMIT)[len(sys.argv) - 1 :]]
    tokenizer = load_tokenizer(embedded_model())
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "data.zip"
        write_archive(archive, records, words)
        family = build_task("longbench", dataset="narrativeqa", data_dir=str(archive))
        with timed(f"load {records} records of {words:,} words"):
            questions = family.load(records, 1, limit)
        with timed(f"tokenise them and cut to {limit:,} tokens"):
            prompts = [prompt_of(tokenizer, family, q, Rendering(True, limit)) for q in questions]
    print(f"{sum(p.n_context_full for p in prompts) / records:,.0f} tokens a record")


if __name__ == "__main__":
    main()
