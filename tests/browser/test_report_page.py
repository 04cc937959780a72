"""report.html in a browser: it sorts, filters, prints, fits a phone, and what harms stays text."""

import re
from itertools import pairwise

import pytest

pytestmark = pytest.mark.browser
PHONE = {
    "viewport": {"width": 360, "height": 740},
    "device_scale_factor": 2,
    "is_mobile": True,
    "has_touch": True,
}
A_VERDICT = "table.verdicts tbody tr:visible"


@pytest.fixture(scope="module")
def report(embedded):
    return embedded / "report.html"


def claims(page):
    return page.locator("table.verdicts tbody tr:visible th").all_inner_texts()


def number(text):
    return float(re.match(r"-?[\d.]+", text.replace(",", ""))[0])


def column(page, table, at):
    return page.locator(f"{table} tbody tr:visible > :nth-child({at})").all_inner_texts()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 768, 1400])
def test_it_opens_in_peace_and_fits_the_window(show, report, scheme, width):
    page = show(report, viewport={"width": width, "height": 800}, color_scheme=scheme)
    assert len(claims(page)) == 10
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    # Other tables are wider than a phone, inside a box of their own that shows a shadow.
    wider = page.locator(".frame.right:visible")
    assert wider.count() == page.locator(".cue:visible").count()
    assert width > 400 or wider.count() > 10


@pytest.mark.parametrize("width", [320, 390, 1280])
def test_the_verdict_table_is_whole(show, report, width):
    page = show(report, viewport={"width": width, "height": 800})
    box = page.locator("#verdicts .scroll")
    assert box.evaluate("box => box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight")
    assert page.locator("#verdicts td.fragile").first.is_visible()
    assert page.get_by_role("table", name="Verdict of each claim").get_by_role("row").count() >= 10


def test_a_box_that_is_wider_shows_at_which_edge_and_scrolls_by_keyboard(show, report):
    page = show(report, **PHONE)
    card = page.locator("figure .card").first
    frame = page.locator("figure .frame").first
    assert set(frame.get_attribute("class").split()) == {"frame", "right"}
    assert float(frame.evaluate("one => getComputedStyle(one, '::after').opacity")) == 1
    card.focus()
    for _ in range(20):
        page.keyboard.press("ArrowRight")
        page.wait_for_timeout(30)
    page.wait_for_timeout(300)
    assert set(frame.get_attribute("class").split()) == {"frame", "left"}


def test_names_and_intervals_are_not_broken(show, report):
    page = show(report, viewport={"width": 1280, "height": 800})
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true })")
    broken = page.evaluate(
        "[...document.querySelectorAll('main span.w')].filter(one => one.getClientRects().length > 1).length"
    )
    assert page.locator("main span.w").count() > 500
    assert broken == 0


def test_a_pooled_auc_has_the_stratified_one_and_the_bare_label_beside_it(show, report):
    page = show(report)
    shown = {
        row.locator("th").inner_text(): row.locator(".observed").inner_text()
        for row in page.locator(A_VERDICT).all()
    }
    for name in ("R1", "R2", "R3", "S2"):
        assert len(re.findall(r"stratified\s+0\.\d{3} \[", shown[name])) == (2 if name in ("R2", "R3") else 1)
        assert shown[name].count("label alone") == (2 if name in ("R2", "R3") else 1)
    for name in ("A1", "R4", "S1", "S3"):
        assert "stratified" not in shown[name]


def test_what_is_open_or_fails_comes_before_what_holds(show, report):
    page = show(report)
    states = [text.split(":")[0] for text in page.locator("ul.checks li").all_inner_texts()]
    order = ["FAILS", "open", "holds"]
    assert states == sorted(states, key=order.index)
    words = f"Checks: {states.count('FAILS')} fail, {states.count('open')} open, {states.count('holds')} hold"
    assert page.get_by_role("heading", name=words).count() == 1


def test_nothing_is_said_under_table_after_table(show, report):
    page = show(report)
    for section in ("#claims", "#numbers", "#posthoc"):
        told = page.locator(f"{section} .notes.below li:not(.files)").all_text_contents()
        said = [text for text in told if not text.startswith(("Undefined: ", "moves: "))]
        assert len(said) == len(set(said)), section


def luminance(colour):
    red, green, blue = (int(part) / 255 for part in re.findall(r"\d+", colour)[:3])
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in (red, green, blue)
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


BEHIND = """element => {
  for (let one = element; one; one = one.parentElement) {
    const colour = getComputedStyle(one).backgroundColor;
    if (!colour.endsWith(", 0)")) return colour;
  }
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_words_stand_out_in_light_and_in_dark(show, report, scheme):
    page = show(report, color_scheme=scheme)
    paper = page.evaluate(BEHIND, page.locator("body").element_handle())
    assert (luminance(paper) > 0.5) == (scheme == "light")
    # The least contrast that the Web Content Accessibility Guidelines accept for text of this size.
    for selector in (
        "p",
        "a",
        ".word",
        ".preview",
        ".mark",
        ".notes li",
        "thead button",
        ".holds",
        "dt",
        "code",
    ):
        for one in page.locator(f"{selector}:visible").all()[:12]:
            colour = one.evaluate("element => getComputedStyle(element).color")
            low, high = sorted(map(luminance, (colour, one.evaluate(BEHIND))))
            assert (high + 0.05) / (low + 0.05) >= 4.5, (selector, colour)
    # Figures are drawn in dark ink: their card is light in both.
    assert luminance(page.locator(".card").first.evaluate(BEHIND)) > 0.9


def test_a_click_sorts_and_a_second_one_turns_it_round(show, report):
    page = show(report)
    head = page.locator("table.verdicts thead th", has_text="claim")
    head.get_by_role("button").click()
    rising = claims(page)
    assert head.get_attribute("aria-sort") == "ascending"
    assert rising == sorted(rising)
    head.get_by_role("button").click()
    assert head.get_attribute("aria-sort") == "descending"
    assert claims(page) == rising[::-1]
    other = page.locator("table.verdicts thead th", has_text="observed")
    other.get_by_role("button").click()
    assert head.get_attribute("aria-sort") is None


def test_numbers_sort_as_numbers_by_keyboard_and_undefined_ones_stay_last(show, report):
    page = show(report)
    page.get_by_text("AUC of every signal of every arm").first.click()
    table = "#part-signal-panel details[open] table"
    button = page.locator(f"{table} thead th", has_text="stratified").get_by_role("button")
    at = 1 + page.locator(f"{table} thead th").all_inner_texts().index("stratified")
    button.focus()
    for key, is_down in (("Enter", False), ("Space", True)):
        page.keyboard.press(key)
        shown = column(page, table, at)
        numbers = [number(text) for text in shown if text != "undefined"]
        assert len(numbers) > 50
        assert numbers == sorted(numbers, reverse=is_down)
        assert shown[len(numbers) :] == ["undefined"] * (len(shown) - len(numbers))


def test_a_filter_leaves_rows_with_all_its_words(show, report):
    page = show(report)
    field = page.locator("#verdicts").get_by_role("searchbox")
    field.focus()
    page.keyboard.type("killed certificate")
    left = claims(page)
    assert 0 < len(left) < 10
    assert page.locator("#verdicts output").inner_text() == f"{len(left)} of 10 rows"
    for text in page.locator(A_VERDICT).all_inner_texts():
        assert "killed" in text.lower()
    field.fill("no such words")
    assert claims(page) == []
    field.fill("")
    assert len(claims(page)) == 10
    assert page.locator("#verdicts output").inner_text() == ""


def test_it_is_read_without_scripts(show, report):
    page = show(report, java_script_enabled=False)
    assert len(claims(page)) == 10
    assert page.get_by_role("button").count() == 0
    assert page.get_by_role("searchbox").count() == 0
    folded = page.locator("details.folded").first
    folded.locator("summary").click()
    assert folded.locator("dl").is_visible()


def test_a_keyboard_reaches_everything_and_sees_where_it_is(show, report):
    page = show(report)
    page.keyboard.press("Tab")
    skip = page.locator(".skip")
    assert skip.evaluate("element => element === document.activeElement")
    assert skip.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "search"
    for _ in range(6):
        style = "getComputedStyle(document.activeElement)"
        assert page.evaluate(f"{style}.outlineStyle") == "solid"
        page.keyboard.press("Tab")
    boxes = page.locator(".scroll")
    assert boxes.count() == page.locator('.scroll[tabindex="0"][role="region"][aria-label]').count()


def test_a_screen_reader_finds_landmarks_headings_and_captions(show, report):
    page = show(report)
    for role in ("banner", "navigation", "main"):
        assert page.get_by_role(role).count() == 1
    assert page.get_by_role("heading", level=1).count() == 1
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3')].map(one => Number(one.tagName[1]))")
    assert all(after <= before + 1 for before, after in pairwise(levels))
    tables = page.locator("table").count()
    assert tables == page.locator("table > caption").count() > 20
    assert page.get_by_role("img").count() == page.locator("svg.figure > title").count() > 6
    assert page.get_by_role("table", name="Verdict of each claim").count() == 1


def test_links_of_the_contents_lead_somewhere_and_open_what_is_folded(show, report):
    page = show(report, "#part-signal-panel")
    for link in page.locator("nav a").all():
        target = link.get_attribute("href")
        assert page.evaluate("id => document.getElementById(id) !== null", target[1:]), target
    assert page.locator("#part-signal-panel").bounding_box()["y"] < 200


def test_a_print_has_the_verdict_table_whole(show, report, tmp_path):
    page = show(report, viewport={"width": 703, "height": 1000})  # A4 without its margins
    body = page.pdf(path=tmp_path / "report.pdf", prefer_css_page_size=True, tagged=True)
    assert body.startswith(b"%PDF")
    pages = len(re.findall(rb"/Type\s*/Page\b", body))
    assert 5 < pages < 60
    assert re.search(rb"/S\s*/Table\b", body)
    page.emulate_media(media="print")
    table = page.locator("table.verdicts")
    assert len(claims(page)) == 10
    assert table.bounding_box()["width"] <= 703
    assert page.evaluate("document.documentElement.scrollWidth") <= 703
    assert table.bounding_box()["y"] < 700
    for hidden in ("nav", ".tools", ".skip"):
        assert not page.locator(hidden).first.is_visible()
    assert page.locator(".word").first.is_visible()


def test_a_phone_scrolls_tables_and_not_the_page(show, report):
    page = show(report, **PHONE)
    for place in ("#verdicts", "#evidence", "#figures", "#claim-R4", "#numbers"):
        page.evaluate("id => document.querySelector(id).scrollIntoView()", place)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate("window.scrollX") == 0


@pytest.mark.parametrize("name", ["report.html", "generations.html"])
def test_hostile_text_is_inert(show, harmful, name):
    page = show(harmful / name)
    if name == "generations.html":
        page.wait_for_selector("#rows .row")
        page.locator("#rows .row").nth(3).click()
    else:
        for one in page.locator("summary").all():
            one.click()
    for one in page.locator("main button:visible, main th:visible, main td:visible").all()[:40]:
        one.hover()
    page.wait_for_timeout(200)
    assert page.locator("img, iframe, [onmouseover], [onload], [onfocus], [srcdoc]").count() == 0
    assert "window.pwned=1" in page.locator("body").inner_text()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_megabyte_of_one_word_is_cut(show, harmful):
    page = show(harmful / "generations.html")
    page.locator("#rows .row").first.click()
    page.wait_for_selector("#detail table", timeout=10_000)
    assert re.search(r"W{99} \[and 99\d,\d{3} more characters\]", page.locator("#detail").inner_text())


def test_the_policy_stops_scripts_that_slip_in(chromium, harmful):
    """What no template does: markup is put into the page. The browser itself refuses to run it."""
    page = chromium.new_page()
    said = []
    page.on("console", lambda message: said.append(message.text))
    page.goto((harmful / "report.html").as_uri())
    page.evaluate(
        """() => {
          document.body.insertAdjacentHTML("beforeend", '<img src="data:," onerror="window.pwned=1">');
          const script = document.createElement("script");
          script.textContent = "window.pwned=1";
          document.body.append(script);
          document.body.insertAdjacentHTML("beforeend", '<img src="https://example.invalid/x.png">');
        }"""
    )
    page.wait_for_timeout(300)
    assert page.evaluate("window.pwned === undefined")
    assert sum("Content Security Policy" in words for words in said) >= 3
    page.close()


def test_the_report_leads_to_the_answers_and_back(show, chromium, embedded):
    page = chromium.new_page()
    page.goto((embedded / "report.html").as_uri())
    page.get_by_role("link", name="Browse the generations").click()
    page.wait_for_selector("#rows .row")
    page.get_by_role("link", name="kvexp report").click()
    assert page.locator("h1").inner_text().startswith("Study embedded")
    page.close()


def test_a_model_called_undefined_sorts_by_its_name(show, tmp_path):
    from analysis.render.html import TEMPLATES, _environment
    from analysis.render.page_tables import grid

    rows = [("undefined", 0.1), ("a", 0.2), (None, 0.3), ("unknown", None), ("z", 0.4), ("b", 0.5)]
    table = _environment().get_template("macros.html").module.table(grid("one", ["model", "n"], rows))
    script = "".join((TEMPLATES / name).read_text() for name in ("common.js", "report.js"))
    path = tmp_path / "page.html"
    nav = "<nav><details></details></nav>"
    path.write_text(f"<!doctype html><meta charset=utf-8>{nav}<main>{table}</main><script>{script}</script>")
    page = show(path)
    button = page.locator("thead th").first.get_by_role("button")
    for told in (["a", "b", "undefined", "unknown", "z", "-"], ["z", "unknown", "undefined", "b", "a", "-"]):
        button.click()
        assert column(page, "table", 1) == told
