"""The figures of the page, each with the sentence that it supports."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import ParseError

from markupsafe import Markup

from analysis.attention import Attention
from analysis.outputs import FIGURES
from analysis.parts import Picture
from analysis.report.svg import inline
from analysis.report.templating import anchor
from analysis.statistics import Estimate
from analysis.tables.base import digits

NO_BREAK = "\N{NO-BREAK SPACE}"


@dataclass(frozen=True)
class Figure:
    """A figure of the page.

    Attributes:
        id: its place.
        title: one line.
        sentence: what it supports.
        drawing: ready to stand in the page; None if there is none.
        undefined: why there is none.
        file: path beside the page.
    """

    id: str
    title: str
    sentence: str
    drawing: Markup | None
    undefined: str
    file: str


def of_pictures(pictures: Sequence[Picture]) -> Iterator[Figure]:
    """The figures of a part."""
    for one in pictures:
        yield _figure(one.name, one.title, one.sentence, one.svg, one.undefined)


def of_attention(one: Attention, files: Mapping[str, str | None]) -> Iterator[Figure]:
    """The figures of an attention suite, out of the files that were drawn."""
    for name in FIGURES if one.budgets else ():
        svg = files.get(f"figures/{one.name}.{name}.svg")
        if svg is not None:
            title, sentence = _TITLES[name], _SENTENCES[name](one)
            yield _figure(f"{one.name}.{name}", f"{title}, {one.name}", sentence, svg, "")


def _figure(name: str, title: str, sentence: str, svg: str | None, undefined: str) -> Figure:
    place, drawing = f"figure-{anchor(name)}", None
    if svg is not None:
        try:
            drawing = inline(svg, place, title, sentence)
        except ParseError as error:
            undefined = f"its file cannot be read: {error}"
    return Figure(place, title, sentence, drawing, undefined, f"figures/{name}.svg")


def _scatter(one: Attention) -> str:
    promise = "" if one.promised is None else f" ({percent(one.promised)} are promised)"
    return (
        f"The certificate, computed from retained tokens alone, covers {_span(one, 'coverage', percent)} of "
        f"the cells{promise} and ranks them by their true error: Spearman {_span(one, 'spearman', share)}; "
        f"the median certificate is {_span(one, 'ratio', number)} times the median error."
    )


def _errors(one: Attention) -> str:
    rows = [
        f"at {percent(row.budget)} Poisson {_value(row.hajek, number)}, top-k {_value(row.topk, number)}, "
        f"Poisson without the offset {_value(row.no_offset, number)}, uniform {_value(row.uniform, number)}"
        for row in one.budgets
    ]
    return f"Median relative error of the attention output: {'; '.join(rows)}."


def _calibration(one: Attention) -> str:
    known = [row for row in one.calibration if row.coverage.value is not None]
    kept = [row for row in known if (row.coverage.value or 0.0) >= 1 - row.delta]
    broken = sorted({row.delta for row in known} - {row.delta for row in kept})
    never = f", at no budget for delta = {', '.join(f'{d:g}' for d in broken)}" if broken else ""
    counts = f"{len(kept)} of {len(known)} combinations of delta and budget"
    return f"Coverage is at least the promised 1 - delta in {counts}{never}."


def _layers(one: Attention) -> str:
    known = [
        (row.coverage.value, row.layer, row.budget) for row in one.layers if row.coverage.value is not None
    ]
    if not known:
        return "Coverage by layer is undefined."
    low, high = min(known), max(known)
    return (
        f"Coverage is lowest in layer {low[1]} ({percent(low[0])} at budget {percent(low[2])}) and highest "
        f"in layer {high[1]} ({percent(high[0])} at {percent(high[2])})."
    )


def _rare(one: Attention) -> str:
    parts = []
    for budget in dict.fromkeys(row.budget for row in one.rare):
        known = [row for row in one.rare if row.budget == budget and row.coverage.lo is not None]
        if len(known) > 1:
            first, last = known[0], known[-1]
            parts.append(
                f"at budget {percent(budget)} {_value(first.coverage, percent)} of the cells are covered "
                f"where that share is below {first.high:g}, and {_value(last.coverage, percent)} where it is "
                f"from {last.low:g} to {last.high:g}"
            )
    share_of = "the share of attention that falls on tokens which were all but sure to go (pi < 0.001)"
    told = "; ".join(parts) or "too few cells at most shares for an interval"
    return f"Coverage by {share_of}: {told}."


def _worlds(one: Attention) -> str:
    parts = []
    for row in one.demonstrations:
        above = sum(world.certificate_exceeds for world in row.worlds)
        rise = "an undefined multiple of" if row.median_rise is None else f"{number(row.median_rise)} times"
        parts.append(
            f"{row.change.capitalize()}: everything that top-k can compute is the same bytes in "
            f"{row.identical:,} of {row.compared:,} (prompt, layer) pairs, while its largest error is {rise} "
            "that of the unchanged world in the median cell; Poisson's mean certificate exceeds its mean "
            f"error in {above} of {len(row.worlds)} worlds."
        )
    return " ".join(["The values of evicted tokens are changed.", *parts])


_TITLES = {
    "scatter": "Certificate against true error, cell by cell",
    "errors": "Errors of four estimators",
    "calibration": "Coverage at other values of delta",
    "layers": "Coverage and error by layer",
    "rare": "Coverage where attention lies on unlikely tokens",
    "worlds": "What top-k cannot see",
}
_SENTENCES: Mapping[str, Callable[[Attention], str]] = {
    "scatter": _scatter,
    "errors": _errors,
    "calibration": _calibration,
    "layers": _layers,
    "rare": _rare,
    "worlds": _worlds,
}


def percent(value: float) -> str:
    """A share: 12.5 %, on one line."""
    return f"{100 * value:.3g}{NO_BREAK}%"


def share(value: float) -> str:
    """With three decimals."""
    return digits(value, "share")


def number(value: float) -> str:
    """With three significant digits."""
    return digits(value, "number")


def _value(found: Estimate, form: Callable[[float], str]) -> str:
    return "undefined" if found.value is None else form(found.value)


def _span(one: Attention, name: str, form: Callable[[float], str]) -> str:
    """Smallest to largest over budgets, of what is defined."""
    values = [found for row in one.budgets if (found := getattr(row, name).value) is not None]
    if not values:
        return "an undefined part" if form is percent else "undefined"
    low, high = form(min(values)), form(max(values))
    return low if low == high else f"{low} to {high}"
