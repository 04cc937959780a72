"""`python -m analysis results/<study>`: the sealed core decides, then what describes is called."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from analysis.core import run
from analysis.core.verdicts import Report
from kvexp.documents.forms import LOOKS
from kvexp.files import digest, write_whole


def main(arguments: Sequence[str] | None = None) -> int:
    """Decide, then describe; the exit code."""
    return run.main(_describe, _as_sealed, arguments)


def _describe(report: Report, out: Path | None) -> str:
    """Imported here, when the verdicts are written, and not before: no seal covers what describes."""
    if find_spec("analysis.render") is None:  # the sealed code alone, as `kvexp lock` copies it
        return "Nothing is described: the code that describes is not here.\n"
    from analysis.render.files import write_description

    return write_description(report, out)


def _as_sealed(repository: Path, results: Path, homes: list[Path], arguments: list[str]) -> int:
    """The exit code of the sealed code, which runs in a folder of its own; the code here decides nothing."""
    from kvexp.ceremony import sealed_tree

    with sealed_tree.restored(repository, results, homes) as tree:
        code = sealed_tree.run(tree, "analysis", arguments)
        look = tree / arguments[0] / LOOKS
        if look.is_file() and digest(look) != digest(results / LOOKS):
            write_whole(results / LOOKS, look.read_bytes())
    return code


if __name__ == "__main__":
    raise SystemExit(main())
