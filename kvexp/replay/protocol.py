"""The registered constants of the replay."""

from dataclasses import dataclass

from kvexp.errors import ConfigError


@dataclass
class Protocol:
    """One set for all arms of a study."""

    sinks: int = 4  # first tokens that are never evicted
    recent: int = 32  # last tokens, when eviction happens, that are never evicted
    # Certificate and entropy are read on query heads 0, stride, 2 * stride, ... of a layer.
    head_stride: int = 4
    steps: int = 6  # first decode steps on which they are read
    delta: float = 0.1  # level of the certificate; its per-step confidence is 1 - delta
    norm_floor: float = 1e-9  # added to the norm of the attention output in the certificate's denominator
    # Where an aware arm's first answer token comes from: `compressed` feeds the last prompt token through the
    # compressed cache, `prefill` takes it from the full prefill.
    first_token: str = "compressed"

    def __post_init__(self) -> None:
        if self.first_token not in ("compressed", "prefill"):
            raise ConfigError(f"protocol.first_token is compressed or prefill, got {self.first_token!r}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"protocol.delta lies in (0, 1), got {self.delta:g}")
        if self.norm_floor < 0:
            raise ConfigError(f"protocol.norm_floor is at least 0, got {self.norm_floor:g}")
        if min(self.sinks, self.recent) < 0 or min(self.head_stride, self.steps) < 1:
            raise ConfigError("protocol.sinks and recent are at least 0, head_stride and steps at least 1")
