"""`python -m analysis results/<study>`: the sealed core decides, then what describes is called."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from analysis.core import run
from analysis.core.verdicts import Report


def main(arguments: Sequence[str] | None = None) -> int:
    """Decide, then describe; the exit code."""
    return run.main(_describe, _restore, arguments)


def _describe(report: Report, out: Path | None) -> str:
    """Imported here, when the verdicts are written, and not before: no seal covers what describes."""
    if find_spec("analysis.render") is None:  # the sealed code alone, as `kvexp lock` copies it
        return "Nothing is described: the code that describes is not here.\n"
    from analysis.render.files import write_description

    return write_description(report, out)


def _restore(repository: Path, results: Path, homes: list[Path], arguments: list[str]) -> int:
    """Imported for --as-sealed alone: it decides nothing."""
    from kvexp.ceremony.sealed_tree import judge

    return judge(repository, results, homes, arguments)


if __name__ == "__main__":
    raise SystemExit(main())
