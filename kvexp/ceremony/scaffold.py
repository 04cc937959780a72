"""A study of one's own from one that ships, with what only its author can say left open.

Files are edited as text, so every comment stays but the one directly above a field that is to be filled in:
it speaks of the source. Seals and amendments are not copied.
"""

import re
import tomllib
from pathlib import Path
from typing import Any

from kvexp.ceremony.lint import FILL_IN
from kvexp.ceremony.locate import places
from kvexp.documents.schema import FIRST, SECOND
from kvexp.documents.source import Source, read
from kvexp.errors import ConfigError, suggest
from kvexp.records import ID_PATTERN
from kvexp.study.compose import RESERVED
from kvexp.study.results import SCRATCH

LONGEST = 60
# Folders beside the studies in preregistration/ and results/, and the schema of conf/study.
TAKEN = (*RESERVED, "trust", SCRATCH, "base_study")
# What YAML or Hydra would read as something else than a name.
WORDS = ("true", "false", "yes", "no", "on", "off", "null", "none", "nan", "inf")
LADDER = "before-creation | before-observation | before-access | before-analysis | after-analysis"
FIELDS = {
    "authors": f'["{FILL_IN}: your name"]',
    "existing_data": f'"{FILL_IN}: {LADDER}"',
    "existing_data_note": f'"{FILL_IN}: what of these data, or of data like them, had been seen by now"',
    "data_seen": f'["{FILL_IN}: 6k: analysed, and so on for each suite that was seen; or an empty list"]',
    "registered_at": f'"{FILL_IN}: date and time with offset, or leave the line away"',
    "registrations_made": f'"{FILL_IN}: how many registrations of this question you have made"',
}
WITNESS = """
[claim.{claim}.witness]
kill = "{fill}: what would kill it, for instance {{ auc_pooled = 0.55 }}"
spare = "{fill}: what would spare it, for instance {{ auc_pooled = 0.65 }}"
"""
REMARK = "# Yours to say: kvexp refuses the file until it is filled in."


def new_study(root: Path, name: str, source: str) -> list[Path]:
    """Copy the study `source` under another name: its conf/study file and its registrations.

    Raises ConfigError for a name that cannot be used, a study that is there already, and a source that is
    not, or that has no registrations; nothing is overwritten.

    Returns:
        The files that were written.
    """
    _check_name(name)
    conf = _conf(root, source)
    home = root / "preregistration" / name
    texts = {root / "conf" / "study" / f"{name}.yaml": _renamed(conf, source, name)}
    for path in sorted((root / "preregistration" / source).glob("*.toml")):
        texts[home / path.name] = _opened(_upgraded(path))
    if len(texts) == 1:
        raise ConfigError(f"preregistration/{source} holds no registration (*.toml) to begin with")
    for path in (*texts, home):
        if path.exists() or path.is_symlink():
            raise ConfigError(
                f"{path.relative_to(root)} is there already: choose another name, nothing was written"
            )
    home.mkdir(parents=True)
    for path, text in texts.items():
        with path.open("x", encoding="utf-8", newline="\n") as file:
            file.write(text)
    return list(texts)


def _check_name(name: str) -> None:
    if not re.match(ID_PATTERN, name) or not name[0].isalpha() or "=" in name or len(name) > LONGEST:
        raise ConfigError(
            f"a study's name begins with a letter and has letters, digits and . _ -, at most {LONGEST} of "
            f"them; got {name[:LONGEST]!r}"
        )
    if name.lower() in (*TAKEN, *WORDS):
        raise ConfigError(f"{name!r} cannot name a study, it means something else: choose another name")


def _conf(root: Path, source: str) -> Path:
    folder = root / "conf" / "study"
    known = sorted(path.stem for path in folder.glob("*.yaml"))
    if source not in known:
        raise ConfigError(f"there is no study {source[:LONGEST]!r} in conf/study; {suggest(source, known)}")
    return folder / f"{source}.yaml"


def _renamed(conf: Path, source: str, name: str) -> str:
    text = conf.read_text(encoding="utf-8")
    changed, times = re.subn(r"(?m)^name:[ \t]*[^\s#]+", f"name: {name}", text)
    if times != 1:
        raise ConfigError(f"conf/study/{source}.yaml must have one line `name: ...`, it has {times}")
    return changed


def _opened(source: Source) -> str:
    """The registration with the fields to fill in, edited from its end on so that places stay right."""
    fields = {key: places(source.text).written[key,] for key in FIELDS if key in source.table}
    text = source.text
    for key, place in sorted(fields.items(), key=lambda item: item[1].start, reverse=True):
        text = text[: place.start] + FIELDS[key] + text[place.end :]
        if key == "existing_data":
            text = _with_remark(text, place.line)
    return text


def _upgraded(path: Path) -> Source:
    """The registration in the format that new seals take: without ranges, with witnesses to fill in."""
    source = read(path)
    if source.table.get("format") != FIRST:
        return source
    text = source.text.replace(f'format = "{FIRST}"', f'format = "{SECOND}"')
    text = re.sub(r", range = \[[^\]\n]*\](, count = (true|false))?", "", text)
    claims = source.table.get("claim", {})
    tables = "".join(WITNESS.format(claim=claim, fill=FILL_IN) for claim in claims)
    table = {
        **source.table,
        "format": SECOND,
        "claim": {name: {**claim, "quantities": _meanings(claim)} for name, claim in claims.items()},
    }
    if tomllib.loads(text) != table:
        raise ConfigError(f"{path} has the format {FIRST}: copy a study in {SECOND}, for instance demo")
    return Source(path, text + tables, tomllib.loads(text + tables))


def _meanings(claim: dict[str, Any]) -> dict[str, Any]:
    return {name: {"meaning": one["meaning"]} for name, one in claim["quantities"].items()}


def _with_remark(text: str, line: int) -> str:
    """The remark stands above the line, in place of the comment there."""
    lines = text.split("\n")
    above = line - 1
    while above and lines[above - 1].startswith("#"):
        above -= 1
    return "\n".join([*lines[:above], REMARK, *lines[line - 1 :]])
