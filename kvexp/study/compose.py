"""From conf/ and the words of a command to a study, one item at a time.

Words after the verb: `study=`, `suite=`, `model=` and `task=` choose, `suite.n_examples=5` changes that
field of every suite of the study, `suite.demo-512.n_examples=5` of one.
"""

import re
from dataclasses import dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, get_origin

from kvexp.errors import ConfigError, suggest
from kvexp.records import ID_PATTERN
from kvexp.study.items import default_of, item_of, value_of
from kvexp.study.results import SCRATCH
from kvexp.study.schema import (
    GROUPS,
    SCHEMAS,
    ArmConf,
    AttentionConf,
    ClusterConf,
    ModelConf,
    StudyConf,
    SuiteConf,
    TaskConf,
    is_hub,
)

RESERVED = ("examples", "locks", "figures", "tables")  # folders of results/<study> that are no suite
NO_NAMES = ("true", "false", "null", "nan", "inf")  # to Hydra
CHOICE = re.compile(r"(study|suite|model|task|cluster)=([A-Za-z][\w.-]*)", re.ASCII)


@dataclass(frozen=True)
class Selection:
    """A study, resolved to plain dataclasses, and the part of it that a command chose."""

    study: StudyConf
    cluster: ClusterConf
    suites: list[SuiteConf | AttentionConf]
    models: list[ModelConf]
    tasks: dict[str, TaskConf]
    arms: dict[str, ArmConf]
    chosen: dict[str, list[str]]  # names by group: study (its file), suite, model, task
    lent: frozenset[str] = frozenset()  # models of which a word says another source than their file

    def models_of(self, suite: str) -> list[ModelConf]:
        """The models that a suite runs on."""
        by_name = {model.name: model for model in self.models}
        return [by_name[name] for name in self.study.models_of(suite)]


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
    arms = {
        entry.arm: f"suite/{suite.name}"
        for suite in suites[::-1]
        if isinstance(suite, SuiteConf)
        for entry in suite.arms[::-1]
    }
    lists = {"suite": study.suites, "model": study.all_models, "task": list(tasks)[::-1]}
    models = [composer.one("model", name, by_study) for name in study.all_models]
    selection = Selection(
        study=study,
        cluster=cluster,
        suites=suites,
        models=models,
        tasks={name: composer.one("task", name, by) for name, by in tasks.items()},
        arms={name: composer.one("arm", name, by) for name, by in arms.items()},
        chosen={
            "study": [composer.chosen("study")],
            **{group: composer.choose(group, names, study.name) for group, names in lists.items()},
        },
        lent=frozenset(model.name for model in models if composer.is_lent(model)),
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
    field: str
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
        if (choice := CHOICE.fullmatch(text)) and choice[2].lower() not in (
            "true",
            "false",
            "null",
            "nan",
            "inf",
        ):
            self.choices[choice[1]] = [choice[2]]  # as most words are: to read a value takes Hydra
            return
        if text.startswith("~"):
            raise ConfigError(f"{text!r}: nothing can be removed, write group=name or group.key=value")
        item, general = self._without_item(text)
        general = re.sub(r"=(~[^'\"]*)$", r"='\1'", general)  # Hydra reads ~/data only in quotes
        if not (named := re.match(r"\+{0,2}(\w*)(?:\.([\w.-]+))?=", general)):
            raise ConfigError(f"{text!r} is not an override: {_how_to_write(text)}")
        group, key = named[1], named[2]
        if group not in GROUPS:
            raise ConfigError(f"{text!r}: there is no group {group!r}; {suggest(group, list(GROUPS))}")
        change = self._change(text, group, item, key, general) if key else None
        try:
            value = value_of(general)
        except ValueError:
            raise ConfigError(f"{text!r} is not an override: {_how_to_write(text)}") from None
        if change is not None:
            self.changes[group].append(change)
            return
        if group == "arm":
            raise ConfigError(
                f"{text!r}: no word chooses arms, a suite lists them: suite.NAME.arms=[{{arm: full}}, ...] "
                "(`kvexp try` takes --arms)"
            )
        names = getattr(value, "list", value)
        self.choices[group] = [str(n) for n in names] if isinstance(names, list) else [str(names)]

    def _without_item(self, text: str) -> tuple[str | None, str]:
        """The item that an override names, and the override as if it were said of the whole group.

        Names may hold dots and digits, which Hydra's keys may not: they are taken out before it reads.
        """
        group, dot, rest = text.lstrip("+").partition(".")
        if not dot or group not in GROUPS:
            return None, text
        # The longest name: `llama-3` must not claim what is said of `llama-3.1`.
        item = max((n for n in self.known(group) if rest.startswith(f"{n}.")), key=len, default=None)
        return item, text if item is None else text.replace(f"{group}.{item}.", f"{group}.", 1)

    def _change(self, text: str, group: str, item: str | None, key: str, general: str) -> _Change:
        types = {f.name: f.type for schema in SCHEMAS[group].values() for f in fields(schema)}
        first = key.split(".")[0]
        if first not in types:
            what = f"{group} has no key and no item" if item is None else f"{group} {item} has no key"
            hint = suggest(first, [*types, *([] if item else self.known(group))])
            raise ConfigError(f"{text!r}: {what} {first!r}; {hint}")
        # Parameters of a part are a free dict, checked later by the part; elsewhere ++ would add any key.
        is_free = _is_free(types[first], key.split(".")[1:])
        return _Change(text, item, first, f"{'++' if is_free else ''}{general.lstrip('+')}")

    def chosen(self, group: str) -> str:
        names = self.choices.get(group)
        if names and len(names) > 1:
            raise ConfigError(f"one {group} at a time, got {', '.join(names)}")
        return names[0] if names else default_of(self.folder, group)

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
        changes = self._concerning(group, name)
        self._used.update(c.text for c in changes)
        where = f"conf/{group}/{name}.yaml{''.join(f' with {c.text}' for c in changes)}"
        made = self._composed(group, name, changes, where)
        _check_name(where, group, made.name, name)
        return self._of_this_source(made, changes) if isinstance(made, ModelConf) else made

    def _of_this_source(self, model: ModelConf, changes: list[_Change]) -> ModelConf:
        """The model without what its file says of another source: a revision, and that it is gated."""
        if not is_hub(model):
            return replace(model, revision=None, gated=False)
        if not self.is_lent(model):
            return model
        said = {change.field for change in changes}
        return replace(
            model,
            revision=model.revision if "revision" in said else None,
            gated=model.gated and "gated" in said,
        )

    def is_lent(self, model: ModelConf) -> bool:
        """Whether a word says another source of a model than its file."""
        if not any(c.field == "source" for c in self._concerning("model", model.name)):
            return False
        usual: ModelConf = self._composed("model", model.name, [], f"conf/model/{model.name}.yaml")
        return usual.source != model.source

    def _concerning(self, group: str, name: str) -> list[_Change]:
        """The changes of this item; one that is said of all items concerns those that have the field."""
        changes = [c for c in self.changes[group] if c.item in (None, name)]
        if len(SCHEMAS[group]) == 1 or all(c.item for c in changes):
            return changes
        made = self._composed(group, name, [], f"conf/{group}/{name}.yaml")
        known = {f.name for f in fields(type(made))}
        return [c for c in changes if c.item or c.field in known]

    def _composed(self, group: str, name: str, changes: list[_Change], where: str) -> Any:
        return item_of(self.folder, group, name, [c.override for c in changes], where)

    def refuse_unused(self, whole: str) -> None:
        """Raises ConfigError for a change of an item that is not part of the whole."""
        for group, changes in self.changes.items():
            for change in changes:
                if change.text not in self._used:
                    what = repr(change.item) if change.item else f"with a field {change.field!r}"
                    raise ConfigError(f"{change.text!r} changes nothing: {whole} has no {group} {what}")


def _how_to_write(text: str) -> str:
    group, is_value, _ = text.partition("=")
    if is_value and group.split(".")[0] in GROUPS:
        return (
            "a value with other signs than letters of English, digits and - _ . / stands in quotes, '\"a b\"'"
        )
    return "write group=name or group.key=value"


def _is_free(kind: Any, rest: list[str]) -> bool:
    """Whether a key lies in a free dict, however deep."""
    if get_origin(kind) is dict:
        return True
    inner = {f.name: f.type for f in fields(kind)} if rest and is_dataclass(kind) else {}
    return bool(inner) and rest[0] in inner and _is_free(inner[rest[0]], rest[1:])


def _check_name(where: str, group: str, name: str, stem: str) -> None:
    """Names become folders and ids; a copied file with its old name would pass for the original."""
    if not re.match(ID_PATTERN, name):
        raise ConfigError(
            f"{where}: a name has letters, digits and . _ = - and begins with a letter or digit, got {name!r}"
        )
    if group == "study" and name == SCRATCH:
        raise ConfigError(f"{where}: results/{SCRATCH} is for unregistered runs, give the study another name")
    if group == "suite" and name in RESERVED:
        raise ConfigError(f"{where}: results/<study>/{name} is taken, give the suite another name")
    if group not in ("study", "cluster") and name != stem:
        raise ConfigError(f"{where}: name is {name!r}, but must be that of the file, {stem!r}")
