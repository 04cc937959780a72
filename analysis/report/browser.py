"""generations.html beside a report, and whether it is about the same logs."""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.load import Study
from kvexp.records import Key

FILE = "generations.html"
HEAD = 4096  # bytes of the page in which it says what it is about
# What a row says; its text is in no table, but no text changes without its shard's digest.
_SAID = ("present", "score_value", "output_logprob", "n_generated")


@dataclass(frozen=True)
class Beside:
    """generations.html beside a report: it is there and about these logs, or about others, or not there."""

    is_there: bool
    is_stale: bool = False


def beside(folder: Path, study: Study) -> Beside:
    """Look at the first bytes of the page in a folder."""
    path = folder / FILE
    if path.is_symlink() or not path.is_file():
        return Beside(False)
    with path.open("rb") as file:
        is_same = digest(study.table).encode() in file.read(HEAD)
    return Beside(is_same, is_stale=not is_same)


def digest(table: pd.DataFrame) -> str:
    """Names the answers of a study: sha256 over the keys of its generations and what they say."""
    found = hashlib.sha256()
    for name in (*Key._fields, *_SAID):
        column = table[name]
        if isinstance(column.dtype, pd.CategoricalDtype):
            found.update("\n".join(map(str, column.cat.categories)).encode())
            found.update(column.cat.codes.to_numpy().astype("<i4").tobytes())
        else:
            found.update(column.to_numpy(np.float64).astype("<f8").tobytes())
    return found.hexdigest()
