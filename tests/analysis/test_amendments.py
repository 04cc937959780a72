"""What an amendment touches: claims by their own table or file, all of them by what they share."""

import re

import pytest

from analysis.core.seals import GRID, steps
from tests.analysis import sealing
from tests.analysis.sealing import flat, verdicts
from tests.planted import SHORT

TEXT = "preregistration/embedded/R.toml"
pytestmark = pytest.mark.usefixtures("undescribed")


def put(old, new):
    """An edit of a registration that does change it."""

    def edit(text):
        assert old in text
        return text.replace(old, new, 1)

    return edit


CASES = {
    "a condition": (
        [TEXT],
        put('kill = "auc_pooled < 0.60"', 'kill = "auc_pooled < 0.70"'),
        (),
        {"R1": ("kill",)},
    ),
    "a title": ([TEXT], put('title = "', 'title = "Another: '), (), {}),
    "the statistics": ([TEXT], put("draws = 20", "draws = 21"), ("[statistics]",), {}),
    "a claim's file": (["analysis/claims/r2.py"], str, (), {"R2": ("analysis/claims/r2.py",)}),
    "shared code": (["analysis/core/decide.py"], str, ("analysis/core/decide.py",), {}),
    "what makes data": (["kvexp/estimate.py"], str, ("kvexp/estimate.py",), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_what_an_amendment_touches(study, home, case):
    files, edit, shared, own = CASES[case]
    sealing.amend(study, home, "R", files=files, edit=edit)
    (step,) = steps(home, "R")
    assert (step.shared, step.claims) == (shared, own)
    assert [claim for claim in ("R1", "R2", "R3") if step.touches(claim)] == (
        ["R1", "R2", "R3"] if shared else sorted(own)
    )


def test_another_grid_touches_every_claim(study, home):
    listed = list(sealing.shards(study, [SHORT], grid_sha256="e" * 64))
    sealing.amend(study, home, "R", files=[], listed=listed)
    (step,) = steps(home, "R")
    assert step.shared == (GRID,)


def test_a_text_that_is_not_at_hand_may_have_been_any(study, home):
    """The copy that the seal before keeps of its registration is gone, or is not the one that was sealed."""
    sealing.amend(study, home, "R", files=[TEXT], edit=put("draws = 20", "draws = 21"))
    (home / "amendments/R-1/R.toml").write_text("another")
    (step,) = steps(home, "R")
    assert (step.shared, step.lines) == ((TEXT,), ())


def test_only_claims_that_changed_are_labelled_and_the_report_shows_how(described, run, study, home):
    sealing.amend(study, home, "R", files=[TEXT], edit=CASES["a condition"][1])
    code, out, _ = run(study)
    assert code == 0
    assert out.startswith("study embedded, UNWITNESSED, AMENDED AFTER DATA: ")
    assert re.search(r"^R1 +PREVIEW \w+ +amended after data; ", out, re.M)  # at the end of the page
    history = {claim["id"]: claim["history"] for claim in verdicts(study)["claims"]}
    assert history["R1"] == ["amended after data"]
    assert history["R2"] == []
    assert history["S2"] == ["addendum to R"]
    (amendment,) = verdicts(study)["registrations"][0]["amendments"]
    assert amendment["touches"] == {"shared": [], "claims": {"R1": ["kill"]}}
    assert "R-1 amended after data: a wrong constant; touches R1 (kill)" in flat(out)
    full = flat((study / "evidence.md").read_text())
    assert '- kill = "auc_pooled < 0.60" + kill = "auc_pooled < 0.70"' in full
    assert f"git worktree add ../embedded-before-R-1 {sealing.COMMIT}" in full


def test_an_amendment_before_data_is_no_mark_in_the_title(run, study, home):
    new = sealing.amend(study, home, "R", stage="before-data", files=[TEXT], edit=CASES["a condition"][1])
    sealing.put_under(study, [SHORT], new)
    _, out, _ = run(study)
    assert out.startswith("study embedded, UNWITNESSED: ")
    assert "R-1 amended before data: a wrong constant; touches R1 (kill)" in flat(out)
