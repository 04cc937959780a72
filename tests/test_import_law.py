"""The import law: what each part may know, read from the syntax tree of every file.

Two kinds of rule. A *closed* part imports what is listed and nothing else; closed parts only list other
closed parts, so what they need at run time is known in full. A *blind* part may import what it likes
except what is listed, and neither may anything that it imports from kvexp.

Imports count wherever they stand: inside functions, under TYPE_CHECKING, and as a constant string given
to `import_module`, `__import__`, `run_module` or `run_path`.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("kvexp", "analysis")
BY_NAME = {"import_module", "__import__", "run_module", "run_path"}


class Rule(NamedTuple):
    """One sentence of the law."""

    part: str  # a module, or a package with all that lies in it
    only: frozenset[str] | None = None  # closed: these and the standard library
    never: frozenset[str] = frozenset()  # blind: none of these, directly or through kvexp
    why: str = ""


def closed(part: str, *only: str, why: str) -> Rule:
    return Rule(part, only=frozenset(only), why=why)


def blind(part: str, *never: str, why: str) -> Rule:
    return Rule(part, never=frozenset(never), why=why)


LAW = (
    # `import kvexp.records` runs both of these first, so they must stay empty of imports.
    closed("kvexp.__init__", why="every import of a leaf runs it"),
    closed("kvexp.documents.__init__", why="every import of a leaf runs it"),
    closed("kvexp.errors", why="leaf"),
    closed("kvexp.errors", why="leaf"),
    closed("kvexp.records", "msgspec", why="leaf: a reader of logs needs one small package"),
    closed("kvexp.draws", "numpy", why="leaf: the same uniforms everywhere"),
    closed("kvexp.documents.condition", why="leaf"),
    closed("kvexp.documents.manifest", "kvexp.errors", why="leaf"),
    closed("kvexp.documents.forms", why="leaf"),
    closed("kvexp.documents.forms", "msgspec", "kvexp.records", "kvexp.documents.forms", why="leaf"),
    closed(
        "kvexp.documents.judged_from",
        *("kvexp.errors", "kvexp.documents.manifest"),
        why="leaf",
    ),
    closed(
        "kvexp.documents.seals",
        *("msgspec", "kvexp.errors", "kvexp.records", "kvexp.documents.manifest", "kvexp.documents.forms"),
        "kvexp.documents.forms",
        why="leaf",
    ),
    closed("kvexp.documents.locate", why="leaf"),
    closed("kvexp.documents.source", "kvexp.errors", "kvexp.documents.locate", why="leaf"),
    closed("kvexp.documents.schema", *("msgspec", "kvexp.records", "kvexp.documents.condition"), why="leaf"),
    closed("kvexp.documents.reachable", "kvexp.documents.condition", why="leaf"),
    closed(
        "kvexp.documents.registration",
        *("msgspec", "kvexp.errors", "kvexp.records", "kvexp.documents.condition", "kvexp.documents.locate"),
        *("kvexp.documents.reachable", "kvexp.documents.schema", "kvexp.documents.source"),
        why="leaf",
    ),
    # msgspec comes with kvexp.records anyway; analysis decodes whole logs of its records at once.
    closed(
        "analysis",
        *("analysis", "numpy", "pandas", "matplotlib", "jinja2", "markupsafe", "msgspec"),
        *("kvexp.errors", "kvexp.records", "kvexp.errors"),
        *("kvexp.documents.registration", "kvexp.documents.condition", "kvexp.documents.manifest"),
        *(
            "kvexp.documents.forms",
            "kvexp.documents.seals",
            "kvexp.documents.forms",
            "kvexp.documents.judged_from",
        ),
        "kvexp.documents.source",
        why="a verdict must not depend on the code that made the data",
    ),
    blind("kvexp", "analysis", why="the command line runs `python -m analysis`"),
    blind("kvexp.replay", "kvexp.tasks", "kvexp.records", why="the harness knows no tasks"),
    *(
        blind(
            part,
            *(
                "kvexp.replay",
                "kvexp.records",
                "kvexp.study.compose",
                "kvexp.study.schema",
                "hydra",
                "omegaconf",
                "transformers",
            ),
            why="methods know tensors, not models, logs or configuration",
        )
        for part in ("kvexp.scores", "kvexp.design", "kvexp.estimate")
    ),
)

# The checker -------------------------------------------------------------------------------------


def within(module: str, part: str) -> bool:
    return module == part or module.startswith(part + ".")


def name_of(path: Path, root: Path) -> str:
    """`kvexp/prereg/__init__.py` is `kvexp.documents.__init__`, so that a rule can mean it alone."""
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

    def reach(self, start: str) -> dict[str, str]:
        """Every kvexp module that importing `start` can load, with the way there."""
        ways = {start: start}
        waiting = [start]
        while waiting:
            current = waiting.pop()
            for module, line in self.imports.get(current, ()):
                for name in (module, f"{module}.__init__"):
                    if name in self.names and name not in ways:
                        ways[name] = f"{ways[current]}:{line} -> {name}"
                        waiting.append(name)
        return ways


def violations(root: Path, law: tuple[Rule, ...] = LAW) -> list[str]:
    tree = Tree(root)
    found = []
    for rule in law:
        for module in tree.names:
            if within(module, rule.part):
                found += [f"{broken} [{rule.why}]" for broken in _broken(tree, module, rule)]
    return sorted(found)


def _broken(tree: Tree, module: str, rule: Rule) -> Iterator[str]:
    if rule.only is not None:
        for imported, line in tree.imports[module]:
            if not _allowed(imported, rule.only):
                yield f"{module}:{line} imports {imported}"
        return
    for other, way in sorted(tree.reach(module).items()):
        if other != module and within(other, rule.part):
            continue  # it is judged in its own turn
        for imported, line in tree.imports[other]:
            if any(within(imported, never) for never in rule.never):
                yield f"{way}:{line} imports {imported}"


def _allowed(imported: str, only: frozenset[str]) -> bool:
    if imported.split(".")[0] in sys.stdlib_module_names or imported in ("kvexp", "kvexp.documents"):
        return True  # the two packages themselves are empty, by their own rule
    return any(within(imported, allowed) for allowed in only)


# The law holds -----------------------------------------------------------------------------------


def test_the_law_holds():
    assert not violations(ROOT), "\n".join(violations(ROOT))


def test_every_rule_speaks_of_something():
    """A renamed module must not slip out of the law."""
    names = Tree(ROOT).names
    silent = {rule.part for rule in LAW if not any(within(name, rule.part) for name in names)}
    assert not silent


def test_loading_the_whole_analysis_never_loads_the_harness():
    """Every module of analysis is loaded where torch and its like raise on import."""
    code = """
import importlib, pkgutil, sys
banned = ("torch", "transformers", "hydra", "omegaconf", "submitit", "accelerate")
sys.modules.update(dict.fromkeys(banned))  # None: importing it raises
import analysis
for found in pkgutil.walk_packages(analysis.__path__, "analysis."):
    importlib.import_module(found.name)
leaves = {"condition", "registration", "seal", "forms", "chain", "locate", "reachable", "schema", "source",
          "authorities", "judged"}
kvexp = {name for name in sys.modules if name.startswith("kvexp.")}
print(*sorted(kvexp - {"kvexp.records", "kvexp.errors", "kvexp.documents", "kvexp.errors",
                       *(f"kvexp.documents.{name}" for name in leaves)}))
"""
    run = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert (run.returncode, run.stdout.strip()) == (0, ""), run.stdout + run.stderr


# The checker sees --------------------------------------------------------------------------------


def planted(root: Path, files: dict[str, str]) -> Path:
    for package in (
        "kvexp",
        "kvexp/prereg",
        "kvexp/replay",
        "kvexp/tasks",
        "kvexp/scores",
        "analysis",
    ):
        (root / package).mkdir(parents=True)
        (root / package / "__init__.py").write_text("")
    (root / "kvexp/records.py").write_text("import json\nimport msgspec\n")
    (root / "kvexp/documents/manifest.py").write_text("import hashlib\n")
    for name, text in files.items():
        (root / name).write_text(text)
    return root


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("analysis/load.py", "import torch", "analysis.load:1 imports torch"),
        ("analysis/load.py", "import torch.nn as nn", "analysis.load:1 imports torch.nn"),
        ("analysis/load.py", "def f():\n    from torch import nn", "analysis.load:2 imports torch"),
        ("analysis/load.py", "from kvexp import tasks", "analysis.load:1 imports kvexp.tasks"),
        ("analysis/load.py", "import scipy.stats", "analysis.load:1 imports scipy.stats"),
        ("analysis/load.py", "import kvexp.config", "analysis.load:1 imports kvexp.config"),
        ("analysis/load.py", "from numpyro import x", "analysis.load:1 imports numpyro"),
        (
            "analysis/load.py",
            "import importlib\nimportlib.import_module('torch')",
            "analysis.load:2 imports torch",
        ),
        ("kvexp/cli.py", "import analysis.report", "kvexp.cli:1 imports analysis.report"),
        (
            "kvexp/cli.py",
            "from runpy import run_module\nrun_module('analysis')",
            "kvexp.cli:2 imports analysis",
        ),
        (
            "kvexp/replay/model.py",
            "from ..tasks import x",
            "kvexp.replay.model:1 imports kvexp.tasks",
        ),
        ("kvexp/replay/model.py", "from .. import records", "imports kvexp.records"),
        ("kvexp/scores/new.py", "import transformers", "kvexp.scores.new:1 imports transformers"),
        (
            "kvexp/scores/new.py",
            "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import kvexp.replay",
            "kvexp.scores.new:3 imports kvexp.replay",
        ),
        ("kvexp/records.py", "import numpy", "kvexp.records:1 imports numpy"),
        ("kvexp/documents/manifest.py", "import msgspec", "kvexp.documents.manifest:1 imports msgspec"),
        ("kvexp/documents/manifest.py", "from kvexp import records", "imports kvexp.records"),
        (
            "kvexp/__init__.py",
            "from kvexp import records",
            "kvexp.__init__:1 imports kvexp.records",
        ),
    ],
)
def test_a_planted_violation_is_seen(tmp_path, file, text, said):
    found = violations(planted(tmp_path, {file: text}))
    assert any(said in line for line in found), found


def test_a_detour_through_kvexp_is_seen(tmp_path):
    root = planted(
        tmp_path,
        {
            "kvexp/replay/model.py": "from kvexp import helper\n",
            "kvexp/helper.py": "\nimport kvexp.tasks\n",
        },
    )
    assert [line.split(" [")[0] for line in violations(root)] == [
        "kvexp.replay.model:1 -> kvexp.helper:2 imports kvexp.tasks"
    ]


def test_what_the_law_allows_is_not_reported(tmp_path):
    root = planted(
        tmp_path,
        {
            "analysis/load.py": "import json\nimport numpy as np\nfrom matplotlib import pyplot\n"
            "from kvexp import __version__, records\nfrom kvexp.prereg.seal import x\n"
            "from . import tables\nfrom .tables import y\n",
            "analysis/tables.py": "import pandas",
            "kvexp/replay/model.py": "import torch, transformers\nfrom ..scores import z\n",
            "kvexp/cli.py": "import kvexp.replay.model, kvexp.tasks, kvexp.records, hydra\n",
        },
    )
    assert violations(root) == []
