"""What models cost on a cluster, with where each number comes from: measured rates, or shapes and a roofline.

Part of conf/cluster, so no seal and no digest covers it. `kvexp.run.progress` turns it into seconds.
"""

from dataclasses import dataclass, fields
from typing import Any

from kvexp.errors import ConfigError

MISSING: Any = "???"  # what must be said, as Hydra marks it
MOST = 1e24  # of any rate or size


@dataclass
class Rate:
    """Measured: seconds of one worker, which is one shard at a time on what `device` says."""

    device: str = MISSING  # what it was measured on
    dtype: str = MISSING  # of the weights
    date: str = MISSING  # of the measurement
    command: str = MISSING  # that measured, or that took the numbers from logs
    prefill_token_s: float = MISSING  # seconds a prompt token
    prefill_square_s: float = 0.0  # seconds a squared prompt token: attention over what came before
    plan_token_s: float = 0.0  # of a keep plan, seconds a prompt token and arm
    step_s: float = MISSING  # of a decode step, whatever its arms
    arm_s: float = 0.0  # of a decode step, for each arm in its batch
    cached_s: float = 0.0  # of a decode step, for each cached token of each arm
    answer_share: float = 1.0  # decode steps of a batch over the longest answer that the task allows
    arm_share: float = 1.0  # the same of an arm, which leaves the batch when it has stopped
    cell_s: float = 0.0  # seconds an attention cell, its share of loading included
    world_s: float = 0.0  # seconds a world row

    def __post_init__(self) -> None:
        _check("rates", self)
        for name in ("answer_share", "arm_share"):
            if getattr(self, name) > 1:
                raise ConfigError(f"rates: {name} is at most 1, got {getattr(self, name):g}")


@dataclass
class Shape:
    """The size of a model that a roofline needs."""

    params: float = MISSING  # of the weights that one token passes through
    layers: int = MISSING  # attention layers
    width: int = MISSING  # query heads times the dimension of a head
    kv_width: int = MISSING  # KV heads times the dimension of a head
    bytes: int = 2  # of one number, in weights and cache

    def __post_init__(self) -> None:
        _check("shapes", self)


@dataclass
class Roofline:
    """Of a device, for models without a measured rate: an estimate, and printed as one."""

    device: str = MISSING  # whose data sheet it is
    dtype: str = MISSING  # of the arithmetic
    date: str = MISSING  # when it was written down
    source: str = MISSING  # where the two peaks and the shares come from
    flops: float = MISSING  # peak, multiplications and additions a second
    bytes_per_s: float = MISSING  # peak memory bandwidth
    flops_share: float = MISSING  # of the peak that a prefill reaches, assumed
    bytes_share: float = MISSING  # of the bandwidth that a decode step reaches, assumed
    kernels_per_layer: int = MISSING  # launched in a decode step, assumed
    kernel_s: float = MISSING  # of the host, for each launch, assumed

    def __post_init__(self) -> None:
        _check("roofline", self)
        for name in ("flops", "bytes_per_s"):
            if self._number(name) < 1:
                raise ConfigError(f"roofline: {name} is at least 1")
        for name in ("flops_share", "bytes_share"):
            if not 0.001 <= self._number(name) <= 1:
                raise ConfigError(f"roofline: {name} lies between 0.001 and 1, got {self._number(name):g}")

    def _number(self, name: str) -> float:
        """A field; 1 where nothing is said yet, which Hydra refuses."""
        value = getattr(self, name)
        return float(value) if isinstance(value, int | float) else 1.0


def estimated(shape: Shape, roofline: Roofline) -> Rate:
    """What a shape would cost on a device.

    A prefill is bound by arithmetic: 2 params a token, and 2 layers width a squared token for both products
    of causal attention. A decode step reads all weights once while the host launches its kernels, whichever
    takes longer; then every arm adds arithmetic, and every cached token its keys and values.
    """
    flops = roofline.flops * roofline.flops_share
    read = roofline.bytes_per_s * roofline.bytes_share
    launches = shape.layers * roofline.kernels_per_layer * roofline.kernel_s
    return Rate(
        device=roofline.device,
        dtype=roofline.dtype,
        date=roofline.date,
        command=roofline.source,
        prefill_token_s=2 * shape.params / flops,
        prefill_square_s=2 * shape.layers * shape.width / flops,
        step_s=max(shape.params * shape.bytes / read, launches),
        arm_s=2 * shape.params / flops,
        cached_s=2 * shape.layers * shape.kv_width * shape.bytes / read,
    )


def _check(where: str, item: Any) -> None:
    """Numbers of a size that sums of them are finite; what is not said yet is left to Hydra."""
    for one in fields(item):
        value = getattr(item, one.name)
        if isinstance(value, int | float) and not 0 <= value <= MOST:
            raise ConfigError(f"{where}: {one.name} lies between 0 and {MOST:g}, got {value:g}")
