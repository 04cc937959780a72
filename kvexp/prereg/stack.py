"""What decides the last bit of a score: software, processor and device of an attempt, and of this machine."""

from kvexp import provenance
from kvexp.records import Attempt
from kvexp.replay.model import Loaded
from kvexp.resolved import GenerationShard

# Of `provenance.versions`. The processor's instruction set chooses kernels, and these the order of sums.
STACK = ("torch", "transformers", "tokenizers", "numpy", "platform", "cpu")
DEVICE = "gpu"  # its name; only what runs there depends on it


def is_same_stack(shard: GenerationShard, attempt: Attempt, loaded: Loaded) -> bool:
    """Whether the attempt says that it ran on what runs here, so that every bit must come again.

    What an attempt does not say, because it was not recorded then, is not the same.
    """
    here = provenance.versions()
    names = STACK if loaded.device.type == "cpu" else (*STACK, DEVICE)
    return (
        all(name in here and attempt.versions.get(name) == here[name] for name in names)
        and attempt.device.partition(":")[0] == loaded.device.type
        and f"torch.{attempt.dtype}" == str(loaded.model.dtype)
        and attempt.protocol_digest == shard.protocol_digest
    )
