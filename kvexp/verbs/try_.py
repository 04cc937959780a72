"""`kvexp try`: one prompt through chosen arms and budgets, answers beside signals."""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kvexp.documents.seals import UNANCHORED
from kvexp.errors import ConfigError, InputError, printable
from kvexp.models.folder import model_source
from kvexp.models.load import load_model
from kvexp.replay.arm import Arm
from kvexp.replay.prompt import Prompt, encode_prompt
from kvexp.study.arms import places
from kvexp.study.compose import Selection, load_arms, project_root, select
from kvexp.study.plugins import build_design, build_score
from kvexp.study.schema import CONDITIONS, ArmConf, ArmGrid
from kvexp.verbs.opened import take

if TYPE_CHECKING:
    from kvexp.replay.harness import Answer

WORDS = "--file FILE --question TEXT [OVERRIDE ...]"
PLACE = ("arm", "cond.", "budget", "draw")
SIGNALS = ("kept", "cert.", "entropy", "evicted", "margin", "logprob")
WIDE = 110  # columns of a terminal in which answers fit beside the signals


def arguments(parser: argparse.ArgumentParser) -> None:
    """The question, and which arms answer it."""
    take(parser, is_study=False)
    add = parser.add_argument
    add("--file", type=Path, required=True, help="text file with the context; - reads stdin")
    add("--question", required=True, help="question about the context")
    add("--answer-prefix", default="", help="first words of the answer, given to the model")
    add("--arms", default="streaming_llm,h2o,snapkv,topk,poisson", help="names of files in conf/arm")
    add("--budgets", default="0.25,0.5", help="shares of the cache to keep")
    add("--seeds", default="0", help="labels of the Poisson draws")
    add("--max-new-tokens", type=int, default=24, help="most tokens of an answer")


def run(parsed: argparse.Namespace, console: Console) -> int:
    """Print a table: one line for each arm, condition, budget and draw, the full cache first."""
    selection, context, arms = _check(parsed)
    prompt, answers = _answers(parsed, selection, context, arms)
    _print(answers, console)
    console.print(
        f"{prompt.n_context:,} context tokens in a prompt of {prompt.n:,}; prefill "
        f"{answers[0].prefill_seconds:.1f} s. "
        "Only a random design with known probabilities has a certificate: a larger one means more "
        "damage by eviction. evicted: share of the arm's scores that was evicted; margin: gap between "
        "kept and evicted scores, in their standard deviations."
    )
    return 0


def _check(parsed: argparse.Namespace) -> tuple[Selection, str, list[Arm]]:
    """Model, text and arms, before anything is loaded; arms are those of conf/arm, listed or not."""
    root = project_root()
    of_arms = [text for text in parsed.overrides if text.lstrip("+").startswith("arm.")]
    _refuse_idle(parsed.overrides)
    selection = select([text for text in parsed.overrides if text not in of_arms], root)
    if parsed.max_new_tokens < 1:
        raise ConfigError(f"--max-new-tokens is at least 1, got {parsed.max_new_tokens}")
    context = _read(parsed.file)
    confs = load_arms(list(dict.fromkeys(["full", *_names(parsed.arms)])), of_arms, root)
    arms = [place for conf in confs for place in _places(parsed, conf)]
    if len(selection.chosen["model"]) != 1:
        raise ConfigError(f"choose one model with model=NAME: {', '.join(selection.chosen['model'])}")
    return selection, context, arms


def _answers(
    parsed: argparse.Namespace, selection: Selection, context: str, arms: list[Arm]
) -> tuple[Prompt, "list[Answer]"]:
    from kvexp.draws import uniforms
    from kvexp.replay.harness import answer_all
    from kvexp.replay.memory import is_out_of_memory

    model = next(m for m in selection.models if m.name in selection.chosen["model"])
    loaded = load_model(model_source(model), model.dtype, selection.cluster.device, model.revision)
    prompt = encode_prompt(
        loaded.tokenizer,
        before="Read the following text.\n\n",
        context=context,
        after=f"\n\n{parsed.question} Answer briefly.",
        question=parsed.question,
        answer_prefix=parsed.answer_prefix,
        chat=model.chat,
    )

    def drawn(arm: Arm, shape: tuple[int, int, int]) -> Any:
        return uniforms(UNANCHORED, int(arm.seed or 0), "try", "try", str(arm.condition), shape)

    try:
        return prompt, answer_all(
            loaded, prompt, arms, selection.study.protocol, parsed.max_new_tokens, drawn
        )
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise InputError(
            f"{len(arms)} arms over {prompt.n:,} tokens do not fit into memory here: give fewer arms, "
            "budgets or seeds, or a shorter text"
        ) from None


def _refuse_idle(words: list[str]) -> None:
    """Raises ConfigError for words about suites and tasks: the prompt is the one that is given."""
    for word in words:
        group = word.lstrip("+").partition("=")[0].partition(".")[0]
        if group in ("suite", "task"):
            raise ConfigError(f"{word!r} changes nothing: `kvexp try` asks its own question, of no {group}")


def _read(path: Path) -> str:
    try:
        if str(path) != "-":
            return path.read_text(encoding="utf-8")
        if sys.stdin is None:
            raise InputError("there is no standard input to read: give --file PATH")
        return sys.stdin.read()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read {path} as UTF-8 text: {error}") from None


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _numbers(text: str, kind: type[float] | type[int], option: str) -> list[float]:
    try:
        return [kind(part) for part in _names(text)]
    except ValueError:
        raise ConfigError(f"{option} takes numbers with commas between them, got {text!r}") from None


def _places(parsed: argparse.Namespace, conf: ArmConf) -> list[Arm]:
    """An arm in every condition that it is defined in."""
    chosen = build_design(conf.design, **conf.design_params)
    if chosen.keeps_all:
        return places(conf, ArmGrid(conf.name))
    seeds = [int(s) for s in _numbers(parsed.seeds, int, "--seeds")] if chosen.is_random else []
    budgets = _numbers(parsed.budgets, float, "--budgets")
    conditions = [c for c in CONDITIONS if _defined(conf, c)]
    return places(conf, ArmGrid(conf.name, conditions, budgets, seeds))


def _defined(conf: ArmConf, condition: str) -> bool:
    name = conf.aware_score if condition == "aware" and conf.aware_score else conf.score
    return name is None or condition in build_score(name).conditions


def _print(answers: "list[Answer]", console: Console) -> None:
    """Signals and answers in one table, or in two where the terminal is narrow: no number is cut."""
    rows = [(_place(one), _signals(one), Text(printable(" ".join(one.text.split())))) for one in answers]
    if console.width < WIDE:
        console.print(_table((*PLACE, *SIGNALS), ((*place, *signals) for place, signals, _ in rows)))
        console.print(_table((*PLACE, "answer"), ((*place, text) for place, _, text in rows)))
        return
    columns = (*PLACE, *SIGNALS, "answer")
    console.print(_table(columns, ((*place, *signals, text) for place, signals, text in rows)))


def _table(columns: Iterable[str], rows: Iterable[Iterable[str | Text]]) -> Table:
    table = Table(box=None, collapse_padding=True)
    for column in columns:
        if column == "answer":
            table.add_column(column, overflow="fold")
        else:
            table.add_column(column, justify="left" if column in PLACE[:2] else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def _place(answer: "Answer") -> list[str]:
    arm = answer.planned.arm
    budget = "" if arm.budget is None else f"{arm.budget:g}"
    return [arm.name, arm.condition or "", budget, "" if arm.seed is None else str(arm.seed)]


def _signals(answer: "Answer") -> list[str]:
    planned, steps, logprobs = answer.planned, answer.certificate_steps, answer.decoded.logprobs
    return [
        f"{planned.plan.realised:.0f}",
        _number(None if steps is None else max(steps)),
        _number(answer.entropy),
        _number(planned.evicted_mass),
        _number(planned.margin),
        _number(sum(logprobs) / len(logprobs)),
    ]


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}"
