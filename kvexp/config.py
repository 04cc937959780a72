"""The schema of conf/ and its range checks; Hydra composes, plain dataclasses come out.

A study lists suites and models, a suite lists tasks and arms; each of these is a YAML file of its own.
Overrides after the verb: `study=`, `suite=`, `model=` and `task=` choose, `suite.n_examples=5` changes
that field of every chosen suite. `DictConfig` ends here: nothing else in kvexp imports Hydra.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, get_origin

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError  # type: ignore[import-untyped]

from kvexp.errors import ConfigError
from kvexp.plugins import suggest
from kvexp.records import ID_PATTERN
from kvexp.replay.protocol import Protocol

GROUPS = ("study", "suite", "model", "task", "arm", "cluster")
CONDITIONS = ("aware", "stream")
DTYPES = ("float32", "bfloat16", "float16")


@dataclass
class StudyConf:
    """A question with its grid.

    Attributes:
        name: names the folders results/<name> and preregistration/<name>.
        suites: names of conf/suite files, in the order they run.
        models: names of conf/model files.
        protocol: the registered constants of the replay.
    """

    name: str = MISSING
    suites: list[str] = MISSING
    models: list[str] = MISSING
    protocol: Protocol = field(default_factory=Protocol)

    def __post_init__(self) -> None:
        for name in ("suites", "models"):
            _some(f"study {self.name}", name, getattr(self, name))
            _distinct(f"study {self.name}", name, getattr(self, name))


@dataclass
class ArmGrid:
    """An arm of a suite and where it stands on the grid.

    Attributes:
        arm: name of a conf/arm file.
        conditions: aware, stream, or none for the full cache.
        budgets: shares of the cached tokens that are kept; none for the full cache.
        seeds: labels of Poisson draws; none for an arm that draws nothing.
    """

    arm: str = MISSING
    conditions: list[str] = field(default_factory=list)
    budgets: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        where = f"arm {self.arm}"
        if bad := [b for b in self.budgets if not 0 < b <= 1]:
            raise ConfigError(f"{where}: a budget lies in (0, 1], got {bad[0]:g}")
        if unknown := [c for c in self.conditions if c not in CONDITIONS]:
            raise ConfigError(f"{where}: a condition is aware or stream, got {unknown[0]!r}")
        if negative := [s for s in self.seeds if s < 0]:
            raise ConfigError(f"{where}: a seed is at least 0, got {negative[0]}")
        for name in ("conditions", "budgets", "seeds"):
            _distinct(where, name, getattr(self, name))


@dataclass
class SuiteConf:
    """Tasks of one context length, and the arms that answer them.

    Attributes:
        name: names the folder of its logs.
        tasks: names of conf/task files.
        arms: what answers every example.
        context_tokens: nominal length of the contexts, in tokens.
        n_examples: examples of each task.
        example_seed: which examples; the same seed gives the same questions at any length.
        shard_examples: examples of one shard, the unit of scheduling.
    """

    name: str = MISSING
    tasks: list[str] = MISSING
    arms: list[ArmGrid] = MISSING
    context_tokens: int = MISSING
    n_examples: int = MISSING
    example_seed: int = MISSING
    shard_examples: int = 20

    def __post_init__(self) -> None:
        _some(f"suite {self.name}", "tasks", self.tasks)
        _distinct(f"suite {self.name}", "tasks", self.tasks)
        _some(f"suite {self.name}", "arms", self.arms)
        for name in ("context_tokens", "n_examples", "shard_examples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"suite {self.name}: {name} is at least 1, got {getattr(self, name)}")


@dataclass
class ModelConf:
    """Where a model comes from.

    Attributes:
        name: short name used in ids and logs.
        source: `embedded`, a local folder, or a hub id.
        revision: pinned hub revision; null for a folder.
        dtype: float32, bfloat16 or float16.
        chat: render prompts through the chat template.
    """

    name: str = MISSING
    source: str = MISSING
    revision: str | None = None
    dtype: str = "float32"
    chat: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in DTYPES:
            raise ConfigError(f"model {self.name}: dtype is one of {', '.join(DTYPES)}")


@dataclass
class TaskConf:
    """A task family with its parameters.

    Attributes:
        name: short name used in ids and logs.
        family: a file of kvexp/tasks.
        max_new_tokens: longest answer.
        params: fields of the family's class.
    """

    name: str = MISSING
    family: str = MISSING
    max_new_tokens: int = MISSING
    params: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ConfigError(f"task {self.name}: max_new_tokens is at least 1")


@dataclass
class ArmConf:
    """An arm is a composition: score x design x estimator.

    Attributes:
        name: short name used in ids and logs.
        score: a file of kvexp/scores, or null.
        score_params: fields of the score's class.
        aware_score: score of the aware condition, where it differs.
        aware_score_params: fields of that score's class.
        design: a file of kvexp/design.
        design_params: fields of the design's class.
        estimator: plain, or hajek to add log(1/pi) to the logits of the kept tail.
    """

    name: str = MISSING
    score: str | None = None
    score_params: dict[str, Any] = field(default_factory=dict)
    aware_score: str | None = None
    aware_score_params: dict[str, Any] = field(default_factory=dict)
    design: str = MISSING
    design_params: dict[str, Any] = field(default_factory=dict)
    estimator: str = "plain"

    def __post_init__(self) -> None:
        if self.estimator not in ("plain", "hajek"):
            raise ConfigError(f"arm {self.name}: estimator is plain or hajek, got {self.estimator!r}")


@dataclass
class Rate:
    """Measured speed of a model on a cluster; only for expected times."""

    prefill_tokens_per_s: float = MISSING
    decode_steps_per_s: float = MISSING  # of one group, all its arms together


@dataclass
class ClusterConf:
    """Where shards run. Never part of a shard's identity.

    Attributes:
        name: short name.
        executor: `debug` runs in this process, `local` in worker processes through submitit.
        workers: shards at a time.
        threads: torch threads of a worker; 0 shares the cores among the workers.
        device: torch device.
        rates: measured speed by model name.
    """

    name: str = MISSING
    executor: str = MISSING
    workers: int = 1
    threads: int = 0
    device: str = "cpu"
    rates: dict[str, Rate] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.executor not in ("debug", "local"):
            raise ConfigError(f"cluster {self.name}: executor is debug or local, got {self.executor!r}")
        if self.workers < 1 or self.threads < 0:
            raise ConfigError(f"cluster {self.name}: workers is at least 1, threads at least 0")


SCHEMAS = {
    "study": StudyConf,
    "suite": SuiteConf,
    "model": ModelConf,
    "task": TaskConf,
    "arm": ArmConf,
    "cluster": ClusterConf,
}


def _register() -> None:
    store = ConfigStore.instance()
    for group, schema in SCHEMAS.items():
        store.store(group=group, name=f"base_{group}", node=schema)


_register()


@dataclass(frozen=True)
class Selection:
    """A study, resolved to plain dataclasses, and the part of it that a command chose."""

    study: StudyConf
    cluster: ClusterConf
    suites: list[SuiteConf]
    models: list[ModelConf]
    tasks: dict[str, TaskConf]
    arms: dict[str, ArmConf]
    chosen: dict[str, list[str]]  # names by group: suite, model, task


def project_root(start: Path | None = None) -> Path:
    """The nearest folder at or above `start` that holds conf/config.yaml."""
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "conf" / "config.yaml").is_file():
            return folder
    raise ConfigError(f"{here} is not inside a kvexp project: there is no conf/config.yaml above it")


def select(overrides: list[str], root: Path) -> Selection:
    """Resolve overrides. Raises ConfigError, in one sentence, for anything that does not fit."""
    composer = _Composer(root, overrides)
    study = composer.one("study", composer.chosen("study"))
    cluster = composer.one("cluster", composer.chosen("cluster"))
    by_study = f"study/{composer.chosen('study')}"
    suites = [composer.one("suite", name, by_study) for name in study.suites]
    # The first suite that lists an item is named if it does not exist.
    tasks = {name: f"suite/{suite.name}" for suite in suites[::-1] for name in suite.tasks[::-1]}
    arms = {entry.arm: f"suite/{suite.name}" for suite in suites[::-1] for entry in suite.arms[::-1]}
    lists = {"suite": study.suites, "model": study.models, "task": list(tasks)[::-1]}
    selection = Selection(
        study=study,
        cluster=cluster,
        suites=suites,
        models=[composer.one("model", name, by_study) for name in study.models],
        tasks={name: composer.one("task", name, by) for name, by in tasks.items()},
        arms={name: composer.one("arm", name, by) for name, by in arms.items()},
        chosen={group: composer.choose(group, names, study.name) for group, names in lists.items()},
    )
    composer.refuse_unused(f"study {study.name}")
    return selection


def load_arms(names: list[str], overrides: list[str], root: Path) -> list[ArmConf]:
    """Arms by their conf/arm files, whatever study lists them."""
    composer = _Composer(root, overrides)
    arms = [composer.one("arm", name) for name in names]
    composer.refuse_unused(f"the choice of {', '.join(names)}")
    return arms


@dataclass(frozen=True)
class _Change:
    """An override of a field: `arm.poisson.estimator=plain` concerns one item, `arm.estimator=plain` all."""

    text: str
    item: str | None
    override: str  # as Hydra wants it


class _Composer:
    """Composes one item of one group at a time, under the overrides that concern it."""

    def __init__(self, root: Path, overrides: list[str]) -> None:
        self.folder = root / "conf"
        self.choices: dict[str, list[str]] = {}
        self.changes: dict[str, list[_Change]] = {group: [] for group in GROUPS}
        self._used: set[str] = set()
        for text in overrides:
            self._sort(text)

    def _sort(self, text: str) -> None:
        try:
            override = OverridesParser.create().parse_override(text)
        except HydraException:
            raise ConfigError(f"{text!r} is not an override: write group=name or group.key=value") from None
        if override.is_delete():
            raise ConfigError(f"{text!r}: nothing can be removed, write group=name or group.key=value")
        group, _, key = override.key_or_group.partition(".")
        if group not in GROUPS:
            raise ConfigError(f"{text!r}: there is no group {group!r}; {suggest(group, list(GROUPS))}")
        if key:
            self.changes[group].append(self._change(text, group, key))
            return
        value = override.value()
        names = getattr(value, "list", value)
        self.choices[group] = [str(n) for n in names] if isinstance(names, list) else [str(names)]

    def _change(self, text: str, group: str, key: str) -> _Change:
        assignment = text.lstrip("+").removeprefix(f"{group}.")
        # The longest name: `llama-3` must not claim what is said of `llama-3.1`.
        item = max((n for n in self.known(group) if key.startswith(f"{n}.")), key=len, default=None)
        if item is not None:
            key, assignment = key.removeprefix(f"{item}."), assignment.removeprefix(f"{item}.")
        types = {f.name: f.type for f in fields(SCHEMAS[group])}
        first = key.split(".")[0]
        if first not in types:
            what = f"{group} has no key and no item" if item is None else f"{group} {item} has no key"
            hint = suggest(first, [*types, *([] if item else self.known(group))])
            raise ConfigError(f"{text!r}: {what} {first!r}; {hint}")
        # Parameters of a part are a free dict, checked later by the part; elsewhere ++ would add any key.
        is_free = get_origin(types[first]) is dict
        return _Change(text, item, f"{'++' if is_free else ''}{group}.{assignment}")

    def chosen(self, group: str) -> str:
        names = self.choices.get(group)
        if names and len(names) > 1:
            raise ConfigError(f"one {group} at a time, got {', '.join(names)}")
        return names[0] if names else self._default(group)

    def _default(self, group: str) -> str:
        path = self.folder / "config.yaml"
        with _one_sentence("conf/config.yaml"):
            entries: Any = OmegaConf.to_container(OmegaConf.load(path))
            found = [str(e[group]) for e in entries["defaults"] if group in e]
        if not found:
            raise ConfigError(f"conf/config.yaml names no default {group}: say {group}=NAME")
        return found[0]

    def choose(self, group: str, listed: list[str], study: str) -> list[str]:
        """The names chosen among those that the study lists; all of them by default."""
        names = self.choices.get(group, listed)
        for name in names:
            if name not in listed:
                raise ConfigError(f"study {study} has no {group} {name!r}; {suggest(name, listed)}")
        return names

    def known(self, group: str) -> list[str]:
        return sorted(path.stem for path in (self.folder / group).glob("*.yaml"))

    def one(self, group: str, name: str, listed_by: str = "") -> Any:
        """One item as its dataclass. `listed_by`: the item that names it, for the error."""
        known = self.known(group)
        if name not in known:
            raise ConfigError(
                f"{f'conf/{listed_by}.yaml: ' if listed_by else ''}there is no {group} {name!r} "
                f"(no conf/{group}/{name}.yaml); {suggest(name, known)}"
            )
        changes = [c for c in self.changes[group] if c.item in (None, name)]
        self._used.update(c.text for c in changes)
        where = f"conf/{group}/{name}.yaml{''.join(f' with {c.text}' for c in changes)}"
        GlobalHydra.instance().clear()
        with (
            _one_sentence(where),
            initialize_config_dir(config_dir=str(self.folder), version_base="1.3"),
        ):
            root = compose(f"{group}/{name}", overrides=[c.override for c in changes])
            made: Any = OmegaConf.to_object(root[group]) if group in root else None
        schema: Any = SCHEMAS[group]
        if type(made) is not schema:
            raise ConfigError(f"{where}: it must begin with defaults: [base_{group}, _self_]")
        _check_name(where, group, made.name, name)
        return made

    def refuse_unused(self, whole: str) -> None:
        """Raises ConfigError for a change of an item that is not part of the whole."""
        for group, changes in self.changes.items():
            for change in changes:
                if change.text not in self._used:
                    raise ConfigError(
                        f"{change.text!r} changes nothing: {whole} has no {group} {change.item!r}"
                    )


def _check_name(where: str, group: str, name: str, stem: str) -> None:
    """Names become folders and ids; a copied file with its old name would pass for the original."""
    if not re.match(ID_PATTERN, name):
        raise ConfigError(
            f"{where}: a name has letters, digits and . _ = - and begins with a letter or digit, got {name!r}"
        )
    if group not in ("study", "cluster") and name != stem:
        raise ConfigError(f"{where}: name is {name!r}, but must be that of the file, {stem!r}")


@contextmanager
def _one_sentence(where: str) -> Iterator[None]:
    """Turns what reading a configuration can raise into a sentence that begins with its place."""
    try:
        yield
    except (HydraException, OmegaConfBaseException, ConfigError) as error:
        raise ConfigError(f"{where}: {_reason(error)}") from None
    except (OSError, UnicodeError, YAMLError, LookupError, TypeError) as error:
        raise ConfigError(f"{where} cannot be read: {' '.join(str(error).split())}") from None


def _reason(error: BaseException) -> str:
    """What the innermost configuration error says, and where, on one line."""
    said, place = str(error), ""
    cause: BaseException | None = error
    while cause is not None:
        # OmegaConf's innermost message may be a template whose holes an outer one fills.
        if isinstance(cause, HydraException | OmegaConfBaseException | ConfigError) and "$" not in str(cause):
            said = str(cause)
        place = getattr(cause, "full_key", None) or place
        cause = cause.__cause__ or cause.__context__
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"{lines[0] if lines else type(error).__name__}{f' (at {place})' if place else ''}"


def _some(where: str, name: str, values: list[Any]) -> None:
    if not values:
        raise ConfigError(f"{where}: {name} is empty")


def _distinct(where: str, name: str, values: list[Any]) -> None:
    if twice := [v for v in values if values.count(v) > 1]:
        raise ConfigError(f"{where}: {name} repeats {twice[0]!r}")
