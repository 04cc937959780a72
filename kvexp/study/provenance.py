"""Where data comes from: code digest, commit, versions, host, job. Facts only, all times UTC."""

import os
import platform
import subprocess
from collections.abc import Collection
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from kvexp.documents.manifest import Manifest, manifest
from kvexp.files import digest, is_regular

PACKAGE = Path(__file__).resolve().parent.parent
# What makes data. A generation made under another digest is another experiment.
PROTOCOL_FILES = (
    "design",
    "draws.py",
    "estimate.py",
    "models/load.py",
    "replay",
    "run/answer.py",
    "run/measure.py",
    "scores",
    "scoring.py",
    "study/arms.py",
    "study/prompts.py",
    "tasks",
)
# Of these, what makes one kind of row only: the other kind's digest does not cover it.
ONLY = {
    "generations": (
        "replay/arm.py",
        "replay/cache.py",
        "replay/decode.py",
        "replay/harness.py",
        "replay/probe.py",
        "run/answer.py",
        "study/arms.py",
    ),
    "cells": ("replay/cells.py", "run/measure.py"),
}
PART_FOLDERS = ("design", "scores", "tasks")
LOCK_FILE = "requirements.lock"
VERSIONED = ("torch", "transformers", "tokenizers", "numpy", "networkx", "hydra-core", "submitit", "msgspec")


def protocol_manifest(kind: str, used: Collection[str], package: Path | None = None) -> Manifest:
    """The files that make a study's rows of one kind; its digest is the protocol digest of attempts.

    `kind` is generations or cells; `used` names the study's parts, as `scores/window`. A part that a study
    does not use makes none of its data: adding one changes no digest.
    """
    package = package or PACKAGE
    others = {name for other, names in ONLY.items() if other != kind for name in names}
    files = []
    for name in PROTOCOL_FILES:
        path = package / name
        for file in path.rglob("*.py") if path.is_dir() else [path]:
            inside = file.relative_to(package)
            is_unused = _is_part(inside) and inside.with_suffix("").as_posix() not in used
            if inside.as_posix() not in others and not is_unused:
                files.append(f"{package.name}/{inside.as_posix()}")
    return manifest(package.parent, files)


def _is_part(inside: Path) -> bool:
    """Whether a file is one part among others, and not what parts share."""
    return inside.parent.name in PART_FOLDERS and not (inside.name.startswith("_") or inside.stem == "base")


def git_state(root: Path) -> tuple[str | None, bool | None]:
    """Commit and whether tracked files differ from it; (None, None) outside a checkout."""
    commit = git(root, "rev-parse", "HEAD")
    if commit is None:
        return None, None
    changes = git(root, "status", "--porcelain", "--untracked-files=no", "--", ".", ":!results")
    return commit.decode().strip(), None if changes is None else bool(changes.strip())


def git(root: Path, *arguments: str) -> bytes | None:
    """What git prints about the repository; None if there is no git, no repository or no answer."""
    command = ["git", "-C", str(root), *arguments]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None


def versions() -> dict[str, str]:
    """Versions of what computes, the sha256 of the lock file, torch's instruction set, and the GPU's name.

    Outside a checkout there is no lock file, and without a GPU no name.
    """
    from importlib import metadata  # here: most that asks for a commit or a digest needs neither

    import torch

    found = {name: metadata.version(name) for name in VERSIONED}
    if is_regular(lock := PACKAGE.parent / LOCK_FILE):
        found[LOCK_FILE] = digest(lock)
    found["cpu"] = torch.backends.cpu.get_cpu_capability()
    with suppress(RuntimeError):  # a driver that does not start is no reason to compute nothing on the CPU
        if torch.cuda.is_available():
            found["gpu"] = torch.cuda.get_device_name()
    return {"python": platform.python_version(), "platform": platform.platform(), **found}


def slurm_job() -> dict[str, str]:
    """The job's ids and node as Slurm gives them; empty elsewhere."""
    names = ("SLURM_JOB_ID", "SLURM_ARRAY_JOB_ID", "SLURM_ARRAY_TASK_ID", "SLURM_RESTART_COUNT")
    return {n: os.environ[n] for n in (*names, "SLURMD_NODENAME") if n in os.environ}


def now() -> str:
    """The time, UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
