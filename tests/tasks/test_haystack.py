"""The haystack: pinned, plain, never the same sentence twice."""

from collections import Counter

import pytest

from kvexp.errors import InputError
from kvexp.tasks import _haystack as haystack


def test_it_is_large_and_never_repeats_itself():
    sentences = Counter(s for passage in haystack.passages() for s in passage)
    assert max(sentences.values()) == 1
    assert len(sentences) > 5000
    assert sum(len(s.split()) for s in sentences) > 75_000


def test_it_is_plain_ascii_prose_without_digits():
    for passage in haystack.passages():
        for sentence in passage:
            assert sentence.isascii()
            assert not any(map(str.isdigit, sentence))
            assert sentence[0].isupper()
            assert sentence.endswith(".")


def test_another_release_of_a_source_is_refused(monkeypatch):
    monkeypatch.setattr(haystack, "SOURCES", {"numpy": "1.0.0"})
    with pytest.raises(InputError, match=r"needs numpy==1\.0\.0"):
        haystack.passages.__wrapped__()


def test_a_missing_source_is_refused(monkeypatch):
    monkeypatch.setattr(haystack, "SOURCES", {"no-such-package": "1.0.0"})
    with pytest.raises(InputError, match="needs no-such-package"):
        haystack.passages.__wrapped__()


def test_other_text_of_the_same_release_is_refused(monkeypatch):
    monkeypatch.setattr(
        haystack, "_python_sources", lambda *_: [b'"""\nSome other plain text here now.\n"""']
    )
    with pytest.raises(InputError, match="differs from the registered one"):
        haystack.passages.__wrapped__()
