"""What was asked: the examples of one suite, model and task, read beside the rows that answer them.

No claim reads them, so a file that is not there, or that this version does not read, is no problem: what it
would say stays undefined.
"""

from collections.abc import Mapping
from pathlib import Path

from analysis.load import files
from analysis.load.lines import LineError, Lines
from kvexp.records import Example

FOLDER = "examples"
# Of `Example`, as numbers: tokens, 0 or 1, and 0 or 1 where a reference stood in the whole context.
ASKED = ("n_context_full", "truncated", "answer_survives")
_lines = Lines[Example](Example)


def read_examples(results: Path, suite: str, model: str, task: str) -> Mapping[str, Example]:
    """By example id; empty if there is no such file, or none that can be read."""
    path = results / FOLDER / f"{suite}.{model}.{task}.jsonl"
    try:
        found = _lines(files.read(path), path)
    except (OSError, LineError):
        return {}
    here = (suite, model, task)
    return {one.example_id: one for one in found if (one.suite, one.model, one.task) == here}
