"""How to get the verdict by a seal that was amended: by its registration and its code, on the same logs."""

import shlex
from collections.abc import Iterator

from analysis.sealed.amendments import CLAIMS, Step
from analysis.sealed.seals import SHORT, Seal
from kvexp.prereg.chain import Seals, chain
from kvexp.prereg.seal import Manifest, home_prefix


def commands(step: Step, study: str, seal: Seal, parent: Seal | None) -> Iterator[str]:
    """Lines to type at the root of a clone, uncut; or why there are none.

    Args:
        step: whose seal before it is wanted.
        study: name of the results folder.
        seal: the one that stands.
        parent: of the registration that it is an addendum to.
    """
    words = f"     the verdict by seal {step.stated.replaces[:SHORT]}"
    above = None if parent is None else _above(step.before, parent)
    if step.commit is None:
        yield f"{words}: no command, the seal names no commit (files had changes when it was made)"
    elif parent is not None and above is None:
        yield f"{words}: no command, no seal of its parent was made by the same code"
    else:
        yield f"{words}, PREVIEW because no lock is of it; at the root of a clone:"
        yield from (f"       {line}" for line in _lines(step, study, seal, above))


def _lines(step: Step, study: str, seal: Seal, above: tuple[Seals, str] | None) -> Iterator[str]:
    before, name = step.before, step.stated.registration
    prefix = home_prefix(before.read_manifest(), name)
    there = f"../{study}-before-{step.name}"
    results, home = f"results/{study}", f"{there}/{prefix}"
    yield _typed("git", "worktree", "add", there, str(step.commit))
    yield _typed("rm", "-rf", f"{there}/{results}")
    yield _typed("mkdir", "-p", f"{there}/results")
    yield _typed("cp", "-r", results, f"{there}/results/")
    yield _typed("rm", "-rf", f"{there}/{results}/locks", f"{home}/seals", f"{home}/amendments")
    yield _typed("mkdir", "-p", f"{home}/seals", f"{home}/amendments")
    for number in range(1, step.stated.number):
        yield _typed("cp", "-r", f"{seal.where}/amendments/{name}-{number}", f"{home}/amendments/")
    for one, where in ((before, f"{seal.where}/amendments/{step.name}"), *([above] if above else [])):
        yield f"cp {shlex.quote(where)}/{one.id}.* {shlex.quote(f'{home}/seals/')}"
        yield _typed("cp", f"{where}/{one.id}.toml", f"{home}/")
    yield f"(cd {shlex.quote(there)} && python -m analysis {shlex.quote(results)})"


def _above(before: Seals, parent: Seal) -> tuple[Seals, str] | None:
    """The seal of the parent that was made by the same code, and its folder."""
    first, code = chain(parent.home, parent.name)[0], _code(before.read_manifest())
    if _code(first.read_manifest()) != code:
        return None
    return first, f"{parent.where}/{first.folder.relative_to(parent.home).as_posix()}"


def _code(sealed: Manifest) -> dict[str, str]:
    return {
        path: digest
        for path, digest in sealed.files.items()
        if not path.startswith((CLAIMS, "preregistration/", "results/"))
    }


def _typed(*words: str) -> str:
    return shlex.join(words)
