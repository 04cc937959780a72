"""What the benchmarks take on the command line: what cannot be is a sentence, before anything is measured."""

import argparse
from pathlib import Path

import torch


def positive(text: str) -> int:
    """A whole number, at least 1."""
    if not (text.isascii() and text.isdecimal() and int(text) >= 1):
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number of at least 1")
    return int(text)


def positives(text: str) -> tuple[int, ...]:
    """Some of them, with commas between."""
    return tuple(positive(part) for part in text.split(","))


def device(text: str) -> str:
    """A device of torch that can compute here."""
    try:
        torch.ones(1, device=text).sum().item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        words = str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
        raise argparse.ArgumentTypeError(f"torch has no device {text!r} here: {words}") from None
    return text


def new_file(text: str) -> Path:
    """A file whose folder is there."""
    path = Path(text)
    if not path.parent.is_dir():
        raise argparse.ArgumentTypeError(f"there is no folder {path.parent}")
    return path
