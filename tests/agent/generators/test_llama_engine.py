"""Facts about llama.cpp in this process: one loop of ours, the engine's own timings, its errors in one line."""

import struct
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.generators import ChatMessage, Limits, gguf_file, llama_c_api, llama_settings
from edgemeter.agent.generators.llama_engine import LlamaCpp
from edgemeter.agent.machine.load import MemInfo
from edgemeter.agent.runtimes import Options
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs(module="xllamacpp")
SHIPPED = Path(__file__).resolve().parents[3] / "models" / "language" / "edgemeter-notes_q8_0.gguf"
TINY = Path(__file__).resolve().parents[2] / "fixtures" / "generators" / "llama.gguf"


@pytest.fixture
def opened():
    """Return what opens the tiny model with these settings; all are closed in the end."""
    engines: list[LlamaCpp] = []

    def load(context: int = 200, **extra: str):
        engines.append(LlamaCpp())
        return engines[-1], engines[-1].load(TINY, Options(extra=extra), context)

    yield load
    for engine in engines:
        engine.close()


def test_batches_and_flash_attention_change_no_token(opened):
    """The same greedy answer comes whatever parts the prompt is handed over in: parts follow each other at the right places."""
    prompt = [1, *range(40, 90)]
    answers = set()
    for extra in ({}, {"batch": "7"}, {"batch": "16", "ubatch": "5"}):
        engine, loaded = opened(**extra)
        answers.add(engine.bind(prompt, Limits(12))(lambda _: None).tokens)
        assert loaded.facts["batch"] == extra.get("batch", "200")
    assert len(answers) == 1


def test_a_further_token_calls_no_function_of_python_but_the_stamp(opened):
    """Behind the weights every line of code comes from memory; a text that may end early pays for the question whether it does."""
    engine, _ = opened()
    calls = {}
    for count, ignore_end in ((10, True), (30, True), (10, False), (30, False)):
        query, names = engine.bind([1, 40, 41], Limits(count, ignore_end=ignore_end)), []
        sys.setprofile(lambda frame, event, _, names=names: names.append(frame.f_code.co_name) if event == "call" else None)
        try:
            answer = query(lambda _: None)
        finally:
            sys.setprofile(None)
        assert answer.output_tokens == count
        calls[count, ignore_end] = Counter(names)
    assert calls[30, True] - calls[10, True] == Counter({"<lambda>": 20})
    assert calls[30, False] - calls[10, False] == Counter({"<lambda>": 20, "_ended": 20})


def test_the_greedy_text_is_the_likeliest_by_its_own_likelihoods(opened):
    """Every token of a text is at least as likely as another would have been in its place."""
    engine, loaded = opened()
    prompt = [1, 100, 101, 102]
    answer = list(engine.bind(prompt, Limits(5))(lambda _: None).tokens)
    likelihoods = engine.likelihoods([*prompt, *answer])[len(prompt) - 1 :]
    for position in range(5):
        for other in (3, 50, 260):
            rival = engine.likelihoods([*prompt, *answer[:position], other])[-1]
            assert likelihoods[position] >= rival - 1e-6
    everything = [engine.likelihoods([*prompt, token])[-1] for token in range(loaded.text_tokens.max() + 1)]
    assert float(np.exp(everything).sum()) == pytest.approx(1.0, abs=1e-4)


def test_its_own_timings_count_the_same_tokens_within_ours(opened):
    """The engine's own prefill and decode lie within our stamps; an answer of one token has no decode step: llama.cpp counts one."""
    engine, _ = opened()
    stamps: list[int] = []
    query = engine.bind([1, *range(10, 60)], Limits(40))
    begin = time.monotonic_ns()
    timings = query(lambda _: stamps.append(time.monotonic_ns())).own
    assert timings is not None
    assert (timings.prefilled_tokens, timings.decoded_tokens) == (51, 39)
    assert 0 < timings.prefill_ms <= (stamps[0] - begin) / 1e6 + 0.01
    assert 0 < timings.decode_ms <= (stamps[-1] - stamps[0]) / 1e6 + 0.05
    timings = engine.bind([1, *range(10, 60)], Limits(1))(lambda _: None).own
    assert (timings.prefilled_tokens, timings.decode_ms, timings.decoded_tokens) == (51, 0.0, 0)


def test_the_end_of_text_ends_a_query_only_if_it_may(opened):
    """The tiny model runs into an end of text at once for some prompts; ignoring it keeps lengths exact."""
    engine, _ = opened()
    # The fixture is made by a seed for which there is one.
    first, ended = next(
        (first, answer)
        for first in range(3, 260)
        if (answer := engine.bind([1, first], Limits(30, ignore_end=False))(lambda _: None)).ended == "end_of_text"
    )
    going_on = engine.bind([1, first], Limits(30))(lambda _: None)
    assert ended.output_tokens < going_on.output_tokens == 30
    assert going_on.tokens[: ended.output_tokens] == ended.tokens


def test_a_chat_goes_through_the_models_own_template(opened):
    """Messages become the tokens of the rendered template, with its begin of text once."""
    engine, _ = opened()
    tokens = engine.encode([ChatMessage("user", "run")])
    assert tokens == [1, *engine.encode("<|im_start|>user\nrun<|im_end|>\n<|im_start|>assistant\n")[1:]]


def test_settings_reach_the_engine(opened):
    """What was asked for is what the facts say, and the cache is computed with its type."""
    _, plain = opened()
    _, other = opened(ubatch="32", kv_type="f32", flash_attention="off")
    assert (other.facts["ubatch"], other.facts["flash_attention"]) == ("32", "disabled")
    assert other.kv_token_bytes == pytest.approx(2 * plain.kv_token_bytes)
    assert plain.facts["flash_attention"] == "enabled"
    assert plain.facts["gpu_layers"] == plain.facts["gpu_layers_asked"] == "0"
    assert "CPU" in plain.facts["system_info"]


def test_a_wrong_setting_is_one_line(opened):
    """A setting that cannot be meant is refused with its name."""
    for extra in [{"batch": "0"}, {"ubatch": "many"}, {"kv_type": "q3_0"}, {"flash_attention": "yes"}]:
        with table_row(extra), pytest.raises(ConfigError, match=next(iter(extra))):
            opened(**extra)


def test_what_the_engine_refuses_is_reported_in_its_words(opened, tmp_path):
    """An unknown architecture, and a cache type that the model's heads do not allow, are reported in llama.cpp's words."""
    content = TINY.read_bytes()
    path = tmp_path / "other.gguf"
    # Same length, so that everything stays in place.
    path.write_bytes(content.replace(struct.pack("<Q", 5) + b"llama", struct.pack("<Q", 5) + b"nopes", 1))
    engine = LlamaCpp()
    with pytest.raises(ConfigError, match="unknown model architecture: 'nopes'"):
        engine.load(path, Options(), 20)
    engine.close()
    with pytest.raises(ConfigError, match="flash_attn"):
        opened(kv_type="q8_0", flash_attention="off")


def test_more_than_memory_holds_is_refused_before_it_is_tried(opened, monkeypatch):
    """Linux would promise the memory and kill the process later."""
    monkeypatch.setattr(llama_settings, "read_memory", lambda _: MemInfo(0.05, 0.05, None, None))
    with pytest.raises(ConfigError, match="context of 200 tokens, 0 MB of memory are free"):
        opened()


def test_gpu_layers_without_a_gpu_are_unavailable():
    """A build for the CPU does not pretend."""
    engine = LlamaCpp()
    with pytest.raises(UnavailableError, match="no GPU backend"):
        engine.load(TINY, Options(backend="gpu"), 20)
    engine.close()


def test_a_build_with_other_structs_is_refused():
    """Where the defaults around a field are not those that are known, no field is set."""

    class OtherBuild:
        def llama_context_default_params(self):
            params = llama_c_api.LlamaParams()
            params.set("I", 0, 4096)
            return params

        def llama_model_default_params(self):
            return llama_c_api.LlamaParams()

    with pytest.raises(UnavailableError, match="llama_model_params"):
        llama_c_api.model_params(OtherBuild(), 0)
    with pytest.raises(UnavailableError, match="llama_context_params"):
        llama_c_api.context_params(
            OtherBuild(), tokens=1, batch=1, ubatch=1, kv_type="f16", flash_attention=llama_c_api.AUTOMATIC, offload=False
        )


def test_the_cache_is_what_the_engine_states(monkeypatch):
    """It knows of layers that share or hold none; of a plain model that is what its header tells."""
    expected_mb = gguf_file.read(SHIPPED).kv_cache_mb(4096, 2)
    monkeypatch.setattr(gguf_file.GgufModel, "kv_cache_mb", lambda *_: None)
    with closing(LlamaCpp()) as engine:
        loaded = engine.load(SHIPPED, Options(), 4096)
    assert loaded.kv_token_bytes * 4096 / 1e6 == pytest.approx(expected_mb, abs=0.03)
