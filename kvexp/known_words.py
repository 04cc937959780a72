"""The words of a renamed study, kept beside its results: `kvexp verify mine` then needs no others.

Only words that say which study and grid it is, no place of a machine.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path

from kvexp.errors import KvexpError
from kvexp.prereg.seal import read_bytes
from kvexp.records import ID_PATTERN
from kvexp.shard_log import replace

FILE = "words.json"
MOST = 64 * 1024


def remember(results: Path, words: Sequence[str]) -> None:
    """Write what `recalled` reads; what is there stays, since rows were made with it."""
    path = results / FILE
    if not path.exists():
        results.mkdir(parents=True, exist_ok=True)
        replace(path, json.dumps({"words": list(words)}).encode() + b"\n")


def recalled(words: Sequence[str], root: Path, *, is_bare: bool) -> list[str]:
    """The words of a command, with those of its study before them if it names a renamed one.

    Args:
        words: as they were typed.
        root: of the repository.
        is_bare: whether the first word without `=` is the study, if none says `study=`.
    """
    said = next((word for word in words if word.startswith("study=")), None)
    if said is None and is_bare:
        said = next((word for word in words if "=" not in word), None)
    name = (said or "").removeprefix("study=")
    if said is None or not re.fullmatch(ID_PATTERN, name) or (root / "conf/study" / f"{name}.yaml").exists():
        return list(words)
    known = _read(root / "results" / name / FILE)
    return list(dict.fromkeys([*known, *(word for word in words if word != said)])) if known else list(words)


def _read(path: Path) -> list[str]:
    """Nothing for a file that is none of ours: then the study is unknown, and that is said."""
    try:
        found = json.loads(read_bytes(path, MOST))["words"]
    except (KvexpError, ValueError, LookupError, TypeError, RecursionError):
        return []
    if not isinstance(found, list) or not all(isinstance(word, str) for word in found):
        return []
    is_plain = all("=" in word and "${" not in word for word in found)
    return found if is_plain and found[:1] and found[0].startswith("study=") else []
