"""What a study needs and this machine lacks: models and data, each once, with who needs it."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from kvexp import hub
from kvexp.compose import Selection
from kvexp.config import AttentionConf, ModelConf, SuiteConf, TaskConf, is_folder
from kvexp.errors import InputError, NotFetched
from kvexp.families import family_of
from kvexp.folders import check_folder
from kvexp.launch import model_source
from kvexp.resolved import Shard
from kvexp.tasks import HubFile

GATED = "gated: accept the licence on its page of the hub, then log in with `hf auth login` or set HF_TOKEN"


@dataclass(frozen=True)
class Missing:
    """A model, or a file of data.

    Attributes:
        name: `model NAME`, or `data of TASKS`.
        source: what the hub calls it; None for a folder of one's own.
        suites: that need it.
        reason: the sentence that says what is wrong with it.
        by_hand: no command gets it.
        gated: the hub gives it only to who has accepted its licence.
    """

    name: str
    source: str | None
    suites: tuple[str, ...]
    reason: str
    by_hand: bool
    gated: bool = False


class Lacks:
    """Asks for each model and task of a selection what is wrong with it here; nothing touches a network."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self.model = cache(self._model)

    def _model(self, name: str) -> InputError | None:
        model = next(m for m in self.selection.models if m.name == name)
        if model.source == "embedded":  # comes with the installation, and is converted when it is needed
            return None
        return _refusal(lambda: check_folder(model) if is_folder(model.source) else model_source(model))

    def task(self, name: str, suite: SuiteConf | AttentionConf) -> InputError | None:
        """Why a task's data cannot be used."""
        family = family_of(self.selection.tasks[name])
        return _refusal(
            lambda: family.example_ids(suite.n_examples, suite.example_seed, suite.context_tokens)
        )

    def __call__(self, suite: SuiteConf | AttentionConf, made: Iterable[Shard]) -> dict[str, InputError]:
        """By name, what of some shards of a suite is missing."""
        made = list(made)
        models = {f"model {s.model.name}": self.model(s.model.name) for s in made}
        tasks = {f"data of {name}": self.task(name, suite) for name in {s.task.name: 0 for s in made}}
        return {name: error for name, error in {**models, **tasks}.items() if error is not None}


def _refusal(look: Callable[[], object]) -> InputError | None:
    try:
        look()
    except InputError as error:
        return error
    return None


def missing(selection: Selection, made: Sequence[Shard], lacks: Lacks | None = None) -> list[Missing]:
    """Models first, in the study's order, then data; tasks that read one file of the hub are one entry."""
    lacks = lacks or Lacks(selection)
    suites: dict[str, list[str]] = {}
    errors: dict[str, InputError] = {}
    for suite in selection.suites:
        for name, error in lacks(suite, [s for s in made if s.suite == suite.name]).items():
            suites.setdefault(name, []).append(suite.name)
            errors.setdefault(name, error)
    tasks = {name: selection.tasks[name] for suite in selection.suites for name in suite.tasks}
    models = [m for m in selection.models if f"model {m.name}" in errors]
    found = [_model(m, errors[f"model {m.name}"], suites[f"model {m.name}"]) for m in models]
    return found + _data([t for n, t in tasks.items() if f"data of {n}" in errors], errors, suites)


def _model(model: ModelConf, error: InputError, suites: list[str]) -> Missing:
    source = None if is_folder(model.source) else hub.named(model)
    by_hand = not isinstance(error, NotFetched)
    return Missing(f"model {model.name}", source, tuple(suites), str(error), by_hand, model.gated)


def _data(
    tasks: list[TaskConf], errors: dict[str, InputError], suites: dict[str, list[str]]
) -> list[Missing]:
    groups: dict[HubFile | str, list[str]] = {}
    for conf in tasks:
        error = errors[f"data of {conf.name}"]
        source = family_of(conf).source() if isinstance(error, NotFetched) else None
        groups.setdefault(source or str(error), []).append(conf.name)
    found = []
    for key, names in groups.items():
        needed_by = dict.fromkeys(suite for name in names for suite in suites[f"data of {name}"])
        reason, what = str(errors[f"data of {names[0]}"]), f"data of {', '.join(names)}"
        file = key if isinstance(key, HubFile) else None
        where = file and f"{file.filename} of {file.repo!r} at {file.revision[:12]}"
        found.append(Missing(what, where, tuple(needed_by), reason, by_hand=file is None))
    return found


def lines(found: Iterable[Missing]) -> list[str]:
    """One line for each that a command gets, and one sentence if some are gated."""
    to_fetch = [one for one in found if not one.by_hand]
    told = [
        f"{one.name}{' (gated)' if one.gated else ''}, for {', '.join(one.suites)}: {one.source}"
        for one in to_fetch
    ]
    return told + ([GATED] if any(one.gated for one in to_fetch) else [])


def summary(found: Sequence[Missing]) -> str:
    """How many of what, for a sentence."""
    n_models = sum(one.name.startswith("model ") for one in found)
    counts = [(n_models, "model"), (len(found) - n_models, "file of data")]
    words = {"model": "models", "file of data": "files of data"}
    return " and ".join(f"{n} {what if n == 1 else words[what]}" for n, what in counts if n)
