"""One file of conf/ as its dataclass: read directly where its words are plain, else composed by Hydra.

Nothing else in kvexp imports Hydra, and only what needs it waits for it: a word that changes a field, a value
that refers to another, and a file with a mistake, which Hydra names.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import yaml  # type: ignore[import-untyped]

from kvexp.errors import ConfigError
from kvexp.study.rates import MISSING
from kvexp.study.schema import SCHEMAS

PLAIN = (int, float, bool, type(None))


def item_of(conf: Path, group: str, name: str, overrides: Sequence[str], where: str) -> Any:
    """The dataclass of conf/group/name.yaml under overrides as Hydra writes them.

    Raises ConfigError, in one sentence that begins with `where`.
    """
    made = None if overrides else _read(conf / group / f"{name}.yaml", group)
    return _compose(conf, group, name, overrides, where) if made is None else made


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Refuses a key that stands twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        made = super().construct_mapping(node, deep)
        if len(made) != len(node.value):
            raise yaml.YAMLError("a key stands twice")
        return made


def _read(path: Path, group: str) -> Any:
    """The item, ten times as fast as by Hydra; None for a file that Hydra might read otherwise or refuse."""
    with suppress(OSError, UnicodeError, yaml.YAMLError, LookupError, AttributeError, TypeError, ValueError):
        schema, body = _body(path, SCHEMAS[group])
        with suppress(ConfigError, msgspec.ValidationError):
            made = msgspec.convert(body, schema)
            return made if _says(asdict(made), body) else None
    return None


def _body(path: Path, schemas: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The schema that a file names, and what it says, over what the files say that it builds on."""
    text = path.read_text(encoding="utf-8")
    own = yaml.load(text, Loader=_Loader)
    *bases, last = own.pop("defaults")
    if last != "_self_" or "${" in text or "@package" in text:
        raise ValueError(f"{path} is for Hydra to read")
    schema, body = None, dict[str, Any]()
    for base in bases:
        if base in schemas:
            schema = schemas[base]
        else:
            schema, found = _body(path.with_name(f"{base}.yaml"), schemas)
            body = _over(found, body)
    return schema, _over(own, body)


def _over(own: dict[str, Any], below: dict[str, Any]) -> dict[str, Any]:
    """Tables are joined, and all else is replaced."""
    both = {
        key: _over(own[key], below[key])
        for key in own.keys() & below.keys()
        if isinstance(own[key], dict) and isinstance(below[key], dict)
    }
    return {**below, **own, **both}


def _says(made: Any, body: Any) -> bool:
    """Whether a value is what a file says: nothing left over, nothing open, nothing read in another way."""
    if isinstance(made, dict):
        is_known = isinstance(body, dict) and body.keys() <= made.keys()
        return is_known and all(_says(value, body.get(key, value)) for key, value in made.items())
    if isinstance(made, list):
        return isinstance(body, list) and len(made) == len(body) and all(map(_says, made, body))
    if isinstance(made, str):
        return made == body and made != MISSING and not _is_number(made)
    return type(made) in PLAIN and made == body and isinstance(body, bool) == isinstance(made, bool)


def _is_number(text: str) -> bool:
    """Hydra knows more ways to write one than YAML does."""
    with suppress(ValueError):
        float(text)
        return True
    return False


@cache
def _register() -> None:
    """Hydra knows the schemas that a file's defaults may name."""
    from hydra.conf import HydraConf
    from hydra.core.config_store import ConfigStore

    store = ConfigStore.instance()
    for group, schemas in SCHEMAS.items():
        for name, schema in schemas.items():
            store.store(group=group, name=name, node=schema)
    # Hydra composes its own launchers, sweepers and loggers with every file: two thirds of the time, unused.
    store.store(group="hydra", name="config", node=HydraConf(defaults=[]))


def _compose(conf: Path, group: str, name: str, overrides: Sequence[str], where: str) -> Any:
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from omegaconf import OmegaConf

    _register()
    GlobalHydra.instance().clear()
    with _one_sentence(where), initialize_config_dir(config_dir=str(conf), version_base="1.3"):
        root = compose(f"{group}/{name}", overrides=list(overrides))
        made: Any = OmegaConf.to_object(root[group]) if group in root else None
    if type(made) not in SCHEMAS[group].values():
        first = " or ".join(f"[{schema}, _self_]" for schema in SCHEMAS[group])
        raise ConfigError(f"{where}: it must begin with defaults: {first}")
    return made


def value_of(word: str) -> Any:
    """What a word sets, as Hydra reads it. Raises ValueError if it cannot."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(word).value()
    except HydraException as error:
        raise ValueError(str(error)) from None


def default_of(conf: Path, group: str) -> str:
    """What conf/config.yaml chooses where nothing is said."""
    try:
        entries = yaml.load((conf / "config.yaml").read_text(encoding="utf-8"), Loader=_Loader)["defaults"]
        found = [str(entry[group]) for entry in entries if group in entry]
    except (OSError, UnicodeError, yaml.YAMLError, LookupError, TypeError) as error:
        raise ConfigError(f"conf/config.yaml cannot be read: {' '.join(str(error).split())}") from None
    if not found:
        raise ConfigError(f"conf/config.yaml names no default {group}: say {group}=NAME")
    return found[0]


@contextmanager
def _one_sentence(where: str) -> Iterator[None]:
    """Turns what reading a configuration can raise into a sentence that begins with its place."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    try:
        yield
    except (HydraException, OmegaConfBaseException, ConfigError) as error:
        raise ConfigError(f"{where}: {_reason(error)}") from None
    # Hydra asserts that a field of a table which is null is not set.
    except (OSError, UnicodeError, yaml.YAMLError, LookupError, TypeError, AssertionError) as error:
        raise ConfigError(f"{where} cannot be read: {' '.join(str(error).split())}") from None


def _reason(error: BaseException) -> str:
    """What the innermost configuration error says, and where, on one line."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

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
