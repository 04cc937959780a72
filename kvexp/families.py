"""From a task's configuration to its family."""

from dataclasses import fields

from kvexp import plugins, tasks
from kvexp.config import TaskConf
from kvexp.tasks import Task


def family_of(conf: TaskConf) -> Task:
    """The family with its parameters set; data_dir reaches only a family that reads data."""
    params = dict(conf.params)
    part = plugins.part(tasks.__name__, conf.family, Task)
    if conf.data_dir is not None and "data_dir" in {f.name for f in fields(part)}:  # type: ignore[arg-type]
        params["data_dir"] = conf.data_dir
    return tasks.task(conf.family, **params)
