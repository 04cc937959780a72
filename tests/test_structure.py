"""The structure of the code: which part may import which, no circles, and how large parts may be.

Imports count wherever they stand: inside functions, under TYPE_CHECKING, and as a constant string given to
`import_module`, `__import__`, `run_module` or `run_path`.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kvexp", "analysis")
BY_NAME = {"import_module", "__import__", "run_module", "run_path"}

# Lower parts first. A part imports parts above its line in this table, and never one below it.
ORDER = (
    "kvexp.errors",
    "kvexp.files",
    "kvexp.records",
    "kvexp.draws",
    "kvexp.scoring",
    "kvexp.estimate",
    "kvexp.scores",
    "kvexp.design",
    "kvexp.tasks",
    "kvexp.replay",
    "kvexp.documents",
    "kvexp.study",
    "kvexp.models",
    "kvexp.run",
    "kvexp.ceremony",
    "kvexp.slurm",
    "kvexp.verbs",
    "kvexp.cli",
    "analysis.core",
    "analysis.claims",
    "analysis.describe",
    "analysis.render",
    "analysis.__main__",
)
# What a part imports beside the standard library and itself, in full: nothing else reaches it.
CLOSED = {
    "kvexp.errors": (),
    "kvexp.files": ("kvexp.errors",),
    "kvexp.records": ("kvexp.errors", "msgspec"),
    "kvexp.draws": ("numpy",),
    "kvexp.documents": ("kvexp.errors", "kvexp.files", "kvexp.records", "msgspec"),
    "kvexp.scores": ("kvexp.errors", "torch"),
    "kvexp.design": ("kvexp.errors", "torch"),
    "kvexp.estimate": ("torch",),
    "analysis.core": (
        *("kvexp.documents", "kvexp.records", "kvexp.errors", "kvexp.files"),
        *("numpy", "pandas", "msgspec"),
    ),
    "analysis.claims": ("analysis.core",),
}
# What a part never imports, directly or through kvexp, and why.
NEVER = {
    "kvexp": (("analysis",), "the command line runs `python -m analysis`"),
    "kvexp.replay": (("kvexp.tasks", "kvexp.records"), "the harness knows no tasks and no files"),
    "analysis": (("torch", "transformers", "hydra", "submitit", "kvexp.run"), "logs are all it reads"),
}
# These limits only ever come down: 31,000 lines, 215 files and a core of 6,500 lines are wanted.
MOST_LINES = 36_036  # of Python in kvexp, analysis and scripts
MOST_FILES = 240
MOST_CORE_LINES = 7_187  # of what every seal covers
MOST_LINES_OF_A_FILE = 500
MOST_ROOT_MODULES = 8
CORE = (
    "analysis/__init__.py",
    "analysis/__main__.py",
    "analysis/core",
    "kvexp/__init__.py",
    "kvexp/documents",
    "kvexp/errors.py",
    "kvexp/files.py",
    "kvexp/records.py",
)

# The checker -------------------------------------------------------------------------------------


def within(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


def name_of(path: Path, root: Path) -> str:
    """`kvexp/study/__init__.py` is `kvexp.study.__init__`."""
    return ".".join(path.relative_to(root).with_suffix("").parts)


class Tree:
    """The modules below `root` and what each imports."""

    def __init__(self, root: Path) -> None:
        files = [path for package in PACKAGES for path in sorted((root / package).rglob("*.py"))]
        self.names = {name_of(path, root) for path in files}
        self.imports = {name_of(path, root): sorted(self._imports(path, root)) for path in files}

    def _imports(self, path: Path, root: Path) -> set[tuple[str, int]]:
        tree = ast.parse(path.read_bytes(), filename=str(path))
        package = name_of(path, root).split(".")[:-1]
        return {(module, line) for node in ast.walk(tree) for module, line in self._named(node, package)}

    def _named(self, node: ast.AST, package: list[str]) -> Iterator[tuple[str, int]]:
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*above, *([node.module] if node.module else [])])
            for alias in node.names:
                yield self._module(source, alias.name), node.lineno
        elif isinstance(node, ast.Call) and node.args:
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            if name in BY_NAME and isinstance(node.args[0], ast.Constant):
                yield str(node.args[0].value), node.lineno

    def _module(self, source: str, name: str) -> str:
        """`from a import b` means the module a.b where there is one, else something in a."""
        inner = f"{source}.{name}"
        return inner if inner in self.names or f"{inner}.__init__" in self.names else source

    def files_of(self, module: str) -> list[str]:
        """The module and, for a package, its `__init__`, as far as they are files of the tree."""
        return [name for name in (module, f"{module}.__init__") if name in self.names]

    def ways(self, start: str) -> dict[str, str]:
        """Every module that importing `start` can load, with the way there."""
        found = {start: start}
        waiting = [start]
        while waiting:
            current = waiting.pop()
            for module, line in self.imports[current]:
                for name in self.files_of(module):
                    if name not in found:
                        found[name] = f"{found[current]}:{line} -> {name}"
                        waiting.append(name)
        return found


def level(module: str) -> int | None:
    """The place of a module in the order; None outside it."""
    places = [i for i, part in enumerate(ORDER) if within(module, part)]
    return places[0] if places else None


def upward(tree: Tree) -> Iterator[str]:
    """Imports of a higher part by a lower one."""
    for module, imports in tree.imports.items():
        own = level(module)
        for imported, line in imports:
            other = level(imported)
            if own is not None and other is not None and other > own:
                yield f"{module}:{line} imports {imported}, which is higher"


def outside(tree: Tree) -> Iterator[str]:
    """Imports that a closed part does not list."""
    for part, listed in CLOSED.items():
        for module in (name for name in tree.names if within(name, part)):
            for imported, line in tree.imports[module]:
                is_python = imported.split(".")[0] in sys.stdlib_module_names
                allowed = (part, "kvexp.__init__", "analysis.__init__", *listed)
                is_root = imported in ("kvexp", "analysis")  # the two `__init__` are empty
                if not is_python and not is_root and not any(within(imported, one) for one in allowed):
                    yield f"{module}:{line} imports {imported}"


def forbidden(tree: Tree) -> Iterator[str]:
    """Ways from a part to what it must never load."""
    for part, (never, why) in NEVER.items():
        for module in sorted(name for name in tree.names if within(name, part)):
            for other, way in sorted(tree.ways(module).items()):
                if other != module and within(other, part):
                    continue  # it is judged in its own turn
                for imported, line in tree.imports[other]:
                    if any(within(imported, one) for one in never):
                        yield f"{way}:{line} imports {imported} [{why}]"


def circles(tree: Tree) -> Iterator[str]:
    """Modules that import themselves by a detour."""
    for module in sorted(tree.names):
        for imported, _ in tree.imports[module]:
            for other in tree.files_of(imported):
                if other != module and module in (ways := tree.ways(other)):
                    yield f"{module} -> {ways[module]}"


def violations(root: Path) -> list[str]:
    tree = Tree(root)
    return [*upward(tree), *outside(tree), *forbidden(tree), *circles(tree)]


# It holds ----------------------------------------------------------------------------------------


def test_imports_go_down_and_never_in_circles():
    assert not violations(ROOT), "\n".join(violations(ROOT))


def test_every_module_has_its_place_in_the_order():
    """A new package must not slip out of the order, nor a renamed one."""
    names = Tree(ROOT).names
    assert [name for name in names if level(name) is None and name.count(".") > 1] == []
    roots = {name for name in names if name.count(".") == 1 and not name.endswith("__init__")}
    assert [name for name in roots if level(name) is None] == []
    assert [part for part in ORDER if not any(within(name, part) for name in names)] == []


def sources() -> list[Path]:
    return [p for name in ("kvexp", "analysis", "scripts") for p in sorted((ROOT / name).rglob("*.py"))]


def lines_of(paths) -> int:
    return sum(path.read_bytes().count(b"\n") for path in paths)


def test_the_house_stays_small():
    large = [str(p) for p in sources() if lines_of([p]) > MOST_LINES_OF_A_FILE]
    assert large == []
    assert lines_of(sources()) <= MOST_LINES
    assert len(sources()) <= MOST_FILES
    roots = [path for path in (ROOT / "kvexp").glob("*.py") if path.stem != "__init__"]
    assert len(roots) <= MOST_ROOT_MODULES


def test_the_core_stays_readable():
    paths = [ROOT / name for name in CORE]
    files = [file for path in paths for file in (path.rglob("*.py") if path.is_dir() else [path])]
    assert lines_of(files) <= MOST_CORE_LINES


def test_every_file_says_what_is_in_it():
    silent = []
    for path in sources():
        said = ast.get_docstring(ast.parse(path.read_bytes())) or ""
        if not said.splitlines() or not said.splitlines()[0].endswith((".", "?", ":")):
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


def test_loading_the_whole_analysis_never_loads_the_harness():
    """Every module of analysis is loaded where torch and its like raise on import."""
    code = """
import importlib, pkgutil, sys
banned = ("torch", "transformers", "hydra", "omegaconf", "submitit", "accelerate")
sys.modules.update(dict.fromkeys(banned))  # None: importing it raises
import analysis
for found in pkgutil.walk_packages(analysis.__path__, "analysis."):
    importlib.import_module(found.name)
print(*sorted(name for name in sys.modules if name.startswith("kvexp.")))
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    parts = {".".join(name.split(".")[:2]) for name in run.stdout.split()}
    assert parts <= {"kvexp.documents", "kvexp.errors", "kvexp.files", "kvexp.records"}


# The checker sees --------------------------------------------------------------------------------


def planted(root: Path, files: dict[str, str]) -> Path:
    for package in (*PACKAGES, "analysis/core", "analysis/render"):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
    for name in ("documents", "replay", "tasks", "scores", "study"):
        (root / "kvexp" / name).mkdir()
        (root / "kvexp" / name / "__init__.py").write_text("")
    (root / "kvexp/records.py").write_text("import json\nimport msgspec\n")
    for name, text in files.items():
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("analysis/core/load.py", "import torch", "analysis.core.load:1 imports torch"),
        ("analysis/core/load.py", "import torch.nn as nn", "analysis.core.load:1 imports torch.nn"),
        ("analysis/core/load.py", "def f():\n    from torch import nn", "analysis.core.load:2 imports torch"),
        ("analysis/core/load.py", "from kvexp import tasks", "analysis.core.load:1 imports kvexp.tasks"),
        ("analysis/core/load.py", "import scipy.stats", "analysis.core.load:1 imports scipy.stats"),
        ("analysis/core/load.py", "from numpyro import x", "analysis.core.load:1 imports numpyro"),
        ("analysis/core/load.py", "import analysis.render", "analysis.core.load:1 imports analysis.render"),
        ("analysis/render/html.py", "import torch", "analysis.render.html:1 imports torch"),
        (
            "analysis/core/load.py",
            "import importlib\nimportlib.import_module('torch')",
            "analysis.core.load:2 imports torch",
        ),
        ("kvexp/study/grid.py", "import analysis.core", "kvexp.study.grid:1 imports analysis.core"),
        (
            "kvexp/study/grid.py",
            "from runpy import run_module\nrun_module('analysis')",
            "kvexp.study.grid:2 imports analysis",
        ),
        ("kvexp/replay/model.py", "from ..tasks import x", "kvexp.replay.model:1 imports kvexp.tasks"),
        ("kvexp/replay/model.py", "from .. import records", "imports kvexp.records"),
        ("kvexp/replay/model.py", "from kvexp import study", "imports kvexp.study, which is higher"),
        ("kvexp/scores/new.py", "import transformers", "kvexp.scores.new:1 imports transformers"),
        (
            "kvexp/scores/new.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kvexp.replay",
            "kvexp.scores.new:3 imports kvexp.replay",
        ),
        ("kvexp/records.py", "import numpy", "kvexp.records:1 imports numpy"),
        ("kvexp/documents/seals.py", "import pandas", "kvexp.documents.seals:1 imports pandas"),
    ],
)
def test_a_planted_violation_is_seen(tmp_path, file, text, said):
    found = violations(planted(tmp_path, {file: text}))
    assert any(said in line for line in found), found


def test_a_detour_is_seen(tmp_path):
    files = {
        "kvexp/study/grid.py": "\nimport kvexp.helper\n",
        "kvexp/helper.py": "import analysis\n",
    }
    found = violations(planted(tmp_path, files))
    assert any("kvexp.study.grid:2 -> kvexp.helper:1 imports analysis" in line for line in found) or any(
        "kvexp.helper:1 imports analysis" in line for line in found
    )


def test_a_circle_is_seen(tmp_path):
    files = {
        "kvexp/study/one.py": "import kvexp.study.two\n",
        "kvexp/study/two.py": "from kvexp.study import three\n",
        "kvexp/study/three.py": "def f():\n    from kvexp.study.one import x\n",
    }
    [*found] = circles(Tree(planted(tmp_path, files)))
    assert len(found) == 3
    assert "kvexp.study.one -> kvexp.study.two:1 -> kvexp.study.three:2 -> kvexp.study.one" in found


def test_what_is_allowed_is_not_reported(tmp_path):
    files = {
        "analysis/core/load.py": "import json\nimport numpy as np\nfrom kvexp import __version__, records\n"
        "from . import tables\nfrom .tables import y\n",
        "analysis/core/tables.py": "import pandas",
        "kvexp/replay/model.py": "import torch, transformers\nfrom ..scores import z\n",
        "kvexp/study/grid.py": "import kvexp.replay.model, kvexp.tasks, kvexp.records, hydra\n",
    }
    assert violations(planted(tmp_path, files)) == []
