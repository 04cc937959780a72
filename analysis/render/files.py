"""Figures and tables of a study, as files below the output folder."""

import errno
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from analysis.core import verdict_text
from analysis.core.verdict_text import complain
from analysis.core.verdicts import Report
from analysis.describe.description import Description, described, marked_table
from analysis.describe.parts import Part
from analysis.render import csv, generations, json
from analysis.render.csv import to_csv
from analysis.render.evidence import evidence_text
from analysis.render.markdown import to_markdown
from analysis.render.page import page
from analysis.render.terminal import to_text
from kvexp.files import digest, read, write_whole


def outputs(parts: Sequence[Part], *, is_blind: bool = False) -> Iterator[tuple[str, str | None]]:
    """Paths relative to the output folder, each with its text.

    None: the file must not be there. A figure of an earlier state would pass for one of these logs.
    With `is_blind` the parts have their marks already; the dictionary of columns gets them too.
    """
    tables = [table for part in parts for table in part.tables]
    for table in tables:
        yield f"tables/{table.name}.csv", to_csv(table)
        yield f"tables/{table.name}.md", to_markdown(table)
    if tables:
        meanings = csv.dictionary(tables)
        meanings = marked_table(meanings) if is_blind else meanings
        yield f"tables/{meanings.name}.csv", to_csv(meanings)
    for part in parts:
        for picture in part.pictures:
            yield f"figures/{picture.name}.svg", picture.svg


# Files that the analysis wrote into a folder before and does not make any more, told by their digests.


INDEX = "described.sha256"  # for `sha256sum -c`, like the seals
MOST = 1 << 24  # bytes of an index that is read
_LINE = re.compile(r"([0-9a-f]{64})  ((?:tables|figures)/[^/\x00-\x1f]+\.(?:csv|md|svg)|report\.html)")


def tidy(folder: Path, files: Mapping[str, str | None]) -> None:
    """Write what there is, by relative path, and an index of it; remove what the last index has beside it.

    A file is removed only if it is still the bytes that were written: nothing of anybody else's is.

    Raises OSError where a file cannot be written.
    """
    made = {name: text for name, text in files.items() if text is not None}
    forget(folder, but=made)
    for name, text in files.items():
        if text is not None and "/" not in name:
            write_whole(folder / name, text.encode())  # `folder` itself may be a link
        else:
            _put(folder / name, text)
    lines = (f"{hashlib.sha256(text.encode()).hexdigest()}  {name}\n" for name, text in sorted(made.items()))
    write_whole(folder / INDEX, "".join(lines).encode())


def _put(path: Path, text: str | None) -> None:
    """Write a file in a folder of its own, or see to it that it is not there."""
    if path.parent.is_symlink():
        raise OSError(errno.ENOTDIR, f"{path.parent.name} is a link", str(path.parent))
    path.parent.mkdir(exist_ok=True)
    if text is None:
        path.unlink(missing_ok=True)
    else:
        write_whole(path, text.encode())


def forget(folder: Path, but: Iterable[str] = ()) -> None:
    """Remove the files of the last index, those named in `but` excepted, where they are still ours."""
    kept = frozenset(but)
    for line in _read(folder / INDEX).splitlines():
        match = _LINE.fullmatch(line)
        if match and match[2] not in kept:
            path = folder / match[2]
            if not path.parent.is_symlink() and digest(path) == match[1]:
                path.unlink()


def _read(path: Path) -> str:
    try:
        return read(path, MOST, follow=False).decode(errors="replace")
    except OSError:
        return ""


def write_description(report: Report, out: Path | None) -> str:
    """Describe, write all files below `out` or say in one line what was not; returns what people see."""
    try:
        found = described(report)
        files = {} if out is None else _files(out, report, found)
    except Exception:
        if out is not None:
            with suppress(OSError):
                forget(out)  # pages of an earlier state would stand beside these verdicts
        raise
    if out is not None:
        _write_all(out, report, found, files)
    return to_text(found, is_full=False)


def _files(folder: Path, report: Report, found: Description) -> dict[str, str | None]:
    """Tables, figures and the page by path; None: the file must not be there."""
    files = dict(outputs(found.parts, is_blind=found.is_blind))
    is_stale = generations.is_stale(folder, report.study)
    return {**files, "report.html": page(report, found.parts, is_stale=is_stale)}


def _write_all(folder: Path, report: Report, found: Description, files: Mapping[str, str | None]) -> None:
    try:
        write_whole(folder / "details.json", json.to_json(found).encode())
        write_whole(
            folder / "details.md", verdict_text.block("Details", to_text(found, is_full=True)).encode()
        )
        tidy(folder, files)
        write_whole(folder / "evidence.md", verdict_text.block("Evidence", evidence_text(report)).encode())
    except OSError as error:
        complain(f"not all details, figures and tables were written to {folder}: {error.strerror}")
