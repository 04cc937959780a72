"""The schema of conf/ and its range checks: plain dataclasses, one for each group.

A study lists suites and models, a suite lists tasks and arms; each of these is a YAML file of its own.
"""

import re
from dataclasses import dataclass, field
from typing import Any

from kvexp.errors import ConfigError
from kvexp.replay.protocol import Protocol
from kvexp.study.rates import MISSING, Rate, Roofline, Shape

GROUPS = ("study", "suite", "model", "task", "arm", "cluster")
CONDITIONS = ("aware", "stream")
DTYPES = ("float32", "bfloat16", "float16")
EXECUTORS = ("debug", "local", "slurm")
# Options of sbatch that slurm.sbatch leaves alone.
SET_BY_KVEXP = {"array", "dependency", "error", "job-name", "open-mode", "output", "signal"}
# Options of sbatch that a key of ours speaks of: given twice, one would silently win.
KEYS = {
    "account": "account",
    "constraint": "constraint",
    "cpus-per-task": "cpus",
    "gpus": "gres",
    "gpus-per-node": "gres",
    "gpus-per-task": "gres",
    "gres": "gres",
    "mem": "memory_gb",
    "mem-per-cpu": "memory_gb",
    "mem-per-gpu": "memory_gb",
    "partition": "partition",
    "qos": "qos",
    "time": "minutes",
}
CHANGES_THE_ANSWER = {"parsable", "quiet", "test-only", "wait", "wrap", "help", "usage", "version"}
GRES = re.compile(r"(gpu|shard|mps)(:[A-Za-z][A-Za-z0-9_.-]*)?(:[1-9][0-9]*)?")


@dataclass
class StudyConf:
    """A question with its grid."""

    name: str = MISSING  # names the folders results/<name> and preregistration/<name>
    suites: list[str] = MISSING  # names of conf/suite files, in the order they run
    models: list[str] = MISSING  # names of conf/model files
    # For suites that run on other models than these, their names.
    suite_models: dict[str, list[str]] = field(default_factory=dict)
    protocol: Protocol = field(default_factory=Protocol)  # the registered constants of the replay

    def __post_init__(self) -> None:
        if self.protocol.sinks + self.protocol.recent < 1:
            raise ConfigError(
                f"study {self.name}: protocol.sinks and protocol.recent protect at least one token together, "
                "so that every KV head keeps something"
            )
        for name in ("suites", "models"):
            _some(f"study {self.name}", name, getattr(self, name))
            _distinct(f"study {self.name}", name, getattr(self, name))
        for suite, models in self.suite_models.items():
            if suite not in self.suites:
                raise ConfigError(f"study {self.name}: suite_models names {suite}, which is no suite of it")
            _some(f"study {self.name}", f"suite_models.{suite}", models)
            _distinct(f"study {self.name}", f"suite_models.{suite}", models)

    def models_of(self, suite: str) -> list[str]:
        """Names of the models that a suite runs on."""
        return self.suite_models.get(suite, self.models)

    @property
    def all_models(self) -> list[str]:
        """Names of all models, in the order in which suites ask for them."""
        return list(dict.fromkeys(name for suite in self.suites for name in self.models_of(suite)))


@dataclass
class ArmGrid:
    """An arm of a suite and where it stands on the grid."""

    arm: str = MISSING  # name of a conf/arm file
    conditions: list[str] = field(default_factory=list)  # aware, stream, or none for the full cache
    # Shares of the cached tokens that are kept; none for the full cache.
    budgets: list[float] = field(default_factory=list)
    # Labels of Poisson draws; none for an arm that draws nothing.
    seeds: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        where = f"arm {self.arm}"
        _check_grid(where, self.conditions, self.budgets, self.seeds)
        for name in ("conditions", "budgets", "seeds"):
            _distinct(where, name, getattr(self, name))


@dataclass
class SuiteBase:
    """What every suite has: tasks of one context length."""

    name: str = MISSING  # names the folder of its logs
    tasks: list[str] = MISSING  # names of conf/task files
    # Of a text of the task's own, the tokens at which it is cut; of a RULER-style task, the most that prompt
    # and answer have together, without the tokens of a chat template; of the other tasks, the nominal length.
    context_tokens: int = MISSING
    n_examples: int = MISSING  # examples of each task
    example_seed: int = MISSING  # which examples; the same seed gives the same questions at any length
    shard_examples: int = 20  # examples of one shard, the unit of scheduling

    def __post_init__(self) -> None:
        _some(f"suite {self.name}", "tasks", self.tasks)
        _distinct(f"suite {self.name}", "tasks", self.tasks)
        for name in ("context_tokens", "n_examples", "shard_examples"):
            if getattr(self, name) < 1:
                raise ConfigError(f"suite {self.name}: {name} is at least 1, got {getattr(self, name)}")
        if not 0 <= self.example_seed < 2**31:
            raise ConfigError(
                f"suite {self.name}: example_seed is at least 0 and below 2^31, got {self.example_seed}"
            )


@dataclass
class SuiteConf(SuiteBase):
    """A suite of generations."""

    arms: list[ArmGrid] = MISSING  # what answers every example
    no_context: bool = False  # leave the context out of every prompt: what does the model know without it?

    def __post_init__(self) -> None:
        super().__post_init__()
        _some(f"suite {self.name}", "arms", self.arms)


@dataclass
class AttentionConf(SuiteBase):
    """A suite of attention cells: true error of four estimators at later queries (section 4)."""

    chat: bool = False  # render prompts through the model's chat template
    # What is in the cache at eviction, the context (stream) or all but the last token (aware).
    condition: str = "stream"
    budgets: list[float] = MISSING  # shares of the cached tokens that are kept
    seeds: list[int] = field(default_factory=lambda: [0])  # labels of Poisson draws
    query_offsets: list[int] = MISSING  # queries, counted from the first token that is fed after the eviction
    score: str = MISSING  # a file of kvexp/scores; top-k and Poisson read the same
    score_params: dict[str, Any] = field(default_factory=dict)  # fields of the score's class
    # Fields of the Poisson design, for instance allocation.
    design_params: dict[str, Any] = field(default_factory=dict)
    worlds: int = 6  # changed worlds of each kind in the impossibility demonstration
    world_budget: float = 0.25  # its budget; draws and query are the first of the lists above
    world_examples: int = 0  # prompts that carry it, from the first one on
    rotation_score: str = "value_weighted"  # score of the rotated worlds; it may read norms of values
    rotation_score_params: dict[str, Any] = field(default_factory=dict)  # fields of that score's class

    def __post_init__(self) -> None:
        super().__post_init__()
        where = f"suite {self.name}"
        _check_grid(where, [self.condition], [*self.budgets, self.world_budget], self.seeds)
        for name in ("budgets", "seeds", "query_offsets"):
            _some(where, name, getattr(self, name))
            _distinct(where, name, getattr(self, name))
        if min(self.query_offsets) < 0 or self.world_examples < 0:
            raise ConfigError(f"{where}: query_offsets and world_examples are at least 0")
        if self.condition == "aware" and self.query_offsets != [0]:
            raise ConfigError(f"{where}: aware eviction leaves one token to feed, so query_offsets is [0]")
        if self.world_budget == 1:
            raise ConfigError(f"{where}: at a world_budget of 1 nothing is evicted that could be changed")
        if self.worlds < 1:
            raise ConfigError(f"{where}: worlds is at least 1 (world_examples: 0 leaves them out)")
        _not_the_name(
            where,
            score_params=self.score_params,
            design_params=self.design_params,
            rotation_score_params=self.rotation_score_params,
        )


@dataclass
class ModelConf:
    """Where a model comes from."""

    name: str = MISSING  # short name used in ids and logs
    source: str = MISSING  # `embedded`, a local folder, or a hub id
    revision: str | None = None  # pinned hub revision; null for a folder
    dtype: str = "float32"  # float32, bfloat16 or float16
    chat: bool = True  # render prompts through the chat template
    layers: int | None = None  # attention layers; with query_heads, the cells of an attention suite
    query_heads: int | None = None  # query heads of a layer
    gated: bool = False  # the hub gives it only to accounts that have accepted its licence

    def __post_init__(self) -> None:
        if any(n is not None and n < 1 for n in (self.layers, self.query_heads)):
            raise ConfigError(f"model {self.name}: layers and query_heads are at least 1")
        if self.dtype not in DTYPES:
            raise ConfigError(f"model {self.name}: dtype is one of {', '.join(DTYPES)}")


def is_folder(source: str) -> bool:
    """Whether a model's source names a local folder; everything else is a hub id, or `embedded`."""
    return source.startswith(("/", "./", "../", "~"))


@dataclass
class TaskConf:
    """A task family with its parameters."""

    name: str = MISSING  # short name used in ids and logs
    family: str = MISSING  # a file of kvexp/tasks
    max_new_tokens: int = MISSING  # longest answer
    # Folder or zip with the family's data, if it reads any; null: the hub's cache.
    data_dir: str | None = None
    params: dict[str, Any] = field(default_factory=dict)  # fields of the family's class

    def __post_init__(self) -> None:
        if self.max_new_tokens < 1:
            raise ConfigError(f"task {self.name}: max_new_tokens is at least 1")


@dataclass
class ArmConf:
    """An arm is a composition: score x design x estimator."""

    name: str = MISSING  # short name used in ids and logs
    score: str | None = None  # a file of kvexp/scores, or null
    score_params: dict[str, Any] = field(default_factory=dict)  # fields of the score's class
    aware_score: str | None = None  # score of the aware condition, where it differs
    aware_score_params: dict[str, Any] = field(default_factory=dict)  # fields of that score's class
    design: str = MISSING  # a file of kvexp/design
    design_params: dict[str, Any] = field(default_factory=dict)  # fields of the design's class
    estimator: str = "plain"  # plain, or hajek to add log(1/pi) to the logits of the kept tail

    def __post_init__(self) -> None:
        if self.estimator not in ("plain", "hajek"):
            raise ConfigError(f"arm {self.name}: estimator is plain or hajek, got {self.estimator!r}")
        _not_the_name(
            f"arm {self.name}",
            score_params=self.score_params,
            aware_score_params=self.aware_score_params,
            design_params=self.design_params,
        )


@dataclass
class SlurmConf:
    """What a shard asks of Slurm; null: the cluster's own default."""

    partition: str | None = None  # for `sbatch --partition`, as are the next three
    account: str | None = None  # who pays
    qos: str | None = None  # quality of service
    constraint: str | None = None  # features of nodes
    gres: str | None = None  # GPUs of one shard, as `gpu:h100:1`, or a part of one, as `shard:1` or `mps:25`
    # Of a GPU that one unit of a part is, for GPU-hours: 0.25 where `shard:1` is a quarter.
    gpu_share: float = 1.0
    cpus: int = 1  # cores of one shard
    # Memory of one shard; null asks for none, which some sites read as a whole node.
    memory_gb: float | None = None
    minutes: int = 60  # time limit. A shard that hits it goes on where it was, in the same job.
    signal_seconds: int = 120  # before the limit, and after the signal of a preemption, the time to stop in
    max_timeouts: int = 20  # times that one job may hit its limit before it is given up until the next submit
    # Shell commands before kvexp starts (modules, containers, environments); a failing one ends it.
    setup: list[str] = field(default_factory=list)
    python: str | None = None  # command that starts Python on a node; null: this interpreter, by its path
    sbatch: dict[str, Any] = field(default_factory=dict)  # further options of sbatch, by their long names
    analysis_partition: str | None = None  # where `--then-analyze` runs, without a GPU; null: as above
    analysis_minutes: int = 60  # its time limit

    def __post_init__(self) -> None:
        for name in ("cpus", "minutes", "signal_seconds", "max_timeouts", "analysis_minutes"):
            if getattr(self, name) < 1:
                raise ConfigError(f"slurm.{name} is at least 1, got {getattr(self, name)}")
        if self.memory_gb is not None and not 0.1 <= self.memory_gb < float("inf"):
            raise ConfigError(f"slurm.memory_gb is at least 0.1, got {self.memory_gb:g}")
        if self.minutes * 60 <= self.signal_seconds:
            raise ConfigError(
                f"slurm.signal_seconds must be less than slurm.minutes, {60 * self.minutes} seconds: a task "
                f"that is told to stop {self.signal_seconds} seconds before its limit would never begin"
            )
        if self.gres is not None and not GRES.fullmatch(self.gres):
            raise ConfigError(
                f"slurm.gres is written as gpu:1, gpu:h100:1, shard:1 or mps:25, got {self.gres!r}"
            )
        is_part = self.gres is not None and not self.gres.startswith("gpu")
        if not 0 < self.gpu_share <= 1 or is_part == (self.gpu_share == 1):
            raise ConfigError(
                "slurm.gpu_share is 1 where gres asks for whole GPUs, and else what one unit is of a GPU, "
                f"between 0 and 1; got {self.gpu_share:g} with gres {self.gres}"
            )
        named = {name.replace("_", "-") for name in self.sbatch}
        if taken := sorted(SET_BY_KVEXP & named):
            raise ConfigError(f"slurm.sbatch cannot set {taken[0]}: kvexp does")
        if twice := sorted(name for name in KEYS.keys() & named if getattr(self, KEYS[name]) is not None):
            raise ConfigError(
                f"slurm.sbatch cannot set {twice[0]}: slurm.{KEYS[twice[0]]} says it (set that one, or null)"
            )
        if taken := sorted(CHANGES_THE_ANSWER & named):
            raise ConfigError(
                f"slurm.sbatch cannot set {taken[0]}: kvexp reads the job's id from sbatch's answer"
            )


def gpus_of(gres: str | None, share: float = 1) -> float:
    """GPUs that a shard asks for, in units of this share of a GPU; a name without a number is one unit."""
    last = (gres or "gpu:0").rpartition(":")[2]
    return (int(last) if last.isdecimal() else 1) * share


@dataclass
class ClusterConf:
    """Where shards run. Never part of a shard's identity."""

    name: str = MISSING  # short name
    # `debug` runs in this process, `local` in worker processes, `slurm` in job arrays.
    executor: str = MISSING
    workers: int = 1  # shards at a time; on Slurm, of one suite
    threads: int = 0  # torch threads of a worker; 0 shares the cores among the workers
    device: str = "cpu"  # torch device
    # Measured speed by model name; only for expected times, as are the next two.
    rates: dict[str, Rate] = field(default_factory=dict)
    shapes: dict[str, Shape] = field(default_factory=dict)  # sizes by name of models without a measured rate
    roofline: Roofline | None = None  # of the device, which makes an estimate of a shape
    slurm: SlurmConf = field(default_factory=SlurmConf)  # what a shard asks of Slurm

    def __post_init__(self) -> None:
        if self.executor not in EXECUTORS:
            raise ConfigError(
                f"cluster {self.name}: executor is {', '.join(EXECUTORS[:-1])} or {EXECUTORS[-1]}, "
                f"got {self.executor!r}"
            )
        if self.workers < 1 or self.threads < 0:
            raise ConfigError(f"cluster {self.name}: workers is at least 1, threads at least 0")

    @property
    def slurm_threads(self) -> int:
        """Torch threads of a shard on Slurm, which gives it cores of its own."""
        return self.threads or self.slurm.cpus


# What an item's first default may be called, and the schema that it then has.
SCHEMAS: dict[str, dict[str, Any]] = {
    "study": {"base_study": StudyConf},
    "suite": {"base_suite": SuiteConf, "base_attention": AttentionConf},
    "model": {"base_model": ModelConf},
    "task": {"base_task": TaskConf},
    "arm": {"base_arm": ArmConf},
    "cluster": {"base_cluster": ClusterConf},
}


def _check_grid(where: str, conditions: list[str], budgets: list[float], seeds: list[int]) -> None:
    if bad := [b for b in budgets if not 0 < b <= 1]:
        raise ConfigError(f"{where}: a budget lies in (0, 1], got {bad[0]:g}")
    if unknown := [c for c in conditions if c not in CONDITIONS]:
        raise ConfigError(f"{where}: a condition is aware or stream, got {unknown[0]!r}")
    if bad_seeds := [s for s in seeds if not 0 <= s < 2**31]:
        raise ConfigError(f"{where}: a seed is at least 0 and below 2^31, got {bad_seeds[0]}")


def _not_the_name(where: str, **all_params: dict[str, Any]) -> None:
    for field_name, params in all_params.items():
        if "name" in params:  # Python would take it for the part's own
            raise ConfigError(f"{where}: {field_name} cannot set 'name': no part has such a parameter")


def _some(where: str, name: str, values: list[Any]) -> None:
    if not values:
        raise ConfigError(f"{where}: {name} is empty")


def _distinct(where: str, name: str, values: list[Any]) -> None:
    if twice := [v for v in values if values.count(v) > 1]:
        raise ConfigError(f"{where}: {name} repeats {twice[0]!r}")


COMMIT = re.compile(r"[0-9a-f]{40}")


def is_hub(model: ModelConf) -> bool:
    """Whether a model comes from the hub: neither embedded nor a folder."""
    return model.source != "embedded" and not is_folder(model.source)


def is_pinned(model: ModelConf) -> bool:
    """Whether source and revision name one state of the hub's model for ever."""
    return is_hub(model) and COMMIT.fullmatch(model.revision or "") is not None
