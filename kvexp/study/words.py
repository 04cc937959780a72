"""Words of a command: which belong to its study, which change nothing, which lend a name to other weights."""

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from kvexp.documents.manifest import read_bytes
from kvexp.errors import ConfigError, InputError, KvexpError, NotFetched
from kvexp.files import write_whole
from kvexp.records import ID_PATTERN
from kvexp.study.compose import Selection
from kvexp.study.plugins import family_of
from kvexp.study.schema import ClusterConf, ModelConf, TaskConf, is_folder, is_hub, is_pinned

# The words of a renamed study, kept beside its results: `kvexp verify mine` then needs no others.
#
# Only words that say which study and grid it is, no place of a machine.


FILE = "words.json"
MOST = 64 * 1024


def remember(results: Path, words: Sequence[str]) -> None:
    """Write what `recalled` reads; what is there stays, since rows were made with it."""
    path = results / FILE
    if not path.exists():
        results.mkdir(parents=True, exist_ok=True)
        write_whole(path, json.dumps({"words": list(words)}).encode() + b"\n")


def with_study(words: Sequence[str]) -> list[str]:
    """The first word without `=` is the study, unless a word says `study=`."""
    bare = next((word for word in words if "=" not in word), None)
    if bare is None or any(word.startswith("study=") for word in words):
        return list(words)
    rest = list(words)
    rest.remove(bare)
    return [f"study={bare}", *rest]


def recalled(words: Sequence[str], root: Path) -> list[str]:
    """The words of a command, with those of its study before them if it names a renamed one."""
    said = next((word for word in words if word.startswith("study=")), "")
    name = said.removeprefix("study=")
    if not re.fullmatch(ID_PATTERN, name) or (root / "conf/study" / f"{name}.yaml").exists():
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


T = TypeVar("T")


def needed(selection: Selection) -> tuple[list[ModelConf], list[TaskConf]]:
    """Models and tasks of the chosen suites, each once, in the study's order."""
    names = selection.chosen
    suites = [s for s in selection.suites if s.name in names["suite"]]
    models = {m.name: m for s in suites for m in selection.models_of(s.name) if m.name in names["model"]}
    tasks = {t: selection.tasks[t] for s in suites for t in s.tasks if t in names["task"]}
    return list(models.values()), list(tasks.values())


def study_words(overrides: Iterable[str]) -> tuple[str, ...]:
    """The words that another command about the same study needs too.

    Not among them: the study itself, what was chosen of it, and where it runs.
    """
    keys = {word: word.lstrip("+").partition("=")[0] for word in overrides}
    return tuple(
        word
        for word, key in keys.items()
        if key not in ("study", "suite", "model", "task") and key.partition(".")[0] != "cluster"
    )


def refuse_choices(verb: str, overrides: Iterable[str], allowed: Sequence[str] = (), hint: str = "") -> None:
    """Raises ConfigError for a choice of a part of the study, where a verb is about all of it.

    Args:
        verb: that was called.
        overrides: its words.
        allowed: groups whose choice means something to it.
        hint: what to say instead.
    """
    for word in overrides:
        group = word.lstrip("+").partition("=")[0]
        if group in ("suite", "model", "task") and group not in allowed:
            raise ConfigError(
                f"{word}: {verb} is about the whole study, no {group} of it: {hint or 'leave it out'}"
            )


def grid_words(overrides: Iterable[str]) -> list[str]:
    """Of these, sorted, what says which rows there are: not the study's name, and no place of a machine."""
    return sorted(
        word
        for word in study_words(overrides)
        if not word.startswith("study.name=")
        and _field(word, "task", "data_dir") is None
        and not (_field(word, "model", "source") is not None and is_folder(word.partition("=")[2]))
    )


def notes(selection: Selection, overrides: Sequence[str]) -> list[str]:
    """One line for each thing that a person may not expect of their words."""
    models, tasks = needed(selection)
    idle = {word: found for word in overrides if (found := _idle(word, models, tasks))}
    found = _other_grid(selection, [word for word in overrides if word not in idle])
    found += [note for notes in idle.values() for note in notes]
    found += [
        f"model {m.name}: revision {m.revision or 'main'!r} is not pinned, what it names may change: give a "
        f"commit, model.{m.name}.revision=<40 hexadecimal digits>"
        for m in models
        if is_hub(m) and not is_pinned(m)
    ]
    return found + [
        f"model {m.name}: logs and verdicts call {m.source} by this name; weights of another kind get a name "
        f"of their own by a copy of conf/model/{m.name}.yaml (chat: false without a chat template)"
        for m in models
        if m.name in selection.lent
    ]


def is_renamed(selection: Selection) -> bool:
    """Whether results go to another folder than that of the study's file."""
    return selection.study.name != selection.chosen["study"][0]


def remember_words(selection: Selection, root: Path, overrides: Sequence[str]) -> None:
    """Keep beside the results of a renamed study which words make it."""
    if is_renamed(selection):
        name, file = selection.study.name, selection.chosen["study"][0]
        words = [f"study={file}", f"study.name={name}", *grid_words(overrides)]
        remember(root / "results" / name, words)


def _other_grid(selection: Selection, overrides: Sequence[str]) -> list[str]:
    words = [w for w in grid_words(overrides) if not w.lstrip("+").startswith("model.")]
    if not words or is_renamed(selection):
        return []
    name = selection.study.name
    return [
        f"{shlex.join(words)}: not the grid of conf/study/{name}.yaml, but its results go to results/{name}: "
        "study.name=NAME gives them a folder of their own"
    ]


def refuse_lent(selection: Selection) -> None:
    """Raises ConfigError if weights of another kind would go into a study's own results.

    A folder may hold the very weights that the model's file names; another repository does not.
    """
    study = selection.study.name
    for model in selection.models:
        if model.name in selection.lent and not is_folder(model.source) and not is_renamed(selection):
            raise ConfigError(
                f"model.{model.name}.source={model.source}: results/{study} would hold other weights under "
                f"the name {model.name}: give the results a name of their own, study.name=NAME"
            )


def _idle(word: str, models: list[ModelConf], tasks: list[TaskConf]) -> list[str]:
    if (found := _field(word, "task", "data_dir")) is not None:
        if not any(_reads_data(t) for t in tasks if found in ("", t.name)):
            return [f"{word} changes nothing: no chosen suite has such a task that reads data"]
    elif (found := _field(word, "model", "revision")) is not None:
        concerned = [m for m in models if found in ("", m.name)]
        if concerned and not any(is_hub(m) for m in concerned):
            what = "a folder has" if is_folder(concerned[0].source) else "the embedded model has"
            return [f"{word} changes nothing: {what} no revision"]
    return []


def _field(word: str, group: str, field: str) -> str | None:
    """The item whose field a word sets, empty for all items; None for another word."""
    found = re.match(rf"\+{{0,2}}{group}\.(?:(.+)\.)?{field}=", word)
    return None if found is None else found[1] or ""


def _reads_data(conf: TaskConf) -> bool:
    return family_of(replace(conf, data_dir=None)).source() is not None


def own_rates(selection: Selection, overrides: Sequence[str]) -> ClusterConf:
    """The cluster without rates and shapes of models that are others now, unless a word gives them."""
    said = [word.lstrip("+") for word in overrides]

    def own(group: str, known: Mapping[str, T]) -> dict[str, T]:
        return {
            name: one
            for name, one in known.items()
            if name not in selection.lent or any(word.startswith(f"cluster.{group}.{name}.") for word in said)
        }

    cluster = selection.cluster
    return replace(cluster, rates=own("rates", cluster.rates), shapes=own("shapes", cluster.shapes))


def fetch_command(selection: Selection, overrides: Sequence[str]) -> str:
    """The command that gets what is missing: the same words, without those that mean nothing to it."""
    own = [replace(conf, data_dir=None) for conf in needed(selection)[1] if conf.data_dir is not None]
    is_read = any(_lacking(conf) for conf in own)  # else there is nothing to fetch in place of a folder
    words = [
        word
        for word in overrides
        if not word.lstrip("+").startswith("cluster")
        and (is_read or _field(word, "task", "data_dir") is None)
    ]
    if _lacks_unchosen(selection):
        words = [word for word in words if not word.startswith("task=")]
    return shlex.join(["kvexp", "fetch", *words])


def _lacks_unchosen(selection: Selection) -> bool:
    """Whether a chosen suite has data to fetch for tasks that were not chosen: submit needs them too."""
    names = selection.chosen
    others = {t for s in selection.suites if s.name in names["suite"] for t in s.tasks} - {*names["task"]}
    return any(isinstance(_lacking(selection.tasks[name]), NotFetched) for name in others)


def _lacking(conf: TaskConf) -> InputError | None:
    """What is wrong here with the data of a task, if it reads any."""
    family = family_of(conf)
    try:
        if family.source() is not None:
            family.example_ids(1, 0, 1)
    except InputError as error:
        return error
    return None
