"""report.html as text: sound HTML, escaped, nothing loaded, all that was decided, the same bytes."""

import base64
import contextlib
import hashlib
import io
import re
import shutil
from html.parser import HTMLParser

import pytest

from analysis import __main__ as cli
from analysis.core.evidence import KnownEvidence
from analysis.describe import two_draws
from analysis.describe.parts import Part, Picture
from analysis.describe.table import Column, Table
from analysis.render.html import anchor
from analysis.render.page_figures import inline
from kvexp import records
from kvexp.documents.forms import Check
from kvexp.documents.manifest import read_manifest
from tests import hostile
from tests.analysis import sealing
from tests.analysis.test_evidence import evidence
from tests.planted import SHORT

VOID = set("area base br col embed hr img input link meta source track wbr".split())
DRAWN = set("svg g defs path rect circle line text tspan use clipPath symbol title desc".split())
KNOWN = DRAWN | set(
    "html head meta title style body a header p h1 h2 h3 h4 span ul li nav details summary main section div "
    "table caption thead tbody tr th td code strong dl dt dd script figure figcaption".split()
)
NUMBER = re.compile(r"\d\.\d{3}")


TABLE = Table(
    "odd", "<b>Odd</b>", (Column("a", "<i>a</i>"), Column("b", "b", "share")), (("<u>", 0.5), ("x", None))
)
SVG = (
    '<?xml version="1.0"?><svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" '
    'xmlns:x="http://x" width="9pt" viewBox="0 0 9 9" onload="window.pwned=1"><style>*{}</style>'
    "<script>1</script>"
    '<defs><path id="p" d="M0 0"/></defs><use xlink:href="#p" clip-path="url(#p)" x:y="1"/>'
    '<use xlink:href="http://elsewhere/x#p"/><image href="data:x"/>'
    "<foreignObject><text>no</text></foreignObject>"
    '<a href="javascript:1"><text>no</text></a>'
    '<text style="fill:url(http://elsewhere)">one &lt; two</text></svg>'
)


class Page(HTMLParser):
    """A page, read strictly: every element is closed by its own tag."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.words = [], [], {}
        self.sources = {"script": [], "style": []}
        self.declared = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_decl(self, decl):
        self.declared.append(decl)

    def handle_starttag(self, tag, attributes):
        names = [name for name, _ in attributes]
        assert len(names) == len(set(names)), (tag, names)
        self.elements.append((tag, dict(attributes), [name for name, *_ in self.open]))
        if tag not in VOID:
            self.open.append((tag, len(self.elements) - 1))

    def handle_startendtag(self, tag, attributes):
        self.handle_starttag(tag, attributes)
        if tag not in VOID:
            self.handle_endtag(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop()[0] == tag
        if tag in ("td", "th", "dd", "dt", "li"):
            self.handle_data(" ")

    def handle_data(self, data):
        for tag, at in self.open:
            if tag in self.sources:
                self.sources[tag].append(data)
            self.words[at] = self.words.get(at, "") + data

    def texts(self, tag, **wanted):
        """Text of every such element, on one line."""
        return [
            " ".join(self.words.get(at, "").split())
            for at, (name, attributes, _) in enumerate(self.elements)
            if name == tag and all(attributes.get(key) == value for key, value in wanted.items())
        ]


def assert_sound(text):
    """What holds for every page: sound, inert, self-contained, readable aloud."""
    page = Page(text)
    assert page.declared == ["DOCTYPE html"]
    assert {tag for tag, *_ in page.elements} <= {name.lower() for name in KNOWN}
    ids = [attributes["id"] for _, attributes, _ in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    for tag, attributes, above in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "srcdoc"], (
            tag,
            attributes,
        )
        for name in ("href", "xlink:href", "src", "action", "data"):
            target = attributes.get(name, "")
            assert not re.match(r"\s*(\w+:|//)", target), target
            if target.startswith("#"):
                assert target[1:] in ids
        for name in ("aria-labelledby", "aria-label", "aria-hidden"):
            for one in attributes.get(name, "").split() if name == "aria-labelledby" else ():
                assert one in ids
        if tag == "th":
            assert attributes["scope"] in ("col", "row")
        if tag == "section" and "h1" not in above:
            assert attributes.get("aria-labelledby") or attributes.get("aria-label")
    assert page.elements[0] == ("html", {"lang": "en"}, [])
    assert len(page.texts("h1")) == len(page.texts("main")) == len(page.texts("header")) == 1
    assert len(page.texts("caption")) == len(page.texts("table"))
    assert all(page.texts("caption"))
    (policy,) = [
        a["content"] for t, a, _ in page.elements if a.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy.startswith("default-src 'none';")
    assert "unsafe-eval" not in policy
    assert "http" not in policy
    (script,) = page.sources["script"]
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "url(" not in re.sub(r"url\(#[\w.-]+\)", "", text)
    assert "@import" not in text
    return page


@pytest.fixture(scope="module")
def few(quick, tmp_path_factory):
    """R with two of its claims."""
    folder = tmp_path_factory.mktemp("few")
    head, *claims = re.split(r"\n(?=\[claim\.R\d\]\n)", (quick / "R.toml").read_text())
    kept = [claim for claim in claims if claim.startswith(("[claim.R1]", "[claim.R3]"))]
    text = "\n".join([head, *kept])
    (folder / "R.toml").write_text(re.sub(r'(?m)^"(embedded-2k|both suites)" = .*\n', "", text))
    return folder


@pytest.fixture(scope="module")
def harmful(few, tmp_path_factory):
    """A hostile study, analysed."""
    results, home = hostile.folder(tmp_path_factory.mktemp("harm"), few)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("analysis.core.open.read_evidence", lambda *_: KnownEvidence(hostile.evidence(["R"])))
        assert cli.main([str(results), "--registration", str(home)]) == 0
    return results, home


def part(scope):
    """What somebody had a look at afterwards."""
    pictures = (
        Picture("drawn", "Drawn & titled", "It supports <nothing>.", SVG),
        Picture("absent", "Absent", "It would support.", None, "rows are missing"),
    )
    yield Part("odd", "<Odd> part", "Looked at <afterwards>.", (TABLE,), pictures, is_posthoc=True)


@pytest.fixture(scope="module")
def usual(few, template, tmp_path_factory):
    """A complete study with a post hoc part, analysed: folder, page, its text, what was printed."""
    folder = shutil.copytree(template, tmp_path_factory.mktemp("usual") / "embedded")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(printed):
        patch.setattr(two_draws, "describe", part)
        assert cli.main([str(folder), "--registration", str(few)]) == 0
    text = (folder / "report.html").read_text()
    return folder, assert_sound(text), text, printed.getvalue()


@pytest.fixture
def run(few, capsys):
    """A function that analyses a folder and returns the report, read, and its text."""

    def call(folder, registration=few, code=0):
        assert cli.main([str(folder), "--registration", str(registration)]) == code
        assert "description failed" not in capsys.readouterr().err
        text = (folder / "report.html").read_text()
        return assert_sound(text), text

    return call


def test_hostile_text_is_text(harmful):
    results, _ = harmful
    text = (results / "report.html").read_text()
    page = assert_sound(text)
    told = " ".join(hostile.HARM)
    assert page.texts("td", **{"class": "says"}) == [" ".join(told.split())] * 2
    assert [" ".join(told.split())] == [
        words for words in page.texts("li") if words == " ".join(told.split())
    ]
    assert hostile.NAME in page.texts("h1")[0]
    assert page.texts("title")[0].startswith(f"{hostile.NAME}, PREVIEW, UNWITNESSED")
    assert not re.search("[\u2028\u2029\u202e\u200b\ufeff\x00\x1b]", text)


def test_the_same_logs_give_the_same_bytes(harmful, tmp_path, monkeypatch):
    results, home = harmful
    monkeypatch.setattr("analysis.core.open.read_evidence", lambda *_: KnownEvidence(hostile.evidence(["R"])))
    other = tmp_path / "elsewhere"
    assert cli.main([str(results), "--registration", str(home), "--out", str(other)]) == 0
    assert (other / "report.html").read_bytes() == (results / "report.html").read_bytes()


def test_every_verdict_stands_first_with_its_word_icon_and_numbers(usual):
    _, page, text, out = usual
    rows = re.findall(r'<tr[^>]*>\n<th[^>]*><a href="#claim.*?</tr>', text, re.DOTALL)
    printed = dict(line.split(maxsplit=1) for line in out.splitlines() if re.match(r"R\d +PREVIEW", line))
    assert len(rows) == len(printed) == 2
    for row in rows:
        words = " ".join(re.sub(r"<[^>]+>", " ", row).split())
        name, mark, *_ = words.split()
        assert mark == "PREVIEW"
        assert f" {printed[name].split()[1].replace('_', ' ')} " in words
        assert NUMBER.search(words)
        assert "of 20" in words
    assert text.index('id="verdicts"') < text.index('id="evidence"') < text.index('id="claims"')
    assert text.count('<use href="#icon-') == 4
    # What the text says of the study stands in the title too.
    assert "UNWITNESSED" in out.splitlines()[0]
    assert page.texts("span", **{"class": "mark"}) == ["PREVIEW", "UNWITNESSED"]
    assert "1,512 of 1,512 generations" in page.texts("header")[0]
    assert "a pilot on seed 9000" in text


def test_populations_are_counted(usual):
    """Against the logs, row by row."""
    folder, page, *_ = usual
    rows = [
        records.Reader(records.Generation)(line)
        for log in folder.glob(f"{SHORT}/*/generations.jsonl")
        for line in log.read_bytes().splitlines()
    ]
    main = [row for row in rows if row.task in ("words", "facts")]
    succeeded = {row.key: row.score_value >= (0.5 if row.task == "facts" else 1) for row in main}
    full = {row.key[:4]: succeeded[row.key] for row in main if row.arm == "full"}
    answered = [row for row in main if row.arm == "poisson" and full[row.key[:4]]]
    wrong = [row for row in answered if not succeeded[row.key]]
    poisson = [row for row in main if row.arm == "poisson"]
    clusters = len({(row.task, row.example_id) for row in answered})
    counts = (len(poisson) + len(full), len(poisson) + len(full), len(answered), len(wrong), clusters)
    (table,) = [words for words in page.texts("table") if words.startswith("R3: population")]
    assert table.split(SHORT)[1].split() == [f"{count:,}" for count in counts]


def test_what_is_missing_is_named_and_no_number_stands_for_it(run, whole):
    shutil.rmtree(whole / SHORT / f"{SHORT}.smollm2-135m.words.000")
    page, text = run(whole, code=3)
    section = text[text.index('<section class="claim" id="claim-R1"') : text.index('id="claim-R3"')]
    assert "INCOMPLETE" in section
    assert f"kvexp submit study=embedded suite={SHORT}" in section
    assert f"{SHORT}.smollm2-135m.words.000" in section
    assert not NUMBER.search(re.sub(r"<code>.*?</code>", "", section))
    (table,) = [words for words in page.texts("table") if words.startswith("R1: population")]
    assert table.endswith(f"{SHORT} 192 96 - - -")


def test_contradictions_are_listed(run, whole):
    log = next(whole.glob(f"{SHORT}/*words.000/generations.jsonl"))
    log.write_bytes(log.read_bytes().replace(b"planted", b"changed", 1))
    page, _ = run(whole, code=4)
    assert "INTEGRITY" in page.texts("span", **{"class": "mark"})
    assert any("its sha256 is not the one in footer.json" in words for words in page.texts("li"))
    assert any(words.endswith("INVALID") for words in page.texts("span", **{"class": "state"}))


@pytest.mark.slow
def test_a_sealed_and_witnessed_study_carries_no_mark_and_shows_its_evidence(run, locked, home):
    checks = [
        Check(name="clock", holds=None, words="the clocks agree"),
        Check(name="a", holds=True, words="b"),
    ]
    evidence(locked, checks=checks)
    page, text = run(locked, registration=home)
    assert page.texts("span", **{"class": "mark"}) == []
    assert "PREVIEW" not in text
    assert "open: clock: the clocks agree" in page.texts("li")
    assert "holds: a: b" in page.texts("li")
    seal = read_manifest(home / "seals" / "R.sha256").digest[:12]
    (table,) = [words for words in page.texts("table") if words.startswith("Seals")]
    assert f"R {seal} 2026-11-01T10:00:00Z by CN=A public authority (digicert, serial c0de)" in table


def test_an_amendment_is_a_mark_and_says_why(run, whole, few, tmp_path):
    home = shutil.copytree(few, tmp_path / "home")
    sealing.put_under(whole, [SHORT], sealing.seal(whole, home, "R"))
    sealing.amend(whole, home, "R")
    page, text = run(whole, registration=home)
    assert page.texts("span", **{"class": "mark"}) == ["PREVIEW", "UNWITNESSED", "AMENDED AFTER DATA"]
    facts = dict(zip(page.texts("dt"), page.texts("dd"), strict=True))
    assert (facts["why"], facts["data seen"]) == ("a wrong constant", "the verdicts")
    assert facts["stage"].startswith("amended after data, 3 attempts")
    assert "changed analysis/core/decide.py" in facts["files"]
    assert "git worktree add" in text
    assert "suite embedded-1k is not locked" in text


def test_a_blind_run_says_so_and_says_no_verdict(whole, tmp_path, few, capsys):
    out = tmp_path / "blind"
    code = cli.main([str(whole), "--registration", str(few), "--blind", "--out", str(out)])
    assert (code, capsys.readouterr().err) == (0, "")
    page = assert_sound((out / "report.html").read_text())
    assert page.texts("span", **{"class": "mark"}) == ["BLIND", "UNWITNESSED"]
    assert set(page.texts("span", **{"class": "state"})) == {"BLIND"}
    assert not any(words.endswith(("KILLED", "SURVIVED")) for words in page.texts("span"))


def test_post_hoc_parts_stand_apart_and_a_picture_without_rows_says_why(usual):
    folder, _, text, _ = usual
    section = text[text.index('<section id="posthoc"') : text.index('<section id="again"')]
    assert "Post hoc: conceived after data were seen, no verdict" in section
    for words in (
        "&lt;Odd&gt; part",
        "Looked at &lt;afterwards&gt;.",
        "&lt;i&gt;a&lt;/i&gt;",
        "Drawn &amp; titled",
    ):
        assert words in section
    assert "Not drawn: rows are missing." in section
    assert 'data-key="0.5"' in section
    assert "undefined" in section
    assert "figure-drawn" not in text.replace(section, "")
    assert (folder / "figures" / "drawn.svg").is_file()


def test_a_drawing_keeps_its_shapes_and_nothing_that_runs_or_loads():
    found = inline(SVG, "f1", "A <title>", 'say "what"')
    assert 'id="f1-p"' in found
    assert 'href="#f1-p" clip-path="url(#f1-p)"' in found
    assert "one &lt; two" in found
    assert "A &lt;title&gt;" in found
    assert 'viewBox="0 0 9 9"' in found
    for gone in (
        "onload",
        "script",
        "<style",
        "elsewhere",
        "image",
        "foreignObject",
        ">no<",
        "javascript",
        "width",
        "x:y",
    ):
        assert gone not in found


def test_anchors_differ_where_texts_do_and_hold_no_quote():
    texts = ["a b", "a.b", "a-b", 'a"b', "a<b", "ä", "a", ""]
    made = [anchor(text) for text in texts]
    assert len(set(made)) == len(texts)
    assert all(re.fullmatch(r"[A-Za-z0-9._-]*", one) for one in made)


@pytest.mark.slow
def test_attention_suites_show_their_figures_with_what_they_support(measured, shipped, tmp_path, capsys):
    code = cli.main([str(measured), "--registration", str(shipped["A"]), "--out", str(tmp_path / "out")])
    assert (code, capsys.readouterr().err) == (0, "")
    text = (tmp_path / "out" / "report.html").read_text()
    page = assert_sound(text)
    captions = page.texts("figcaption")
    assert len(captions) == 6
    assert all(NUMBER.search(words) or re.search(r"\d", words) for words in captions)
    assert all(f"figures/attention.{name}.svg" in text for name in ("scatter", "errors", "worlds"))
    assert text.count('<svg class="figure"') == 6
    assert "A1: population" in text
    assert "generations.html" not in text  # there are none to browse


def test_it_is_light(harmful):
    assert len((harmful[0] / "report.html").read_bytes()) < 550_000
