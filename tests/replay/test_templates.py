"""Golden prompts of the three families' templates, and what must hold for every one of them."""

import pytest

from kvexp.errors import InputError
from kvexp.replay.prompt import encode_prompt
from tests.replay import templates

TEXT = {
    "before": "Read.\n\n",
    "context": "The lake is deep. Codes: 12 .",
    "after": "\n\nHow deep is it? Say it.\nAnswer: ",
    "question": "How deep is it?",
}
FAMILIES = {
    "qwen": templates.qwen(),
    "llama": templates.llama(),
    "mistral": templates.mistral(),
    "mistral-prepend": templates.mistral("prepend"),
}
# Written out by hand: what the user's turn looks like around the context.
GOLDEN = {
    "qwen": (
        "<|im_start|>system\nYou are a test, made by us. You are helpful.<|im_end|>\n"
        "<|im_start|>user\nRead.\n\n",
        "\n\nHow deep is it? Say it.\nAnswer: <|im_end|>\n<|im_start|>assistant\n",
    ),
    "llama": (
        "<|begin_of_text|><|start_header_id|>system<|end_header_id|>\n\n"
        "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nRead.\n\n",
        # this template trims a message, so the space at the end of LongBench's last prompt goes
        "\n\nHow deep is it? Say it.\nAnswer:<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
    ),
    "mistral": ("<s>[INST] Read.\n\n", "\n\nHow deep is it? Say it.\nAnswer: [/INST]"),
}
GOLDEN["mistral-prepend"] = GOLDEN["mistral"]
# Spaces that SentencePiece puts before a text, or before every piece of it: after [INST], before the
# context, before the suffix, before the answer's beginning.
ADDED = {"mistral": ("", " ", " ", ""), "mistral-prepend": (" ", " ", " ", " ")}
BOS = {"qwen": None, "llama": 0, "mistral": 1, "mistral-prepend": 1}


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


def encode(family, **changes):
    return encode_prompt(FAMILIES[family], **{**TEXT, **changes})


def spelled(family, ids):
    """The tokens one by one, without any decoder: bytes and characters put together by hand."""
    tokens = FAMILIES[family].convert_ids_to_tokens(list(ids))
    space, newline = ("\u2581", "<0x0A>") if family.startswith("mistral") else ("\u0120", "\u010a")
    return "".join(tokens).replace(space, " ").replace(newline, "\n")


def test_the_three_segments_are_those_of_the_golden_prompt(family):
    prompt = encode(family, answer_prefix="It is")
    middle, end = prompt.n_prefix, prompt.n_prefix + prompt.n_context
    made = [spelled(family, ids) for ids in (prompt.ids[:middle], prompt.ids[middle:end], prompt.ids[end:])]
    before, after = GOLDEN[family]
    added = ADDED.get(family, ("", "", "", ""))
    turn, answer = after.removesuffix("[/INST]"), after[len(after.removesuffix("[/INST]")) :]
    assert made == [
        before.replace("[INST]", "[INST]" + added[0]),
        added[1] + TEXT["context"],
        added[2] + turn + answer + added[3] + "It is",
    ]


def test_decoding_gives_the_rendered_prompt_or_the_prompt_says_where_it_does_not(family):
    prompt = encode(family)
    rendered = GOLDEN[family][0] + TEXT["context"] + GOLDEN[family][1]
    if family in ("qwen", "llama"):
        assert FAMILIES[family].decode(prompt.ids) == rendered
        assert prompt.difference == ""
        return
    decoded = FAMILIES[family].decode(prompt.ids)
    at = next(i for i, (a, b) in enumerate(zip(decoded, rendered, strict=False)) if a != b)
    assert decoded[at] == " "
    assert prompt.difference.startswith(f"at character {at}: ")
    assert repr(decoded[at : at + 20]) in prompt.difference


@pytest.mark.parametrize("chat", [True, False])
def test_a_prompt_begins_with_one_bos_if_its_tokenizer_has_one(family, chat):
    ids = encode(family, chat=chat).ids.tolist()
    bos = FAMILIES[family].bos_token_id
    assert bos == BOS[family]
    if bos is not None:
        assert (ids[0], ids.count(bos)) == (bos, 1)
    if not chat and bos is None:
        assert spelled(family, ids).startswith("Read.")


@pytest.mark.parametrize("chat", [True, False])
@pytest.mark.parametrize("cut", [None, 11])
def test_the_question_span_decodes_to_the_question(family, chat, cut):
    prompt = encode(family, chat=chat, limit=cut)
    assert FAMILIES[family].decode(prompt.ids[slice(*prompt.question)]) == TEXT["question"]
    assert prompt.question[0] >= prompt.n_prefix + prompt.n_context


def test_special_tokens_in_a_context_are_text(family):
    tokenizer = FAMILIES[family]
    specials = [str(t) for t in tokenizer.added_tokens_decoder.values()]
    prompt = encode(family, context="a" + "b".join(specials) + "c")
    context = prompt.ids[prompt.n_prefix : prompt.n_prefix + prompt.n_context].tolist()
    assert not {*context} & {*tokenizer.convert_tokens_to_ids(specials)}
    assert tokenizer.decode(context) == "a" + "b".join(specials) + "c"
    # Elsewhere they keep their meaning: the turns are still turns.
    assert len(prompt.ids) - len(context) == len(encode(family).ids) - encode(family).n_context


def test_every_special_token_is_refused_in_the_question(family):
    for token in FAMILIES[family].added_tokens_decoder.values():
        with pytest.raises(InputError, match="special token"):
            encode(family, after=TEXT["after"] + str(token))


@pytest.mark.parametrize("chat", [True, False])
def test_without_a_context_the_rest_is_the_same_tokens(family, chat):
    whole, empty = encode(family, chat=chat), encode(family, chat=chat, context="")
    ids = whole.ids.tolist()
    assert empty.n_context == 0
    assert empty.ids.tolist() == ids[: whole.n_prefix] + ids[whole.n_prefix + whole.n_context :]
    moved = [position - whole.n_context for position in whole.question]
    assert list(empty.question) == moved


def test_a_tokenizer_that_tidies_up_does_not_change_what_is_recorded(family):
    tokenizer = FAMILIES[family]
    plain = encode(family, limit=12)
    tokenizer.clean_up_tokenization_spaces = True
    tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = True
    try:
        assert encode(family, limit=12).context == plain.context
        assert encode(family).difference == encode(family).difference
        assert plain.context.endswith("12 .")
    finally:
        tokenizer.clean_up_tokenization_spaces = False
        tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = False


def test_a_base_model_asked_to_chat_says_what_to_set():
    tokenizer = templates.qwen()
    tokenizer.chat_template = None
    with pytest.raises(InputError, match=r"no chat template: set model\.NAME\.chat=false"):
        encode_prompt(tokenizer, **TEXT)


def test_a_template_that_refuses_is_one_sentence():
    tokenizer = templates.qwen()
    tokenizer.chat_template = "{{ raise_exception('no user here') }}"
    with pytest.raises(InputError, match=r"cannot be rendered .*no user here"):
        encode_prompt(tokenizer, **TEXT)
