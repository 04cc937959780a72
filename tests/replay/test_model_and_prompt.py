"""What is refused at the door, and how a prompt becomes ids and spans."""

import pytest
import torch
from tokenizers.processors import TemplateProcessing
from transformers import Gemma3TextConfig, GenerationConfig, MistralConfig, Qwen2Config

from kvexp.errors import InputError
from kvexp.models.load import load
from kvexp.replay.model import refuse_unsupported, stop_ids, wrap
from kvexp.replay.prompt import TooLong, check_length, encode_prompt
from tests import tiny
from tests.replay import templates


@pytest.mark.parametrize(
    ("config", "word"),
    [
        (Gemma3TextConfig(), "gemma3_text"),
        (MistralConfig(sliding_window=4096), "mistral"),
        (Qwen2Config(use_sliding_window=True, max_window_layers=2, num_hidden_layers=4), "qwen2"),
    ],
)
def test_architectures_with_sliding_layers_are_refused_by_name(config, word):
    with pytest.raises(InputError, match=word) as caught:
        refuse_unsupported(config)
    assert "sliding" in str(caught.value)


@pytest.mark.parametrize("config", [MistralConfig(sliding_window=None), Qwen2Config()])
def test_full_attention_forms_of_the_same_architectures_are_accepted(config):
    refuse_unsupported(config)


def test_a_model_in_memory_is_refused_like_one_on_disk():
    model = tiny.model("llama")
    model.config.sliding_window = 64
    with pytest.raises(InputError, match="sliding window of 64 tokens"):
        wrap(model, tiny.tokenizer())


def test_a_model_that_is_not_there_is_one_sentence(tmp_path):
    with pytest.raises(InputError, match="nowhere") as caught:
        load(tmp_path / "nowhere", "float32")
    assert "\n" not in str(caught.value)


def test_pickled_weights_are_never_loaded(tmp_path):
    tiny.save(tmp_path)
    weights = tiny.model("llama").state_dict()
    (tmp_path / "model.safetensors").unlink()
    torch.save(weights, tmp_path / "pytorch_model.bin")
    with pytest.raises(InputError, match="safetensors"):
        load(tmp_path, "float32")


def test_stop_ids_join_generation_config_tokenizer_and_turn_ends():
    made = tiny.model("llama")
    made.generation_config.eos_token_id = [5, 9]
    assert stop_ids(made.generation_config, tiny.tokenizer()) == {0, 2, 5, 9}


@pytest.mark.parametrize(
    ("tokenizer", "configured", "tokens"),
    [
        # Qwen2.5: the instruct model's config lists both, the base model's only the end of a text.
        (templates.qwen(), [2, 0], ["<|im_end|>", "<|endoftext|>"]),
        (templates.qwen(), 0, ["<|im_end|>", "<|endoftext|>"]),
        # Llama 3.1: three in the config; the tokenizer knows one, some copies of the config another one.
        (templates.llama(), [1, 2, 3], ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]),
        (templates.llama(), 1, ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]),
        (templates.llama(), None, ["<|end_of_text|>", "<|eom_id|>", "<|eot_id|>"]),
        (templates.mistral(), 2, ["</s>"]),
        (templates.mistral(), None, ["</s>"]),
    ],
)
def test_every_family_stops_at_the_ends_of_its_turns(tokenizer, configured, tokens):
    generation = GenerationConfig(eos_token_id=configured)
    assert stop_ids(generation, tokenizer) == set(tokenizer.convert_tokens_to_ids(tokens))


def test_stop_ids_and_positions_come_from_the_files_of_a_folder(tmp_path):
    made = tiny.model("qwen2", positions=777)
    made.generation_config.eos_token_id = [2, 7]
    made.save_pretrained(tmp_path)
    tiny.tokenizer().save_pretrained(tmp_path)
    loaded = load(tmp_path, "bfloat16")
    assert loaded.max_positions == 777
    assert loaded.stop_ids == {0, 2, 7}
    assert {p.dtype for p in loaded.model.parameters()} == {torch.bfloat16}


def parts(**changes):
    text = {
        "before": "Read.\n",
        "context": "The lake is deep.",
        "after": "\nHow deep is it? Answer.",
        "question": "How deep is it?",
    }
    return {**text, **changes}


def test_segments_concatenate_to_the_rendered_prompt_and_spans_point_at_their_text():
    tokenizer = tiny.tokenizer()
    prompt = encode_prompt(tokenizer, **parts(answer_prefix="It is"))
    text = tokenizer.decode(prompt.ids)
    assert text == (
        "<|im_start|>user\nRead.\nThe lake is deep.\nHow deep is it? Answer.<|im_end|>\n"
        "<|im_start|>assistant\nIt is"
    )
    start, end = prompt.n_prefix, prompt.n_prefix + prompt.n_context
    assert tokenizer.decode(prompt.ids[start:end]) == "The lake is deep."
    assert tokenizer.decode(prompt.ids[slice(*prompt.question)]) == "How deep is it?"
    assert prompt.spans("stream").n_evictable == end
    assert prompt.spans("aware").n_evictable == prompt.n - 1


def test_a_special_token_in_the_context_is_text():
    prompt = encode_prompt(tiny.tokenizer(), **parts(context="a<|im_end|>b"))
    context = prompt.ids[prompt.n_prefix : prompt.n_prefix + prompt.n_context]
    assert 2 not in context.tolist()
    assert tiny.tokenizer().decode(context) == "a<|im_end|>b"


def test_without_a_chat_template_the_text_stands_alone():
    prompt = encode_prompt(tiny.tokenizer(), **parts(), chat=False)
    assert tiny.tokenizer().decode(prompt.ids) == "Read.\nThe lake is deep.\nHow deep is it? Answer."


def test_without_a_chat_template_a_text_begins_as_the_tokenizer_begins_every_text():
    tokenizer = tiny.tokenizer()
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<|im_start|> $A", special_tokens=[("<|im_start|>", 1)]
    )
    prompt = encode_prompt(tokenizer, **parts(), chat=False)
    assert prompt.ids[:2].tolist() == [1, *tokenizer("R", add_special_tokens=False)["input_ids"]]


@pytest.mark.parametrize("where", ["after", "answer_prefix"])
def test_a_special_token_in_the_question_or_the_answer_is_refused(where):
    text = {**parts(), "answer_prefix": "It is"}
    with pytest.raises(InputError, match=r"special token '<\|im_end\|>'"):
        encode_prompt(tiny.tokenizer(), **{**text, where: text[where] + "<|im_end|>"})


@pytest.mark.parametrize("after", ["\nNo question here.", "\nHow deep is it? How deep is it?"])
def test_a_question_that_cannot_be_located_is_refused(after):
    with pytest.raises(InputError, match="exactly once"):
        encode_prompt(tiny.tokenizer(), **parts(after=after))


def test_a_prompt_beyond_the_positions_names_both_numbers():
    prompt = encode_prompt(tiny.tokenizer(), **parts())
    with pytest.raises(TooLong, match=rf"{prompt.n}.*{prompt.n + 9}"):
        check_length(prompt, 10, prompt.n + 9)
    check_length(prompt, 9, prompt.n + 9)
