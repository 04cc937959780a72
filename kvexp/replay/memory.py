"""Memory: how much of it is free, and whether an error means that it has run out."""

import re
from pathlib import Path


def is_out_of_memory(error: Exception) -> bool:
    """Of a GPU, of Python, or of the CPU's allocator, which has no exception class of its own."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "allocate memory" in str(error)


def free_bytes(device: str) -> int | None:
    """Memory that is free on a device, or None where that cannot be told."""
    if device.startswith("cuda"):
        import torch

        return int(torch.cuda.mem_get_info(device)[0]) if torch.cuda.is_available() else None
    try:
        found = re.search(r"^MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return None
    free = [int(found[1]) * 1024] if found else []
    return min([*free, *_cgroup_limits()], default=None)


def _cgroup_limits() -> list[int]:
    """Memory limits of this process's cgroup (v2) and those above it: a job's own limit on a cluster."""
    try:
        line = Path("/proc/self/cgroup").read_text().splitlines()[-1]
        folder = Path("/sys/fs/cgroup") / line.removeprefix("0::").lstrip("/")
    except (OSError, IndexError):
        return []
    limits = []
    for place in (folder, *folder.parents):
        try:
            text = (place / "memory.max").read_text().strip()
        except OSError:
            continue
        if text.isdigit():
            limits.append(int(text))
    return limits
