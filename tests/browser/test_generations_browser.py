"""generations.html in a browser: quick with as many answers as the paper has, and each beside all others."""

import json
import re
import time
from itertools import pairwise

import pytest

from tests.project import ROOT

pytestmark = pytest.mark.browser
ROW = "#rows .row"


@pytest.fixture
def browse(show, embedded):
    """The answers of the reference run."""

    def call(fragment="", **options):
        page = show(embedded / "generations.html", fragment, **options)
        page.wait_for_selector(ROW)
        return page

    return call


def count(page):
    return int(page.locator("#count").inner_text().split(" of ")[0].replace(",", ""))


def settle(page, wanted):
    """Wait until the filters have been applied: the count is another one."""
    until(page, lambda text: text != wanted)


def until(page, holds):
    """Wait until what stands as the count is as wanted; the page's policy forbids waiting inside it."""
    end = time.monotonic() + 20
    while not holds(page.locator("#count").inner_text()):
        assert time.monotonic() < end, page.locator("#count").inner_text()
        page.wait_for_timeout(10)


def choose(page, name, value):
    before = page.locator("#count").inner_text()
    page.select_option(f"#{name}", value)
    settle(page, before)


def timed(page, name, value):
    """Milliseconds from a choice to the list that shows it, drawn."""
    return page.evaluate(
        """([name, value]) => new Promise((done) => {
          const field = document.getElementById(name), start = performance.now();
          const old = document.getElementById("count").textContent;
          field.value = value;
          field.dispatchEvent(new Event(field.type === "search" ? "input" : "change"));
          const look = () => document.getElementById("count").textContent !== old
            ? done(performance.now() - start) : requestAnimationFrame(look);
          look();
        })""",
        [name, value],
    )


def test_as_many_answers_as_the_paper_has_are_quick(show, many, capsys):
    path, expected = many
    start = time.perf_counter()
    page = show(path)
    page.wait_for_selector(ROW)
    first = time.perf_counter() - start
    assert count(page) == expected > 98_000
    assert page.locator(ROW).count() < 100  # only what is in sight is drawn
    times = {
        f"{name} {value}": timed(page, name, value)
        for name, value in (("arm", "poisson"), ("text", "captain"))
    }
    both = count(page)
    assert 0 < both < expected
    times["reset"] = timed(page, "arm", "") + timed(page, "text", "")
    times["rare text"] = timed(page, "text", "ALBATROSS")
    assert 0 < count(page) < expected / 500
    size = path.stat().st_size / 1e6
    with capsys.disabled():
        shown = ", ".join(f"{name} {ms:.0f} ms" for name, ms in times.items())
        print(f"\n{expected:,} generations, {size:.1f} MB: first row after {first:.2f} s; filters: {shown}")
    assert first < 6  # 3 on a machine that does nothing else
    assert max(times.values()) < 1000  # 500 likewise


def test_the_whole_list_can_be_reached(show, many):
    page = show(many[0])
    page.wait_for_selector(ROW)
    page.focus("#list")
    page.keyboard.press("End")
    last = page.locator(f"{ROW}.active")
    assert last.get_attribute("aria-rowindex") == page.get_attribute("#list", "aria-rowcount")
    assert page.locator("#list").evaluate(
        "list => list.scrollTop + list.clientHeight > list.scrollHeight - 60"
    )
    box, inside = last.bounding_box(), page.locator("#list").bounding_box()
    assert inside["y"] <= box["y"] <= inside["y"] + inside["height"]
    page.keyboard.press("Home")
    assert page.locator(f"{ROW}.active").get_attribute("aria-rowindex") == "2"
    # By the wheel, to the middle: rows follow each other without a gap.
    page.locator("#list").evaluate("list => { list.scrollTop = list.scrollHeight / 2 }")
    page.wait_for_timeout(200)
    numbers = [int(one.get_attribute("aria-rowindex")) for one in page.locator(ROW).all()]
    assert numbers == list(range(numbers[0], numbers[0] + len(numbers)))
    assert numbers[0] > 10_000
    tops = [one.bounding_box()["y"] for one in page.locator(ROW).all()]
    assert all(abs(b - a - 28) < 0.01 for a, b in pairwise(tops))


def test_every_filter_leaves_what_it_says(browse):
    page = browse()
    every = count(page)
    assert every == 8_640
    for name, value in (
        *(("suite", "embedded-2k"), ("task", "facts"), ("arm", "poisson"), ("condition", "aware")),
        *(("budget", "25 %"), ("outcome", "induced failure")),
    ):
        before = count(page)
        choose(page, name, value)
        assert 0 < count(page) < before
    for text in page.locator(ROW).all_inner_texts():
        cells = [cell for cell in text.split("\n") if cell.strip()]
        assert cells[0] == "\u2717 induced"
        assert {"poisson", "aware", "25 %", "facts", "embedded-2k"} <= set(cells)
    page.get_by_role("button", name="Show all").click()
    until(page, lambda text: text.startswith("8,640"))


def test_induced_and_rescued_are_counted_as_the_analysis_counts_them(browse):
    page = browse()
    counts = {}
    for value in ("correct", "rescued", "induced failure", "inherent failure", "failure", "any failure"):
        choose(page, "outcome", value)
        counts[value] = count(page)
    failures = counts["induced failure"] + counts["inherent failure"] + counts["failure"]
    assert counts["any failure"] == failures
    assert failures + counts["correct"] + counts["rescued"] == 8_640


def test_text_is_found_in_answers_questions_and_references(browse):
    page = browse()
    before = page.locator("#count").inner_text()
    (log,) = (ROOT / "results" / "embedded" / "examples").glob("embedded-1k.*.facts.jsonl")
    asked = [json.loads(line)["question"] for line in log.open()]
    name = next(found[0] for one in asked if (found := re.search(r"[A-Z]\w+ [A-Z]\w+", one)))  # of a person
    page.fill("#text", name[:3].lower() + name[3:].upper())
    settle(page, before)
    assert 0 < count(page) < 200
    page.locator(ROW).first.click()
    assert name in page.locator("#detail dd").first.inner_text()


def test_a_question_shows_the_answers_of_all_arms_side_by_side(browse):
    page = browse()
    page.focus("#list")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    table = page.locator("#detail table")
    arms = table.locator("tbody th").all_inner_texts()
    assert arms[0] == "full"
    assert {"full", "h2o", "snapkv", "topk", "poisson", "streaming_llm"} <= set(arms)
    assert len(arms) == 20
    heads = table.locator("thead th").all_inner_texts()
    assert {"answer", "certificate", "entropy", "evicted mass", "margin", "output logprob", "kept"} <= set(
        heads
    )
    assert table.locator("tr.chosen").count() == 1
    facts = ["question", "references", "context", "chosen", "answer", "signals"]
    assert page.locator("#detail dt").all_inner_texts() == facts
    assert "entropy 0." in page.locator("#detail dd").last.inner_text()
    assert table.locator("td[title^='undefined: ']").count() > 0
    # A link to it shows the same.
    again = browse(page.url[page.url.index("#") :])
    assert again.locator("#detail").inner_text() == page.locator("#detail").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_list_and_question_one_below_the_other(browse, scheme):
    page = browse(viewport={"width": 360, "height": 740}, color_scheme=scheme)
    page.locator(ROW).first.click()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    assert page.locator("#detail").bounding_box()["y"] > page.locator("#list").bounding_box()["y"] + 100


def test_list_and_question_need_no_sideways_scrolling_on_a_desk(browse):
    page = browse(viewport={"width": 1280, "height": 800})
    before = page.locator("#list").bounding_box()["height"]
    page.focus("#list")
    for _ in range(12):
        page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    for box in ("#list", "#detail .scroll"):
        assert page.locator(box).evaluate("box => box.scrollWidth <= box.clientWidth")
    # The list became lower, and what was chosen in it is still in sight.
    inside, chosen = page.locator("#list").bounding_box(), page.locator(f"{ROW}.active").bounding_box()
    assert inside["height"] < before
    assert inside["y"] <= chosen["y"] <= inside["y"] + inside["height"] - chosen["height"] + 1


def test_a_phone_leads_back_to_the_list(browse):
    page = browse(viewport={"width": 390, "height": 844})
    assert "right" in page.locator(".frame").first.get_attribute("class")
    page.locator(ROW).first.click()
    page.get_by_role("button", name="Back to the list").click()
    assert page.evaluate("document.activeElement.id") == "list"
    assert 0 <= page.locator("#list").bounding_box()["y"] < 400


def test_without_scripts_it_says_so(show, embedded):
    page = show(embedded / "generations.html", java_script_enabled=False)
    assert "needs scripts" in page.locator("noscript").inner_text()
    assert not page.locator("#filters").is_visible()


def test_a_page_that_is_cut_off_says_so(chromium, embedded, tmp_path):
    text = (embedded / "generations.html").read_text()
    at = text.index('id="data">') + 200
    broken = tmp_path / "generations.html"
    broken.write_text(text[:at] + text[text.index("</script>", at) :])
    page = chromium.new_page()
    page.goto(broken.as_uri())
    page.locator("#broken").wait_for()
    assert page.locator("#broken").inner_text().startswith("The answers cannot be shown")
    page.close()
