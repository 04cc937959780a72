"""generations.html beside a report, and whether it is about the same logs."""

import hashlib
from pathlib import Path

import numpy as np
import pandas as pd

from analysis.load import Study
from kvexp.records import Key

FILE = "generations.html"
HEAD = 4096  # bytes of the page in which it says what it is about
# What a row says; its text is in no table, but no text changes without its shard's digest.
_SAID = ("present", "score_value", "output_logprob", "n_generated")


def is_stale(folder: Path, study: Study) -> bool:
    """Whether a folder holds the page of other logs, by the first bytes of the page; not if it holds none."""
    path = folder / FILE
    if path.is_symlink() or not path.is_file():
        return False
    with path.open("rb") as file:
        return digest(study.table).encode() not in file.read(HEAD)


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
