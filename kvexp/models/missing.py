"""What a study needs and this machine lacks: models and data, each once, with who needs it."""

from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from kvexp.errors import InputError, NotFetched
from kvexp.models.embedded import POSITIONS
from kvexp.models.folder import (
    SINGLE,
    TOKENIZER_SETS,
    TOKENIZERS,
    Source,
    another_folder,
    has_tokenizer,
    lacking,
    model_source,
    own_folder,
    source_of,
)
from kvexp.models.load import config_of, tokenizer_of
from kvexp.study.compose import Selection
from kvexp.study.plugins import family_of
from kvexp.study.schema import AttentionConf, ModelConf, SuiteConf, is_folder
from kvexp.study.shards import Shard
from kvexp.study.words import is_renamed

GATED = "gated: accept the licence on its page of the hub, then log in with `hf auth login` or set HF_TOKEN"


@dataclass(frozen=True)
class Missing:
    """A model, or a file of data."""

    name: str  # `model NAME`, or `data of TASKS`
    source: Source | None  # where the hub has it; None for a folder of one's own
    suites: tuple[str, ...]  # that need it
    reason: str  # the sentence that says what is wrong with it
    by_hand: bool  # no command gets it
    gated: bool = False  # the hub gives it only to who has accepted its licence


class Lacks:
    """Asks for each model and task of a selection what is wrong with it here; nothing touches a network."""

    def __init__(self, selection: Selection) -> None:
        self.selection = selection
        self._models = {model.name: model for model in selection.models}
        self._suites = {suite.name: suite for suite in selection.suites}
        self.model = cache(self._model)
        self._task = cache(self._task_of)
        self._positions = cache(self._positions_of)

    def _model(self, name: str) -> InputError | None:
        model = self._models[name]
        if model.source == "embedded":  # comes with the installation, and is converted when it is needed
            return None
        if is_folder(model.source):
            return _refusal(lambda: check_folder(model))
        return _refusal(lambda: config_of(model, model_source(model)))

    def _positions_of(self, name: str) -> int:
        model = self._models[name]
        if model.source == "embedded":
            return POSITIONS
        positions: int = config_of(model, model_source(model)).max_position_embeddings
        return positions

    def _too_few(self, name: str, suite: SuiteConf | AttentionConf) -> InputError | None:
        """For a model that is there: why the prompts of a suite cannot fit."""
        needed, there = _longest(self.selection, suite), self._positions(name)
        if needed <= there:
            return None
        return InputError(
            f"model {name} has {there:,} positions, but suite {suite.name} asks for {needed:,}: take a model "
            f"for longer texts, or cut the contexts with suite.{suite.name}.context_tokens=N"
        )

    def task(self, name: str, suite: SuiteConf | AttentionConf) -> InputError | None:
        """Why a task's data cannot be used."""
        return self._task(name, suite.name)

    def _task_of(self, name: str, suite_name: str) -> InputError | None:
        suite, family = self._suites[suite_name], family_of(self.selection.tasks[name])
        return _refusal(
            lambda: family.example_ids(suite.n_examples, suite.example_seed, suite.context_tokens)
        )

    def __call__(self, suite: SuiteConf | AttentionConf, made: Iterable[Shard]) -> dict[str, InputError]:
        """By name, what of some shards of a suite is missing.

        That is data of all the suite's tasks: its grid is written whole, whatever is chosen of it.
        """
        names = list(dict.fromkeys(shard.model.name for shard in made))
        models = {f"model {n}": self.model(n) or self._too_few(n, suite) for n in names}
        tasks = {f"data of {name}": self.task(name, suite) for name in suite.tasks if names}
        return {name: error for name, error in {**models, **tasks}.items() if error is not None}

    def way_out(self) -> list[str]:
        """For each chosen suite that lacks data which no command gets, how the rest of it is run."""
        names, said = self.selection.chosen, []
        for suite in self.selection.suites:
            errors = {name: self.task(name, suite) for name in suite.tasks if suite.name in names["suite"]}
            there = [name for name, error in errors.items() if error is None and name in names["task"]]
            bad = [
                n for n, error in errors.items() if error is not None and not isinstance(error, NotFetched)
            ]
            if bad and there:
                renamed = "" if is_renamed(self.selection) else " study.name=NAME"
                said.append(
                    f"a suite's grid has all its tasks, chosen or not: {suite.name} without "
                    f"{', '.join(bad)} is suite.{suite.name}.tasks=[{','.join(there)}]{renamed}"
                )
        return said


def _longest(selection: Selection, suite: SuiteConf | AttentionConf) -> int:
    """Tokens that a suite's longest prompts have at least, with the answer where the context is cut."""
    if not isinstance(suite, SuiteConf):
        return suite.context_tokens
    if suite.no_context:
        return 0
    confs = [selection.tasks[name] for name in suite.tasks]
    answers = [conf.max_new_tokens for conf in confs if family_of(conf).is_cut]
    return suite.context_tokens + max(answers, default=0)


def _refusal(look: Callable[[], object]) -> InputError | None:
    try:
        look()
    except InputError as error:
        return error
    return None


OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.gguf")


def check_folder(model: ModelConf) -> None:
    """Raises InputError for a folder that is not there, not whole or not usable, naming the override."""
    folder, other = own_folder(model), another_folder(model)
    if not folder.is_dir():
        raise InputError(f"model {model.name}: the folder {folder} is missing: make it, or {other}")
    if (folder / "config.json").is_file():  # of another kind, its weights do not matter
        config_of(model, folder)
    if (name := lacking(folder)) is None:
        tokenizer_of(model, folder)
        return
    others = sorted(path.name for kind in OTHER_WEIGHTS for path in folder.glob(kind))
    said = f"{name} is missing in {folder} or damaged: add it"
    if name == SINGLE and others and not (folder / name).exists():
        said = f"{folder} has its weights as {others[0]}, but kvexp needs safetensors, {name}: save them so"
    elif name == TOKENIZERS[0] and not has_tokenizer(folder):
        files = ", or ".join(" and ".join(names) for names in TOKENIZER_SETS)
        said = f"{folder} has no tokenizer ({files}): add its files"
    raise InputError(f"model {model.name}: {said}, or {other}")


def missing(
    selection: Selection,
    made: Sequence[Shard],
    lacks: Lacks | None = None,
    tasks: Container[str] | None = None,
) -> list[Missing]:
    """What some shards need: models in the study's order, then data; tasks that read one file are one entry.

    `tasks` limits the data to those of some tasks; otherwise they are those of every suite of the shards.
    """
    lacks = lacks or Lacks(selection)
    suites: dict[str, list[str]] = {}
    errors: dict[str, InputError] = {}
    for suite in selection.suites:
        for name, error in lacks(suite, [s for s in made if s.suite == suite.name]).items():
            suites.setdefault(name, []).append(suite.name)
            errors.setdefault(name, error)
    found = []
    for model in selection.models:
        if (name := f"model {model.name}") in errors:
            error = errors[name]
            by_hand, source = not isinstance(error, NotFetched), source_of(model)
            found.append(Missing(name, source, tuple(suites[name]), str(error), by_hand, model.gated))
    groups: dict[Source | str, list[str]] = {}
    for task in dict.fromkeys(name for suite in selection.suites for name in suite.tasks):
        if f"data of {task}" in errors and (tasks is None or task in tasks):
            error = errors[f"data of {task}"]
            file = family_of(selection.tasks[task]).source() if isinstance(error, NotFetched) else None
            groups.setdefault(Source(*file) if file else str(error), []).append(task)
    for key, names in groups.items():
        needed_by = dict.fromkeys(suite for name in names for suite in suites[f"data of {name}"])
        reason, file_of = str(errors[f"data of {names[0]}"]), key if isinstance(key, Source) else None
        found.append(Missing(f"data of {', '.join(names)}", file_of, tuple(needed_by), reason, not file_of))
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
