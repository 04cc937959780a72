"""Whether an error means that memory has run out."""

import torch


def is_out_of_memory(error: Exception) -> bool:
    """Of a GPU, of Python, or of the CPU's allocator, which has no exception class of its own."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)
