"""From one question to the log rows of all its arms: prompt, keyed draws, answers, scores."""

import numpy as np
from numpy.typing import NDArray

from kvexp.draws import uniforms
from kvexp.records import Generation, Timings
from kvexp.replay.arm import Arm
from kvexp.replay.harness import Answer, Planned, Uniforms, answer_all, plan_all
from kvexp.replay.model import Loaded
from kvexp.replay.probe import probe
from kvexp.replay.prompt import Prompt
from kvexp.study.prompts import prompt_of
from kvexp.study.shards import GenerationShard
from kvexp.tasks.base import Question, Task


def answer(
    shard: GenerationShard, anchor: str, family: Task, question: Question, attempt: int, loaded: Loaded
) -> list[Generation]:
    """One generation for every arm of the shard at every place of the grid."""
    return [row for row, _ in answered(shard, anchor, family, question, attempt, loaded)]


def answered(
    shard: GenerationShard, anchor: str, family: Task, question: Question, attempt: int, loaded: Loaded
) -> list[tuple[Generation, Answer]]:
    """The rows of `answer`, each beside the answer that it was made from."""
    prompt = prompt_of(loaded.tokenizer, family, question, shard.rendering)
    draw = _draw(shard, anchor, question)
    answers = answer_all(loaded, prompt, shard.places(), shard.protocol, shard.task.max_new_tokens, draw)
    return [(_generation(shard, family, question, attempt, prompt, one), one) for one in answers]


def plans(
    shard: GenerationShard, anchor: str, family: Task, question: Question, arms: list[Arm], loaded: Loaded
) -> list[Planned]:
    """What `answer` keeps in the cache for some arms of the shard, without the answers."""
    prompt = prompt_of(loaded.tokenizer, family, question, shard.rendering)
    return plan_all(loaded, prompt, arms, shard.protocol, _draw(shard, anchor, question))


def _draw(shard: GenerationShard, anchor: str, question: Question) -> Uniforms:
    def draw(arm: Arm, shape: tuple[int, int, int]) -> NDArray[np.float64]:
        where = (shard.task.name, question.example_id, str(arm.condition))
        return uniforms(anchor, int(arm.seed or 0), *where, shape)

    return draw


def keep_probe(shard: GenerationShard, question: Question, planned: Planned) -> str:
    """The keep bits that a row shows: at places keyed by the row's key."""
    arm = planned.arm
    where = (shard.suite, shard.model.name, shard.task.name, question.example_id)
    return probe(planned.plan.kept_LKN, [*where, arm.name, arm.condition, arm.budget, arm.seed])


def _generation(
    shard: GenerationShard,
    family: Task,
    question: Question,
    attempt: int,
    prompt: Prompt,
    answer: Answer,
) -> Generation:
    planned, decoded = answer.planned, answer.decoded
    arm, plan = planned.arm, planned.plan
    steps = answer.certificate_steps
    return Generation(
        suite=shard.suite,
        shard_id=shard.shard_id,
        model=shard.model.name,
        task=shard.task.name,
        example_id=question.example_id,
        arm=arm.name,
        condition=arm.condition,  # type: ignore[arg-type]
        budget=arm.budget,
        seed=arm.seed,
        attempt=attempt,
        n_context=prompt.n_context,
        n_prompt=prompt.n,
        n_evictable=planned.n_evictable,
        expected_kept=plan.expected,
        realised_kept=plan.realised,
        tail_kept=plan.tail_kept if arm.design.is_random else None,
        first_step_cached=answer.first_step_cached,
        n_generated=len(decoded.tokens),
        text=answer.text,
        score_name=family.score_name,
        score_value=family.score(answer.text, question),
        certificate=None if steps is None else max(steps),
        entropy=answer.entropy,
        evicted_mass=planned.evicted_mass,
        margin=planned.margin,
        output_logprob=sum(decoded.logprobs) / len(decoded.logprobs),
        undefined=answer.undefined,
        certificate_steps=steps,
        zero_variance_cells=answer.blind_cells,
        min_logit_gap=min(decoded.gaps),
        seconds=Timings(
            prefill=answer.prefill_seconds,
            plan=planned.seconds,
            decode=answer.decode_seconds,
            decode_arms=answer.decode_arms,
        ),
        stopped_by="stop_token" if decoded.stopped else "length",
        keep_digest=None if arm.design.keeps_all else planned.keep_digest,
        keep_probe=None if arm.design.keeps_all else keep_probe(shard, question, planned),
    )
