"""A headless Chromium of this machine, pages that it must show in peace, and studies to show."""

import contextlib
import io
import os
import random
import shutil
from pathlib import Path

import msgspec
import pytest

from analysis import __main__ as analysis
from analysis.core.evidence import KnownEvidence
from analysis.render import __main__ as answers
from tests import hostile, planted

ROOT = Path(__file__).resolve().parents[2]
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
QUIET = ("--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync")


@pytest.fixture(scope="session")
def chromium():
    """One browser for all tests; they are skipped where there is none."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is missing: make install")
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip(f"none of {', '.join(BROWSERS)} is installed (Debian: apt-get install chromium)")
    # As root the sandbox has nothing to stand on.
    arguments = [*QUIET, *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=arguments)
        yield browser
        browser.close()


@pytest.fixture
def show(chromium):
    """A function that opens a file. In the end no page has said, loaded or opened anything, or run harm."""
    opened = []

    def call(path, fragment="", **options):
        context = chromium.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
        page = context.new_page()
        seen = []
        page.on("console", lambda message: seen.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: seen.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (seen.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("popup", lambda popup: seen.append(f"popup: {popup.url}"))
        page.on(
            "request", lambda request: seen.append(f"request: {request.url}") if not is_own(request) else None
        )
        own = path.resolve().as_uri()

        def is_own(request):
            return request.url.split("#")[0] == own

        page.goto(own + fragment)
        opened.append((page, seen, context))
        return page

    yield call
    for page, seen, context in opened:
        assert seen == []
        assert page.evaluate("window.pwned === undefined")
        context.close()


@pytest.fixture(scope="session")
def few_draws(tmp_path_factory):
    """R and S of `embedded` with few draws."""
    return planted.few_draws(tmp_path_factory.mktemp("registrations"), "embedded", "[RS].toml")


@pytest.fixture(scope="session")
def harmful(few_draws, tmp_path_factory):
    """Both pages of a study whose every text means harm."""
    results, home = hostile.folder(tmp_path_factory.mktemp("harm"), few_draws)
    with pytest.MonkeyPatch.context() as patch:
        found = KnownEvidence(hostile.evidence(["R", "S"]))
        patch.setattr("analysis.core.open.read_evidence", lambda *_: found)
        return pages_of(results, results, "--registration", str(home))


@pytest.fixture(scope="session")
def embedded(tmp_path_factory):
    """Both pages of the reference run."""
    return pages_of(ROOT / "results" / "embedded", tmp_path_factory.mktemp("embedded"), "--anew")


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    """The page of answers of a study of the paper's size, with texts that differ; and how many there are."""
    grid = planted.paper(examples=130)
    results = planted.write(tmp_path_factory.mktemp("many") / "paper", grid, planted.forgetful)
    for log in sorted(results.glob("*/*/generations.jsonl")):
        rows = msgspec.json.Decoder(planted.Generation).decode_lines(log.read_bytes())
        told = [msgspec.structs.replace(row, text=prose(row, at)) for at, row in enumerate(rows)]
        log.write_bytes(planted.lines(told))
        planted.close(log.parent)
    with contextlib.redirect_stdout(io.StringIO()):
        assert answers.main([str(results)]) == 0
    return results / "generations.html", len(grid)


def prose(row, at):
    """Two to thirty words, of hardly any two rows the same; one answer in 997 speaks of an albatross."""
    words = (
        "the captain of a grey ship kept cats below deck when storms came and nobody spoke of Paris".split()
    )
    told = random.Random(repr(row.key)).choices(words, k=2 + at % 29)
    return " ".join([*told, *(["Albatross"] if at % 997 == 0 else [])])


def pages_of(results, out, *more):
    """The folder with report.html and generations.html."""
    with contextlib.redirect_stdout(io.StringIO()):
        for each in (answers, analysis):
            assert each.main([str(results), "--out", str(out), *more]) == 0
    return out
