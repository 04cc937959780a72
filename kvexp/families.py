"""From a task's configuration to its family."""

from dataclasses import fields, is_dataclass

from kvexp import plugins, tasks
from kvexp.config import TaskConf
from kvexp.errors import ConfigError, named
from kvexp.tasks import Task


def family_of(conf: TaskConf) -> Task:
    """The family with its parameters set; data_dir reaches only a family that reads data.

    Raises ConfigError, which names the task's file, for a parameter that does not fit.
    """
    with named(f"conf/task/{conf.name}.yaml"):
        known = _parameters(plugins.part(tasks.__name__, conf.family, Task))
        params = dict(conf.params)
        if unknown := [name for name in params if name not in known]:
            raise ConfigError(_unknown(conf.family, unknown[0], known))
        if conf.data_dir is not None and "data_dir" in known:
            params["data_dir"] = conf.data_dir
        return plugins.build(tasks.__name__, conf.family, Task, params)


def _parameters(part: type[Task]) -> list[str]:
    return sorted(f.name for f in fields(part)) if is_dataclass(part) else []


def _unknown(family: str, name: str, known: list[str]) -> str:
    hint = plugins.suggest(name, known) if known else "it has none"
    return (
        f"task {family!r} has no parameter {name!r}; {hint} (task.params.{name}=... is said of every task, "
        f"task.NAME.params.{name}=... of the one that has it)"
    )
