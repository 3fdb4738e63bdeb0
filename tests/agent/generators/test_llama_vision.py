"""Facts about pictures for llama.cpp: their tokens, their times, and the same answers as from its own server."""

import importlib
import io
import time
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import samples
from edgemeter.agent.generators import Chat, ChatMessage, Limits, Picture, create
from edgemeter.agent.generators.llama_engine import LlamaCpp
from edgemeter.agent.runtimes import Options
from tests.fixtures.language_server import llama_cpp_server
from tests.fixtures.real_prompts import measure_prompts, write_prompts

pytest.importorskip("xllamacpp")
pytest.importorskip("gguf")
Image = pytest.importorskip("PIL.Image")
LIMITS = Limits(10)


def picture(seed, width=80, height=60):
    """Return a picture of noise as a PNG file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    content = io.BytesIO()
    Image.fromarray(pixels).save(content, "PNG")
    return Picture(f"p{seed}.png", content.getvalue())


def question(seed, text="What colour is it?"):
    """Return a question about a picture."""
    return Chat((ChatMessage("user", text, picture(seed)),))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a tiny model, its projector, and projectors of other sizes."""
    makers = {name: importlib.import_module(f"tests.fixtures.generators.{name}") for name in ("make_llama", "make_projector")}
    path = tmp_path_factory.mktemp("vision")
    makers["make_llama"].write(path / "model.gguf")
    usual = makers["make_projector"].Shape()
    for name, changes in (("mmproj", {}), ("small", {"image": 28}), ("wide", {"projected": 48})):
        makers["make_projector"].write(path / f"{name}.gguf", shape=replace(usual, **changes))
    return path


@pytest.fixture
def loaded(folder):
    """Return what loads the model with one of the projectors; all are closed in the end."""
    engines = []

    def load(projector="mmproj"):
        engines.append(LlamaCpp())
        return engines[-1], engines[-1].load(folder / "model.gguf", Options(extra={"mmproj": str(folder / f"{projector}.gguf")}), 200)

    yield load
    for engine in engines:
        engine.close()


@pytest.mark.parametrize(("projector", "tokens"), [("mmproj", 16), ("small", 4)])
def test_a_picture_has_as_many_tokens_as_patches(loaded, projector, tokens):
    """56 pixels a side in patches of 14, and 28; the prompt counts them with those of the text."""
    engine, facts = loaded(projector)
    answer = engine.bind(question(1), LIMITS)(lambda _: None)
    text = len(engine.encode([ChatMessage("user", "What colour is it?")]))
    assert answer.image_tokens == tokens
    assert text <= answer.prompt_tokens - tokens <= text + 1
    assert len(engine.encode(question(1).messages)) == answer.prompt_tokens
    assert facts.abilities.pictures
    assert facts.facts["mmproj"] == f"{projector}.gguf"


def test_the_answer_depends_on_the_picture_and_its_encoder_is_inside_ttft(loaded):
    """The same picture gives the same tokens whatever came between, another one others; size does not matter."""
    engine, _ = loaded()
    answers = {}
    for seed in (1, 2, 3, 1, 2):
        stamps = []
        query = engine.bind(question(seed), LIMITS)
        begin = time.monotonic_ns()
        answer = query(lambda _, stamps=stamps: stamps.append(time.monotonic_ns()))
        assert 0 < answer.image_encode_ns < stamps[0] - begin
        assert answers.setdefault(seed, answer.tokens) == answer.tokens
    assert len(set(answers.values())) == 3


def test_its_own_server_gives_the_same_answers(loaded, folder, tmp_path):
    """llama-server by its chat endpoint, with the same file of the picture; the prompt has its tokens there too."""
    engine, _ = loaded()
    local = [engine.bind(question(seed), LIMITS)(lambda _: None) for seed in (1, 2)]
    with llama_cpp_server(folder / "model.gguf", tmp_path, mmproj=folder / "mmproj.gguf") as path:
        path.write_text(path.read_text() + 'endpoint = "chat"\n')
        with closing(create("server")) as server:
            assert server.load(path, Options(), 200).abilities.pictures
            served = [server.bind(question(seed), LIMITS)(lambda _: None) for seed in (1, 2)]
            bare = server.bind(Chat((ChatMessage("user", "What colour is it?"),)), LIMITS)(lambda _: None)
    # Halves of characters stand for themselves here and there; an end of text that ends no answer has a text here only.
    texts = [[answer.text.replace("</s>", "").replace("\ufffd", "") for answer in answers] for answers in (served, local)]
    assert texts[0] == texts[1]
    assert [answer.prompt_tokens for answer in served] == [answer.prompt_tokens for answer in local]
    assert served[0].prompt_tokens - bare.prompt_tokens in (16, 17, 18)


def assert_answers_as_served(model, projector, image_tokens, size):
    """Compare the answers about five pictures, and the tokens of their prompts, with those of llama-server."""
    chats = [Chat((ChatMessage("user", "What colour is it?", picture(seed, *size)),)) for seed in range(1, 6)]
    with closing(LlamaCpp()) as engine:
        engine.load(model, Options(extra={"mmproj": str(projector)}), 256)
        local = [engine.bind(chat, LIMITS)(lambda _: None) for chat in chats]
    with llama_cpp_server(model, model.parent, mmproj=projector) as path, closing(create("server")) as server:
        path.write_text(path.read_text() + 'endpoint = "chat"\n')
        server.load(path, Options(), 256)
        served = [server.bind(chat, LIMITS)(lambda _: None) for chat in chats]
    assert [answer.image_tokens for answer in local] == [image_tokens] * 5
    assert [answer.prompt_tokens for answer in served] == [answer.prompt_tokens for answer in local]
    for served_answer, answer in zip(served, local, strict=True):
        local_text, end, _ = answer.text.replace("\ufffd", "").partition("</s>")
        text = served_answer.text.replace("\ufffd", "")
        assert min(len(text), len(local_text)) > 4
        # A server keeps back what follows half a character at the end, and its text goes on behind what is the end of text here.
        assert local_text.startswith(text) or (end and text.startswith(local_text))


def test_text_behind_a_picture_of_fewer_positions_than_tokens_stands_where_its_own_server_has_it(tmp_path):
    """With M-RoPE, as Qwen-VL has it: of 4 x 3 tokens only 4 positions are used up, and answers are those of llama-server."""
    make_qwen_vision = importlib.import_module("tests.fixtures.generators.make_qwen_vision")
    model, projector = tmp_path / "model.gguf", tmp_path / "mmproj.gguf"
    make_qwen_vision.write_model(model)
    make_qwen_vision.write_projector(projector)
    assert_answers_as_served(model, projector, image_tokens=12, size=(112, 84))


def test_each_tile_of_a_picture_that_is_cut_up_is_read(tmp_path):
    """Four tiles and the whole picture behind them, of 4 tokens each; llama-server encodes and reads one after the other."""
    makers = {name: importlib.import_module(f"tests.fixtures.generators.{name}") for name in ("make_llama", "make_projector")}
    model, projector = tmp_path / "model.gguf", tmp_path / "mmproj.gguf"
    makers["make_llama"].write(model, words=(*makers["make_llama"].WORDS, *makers["make_projector"].TILE_WORDS))
    makers["make_projector"].write(projector, shape=makers["make_projector"].Shape(longest_edge=112))
    assert_answers_as_served(model, projector, image_tokens=20, size=(112, 112))


def test_what_is_no_picture_and_no_projector_is_one_line(loaded, folder):
    """With what to give instead."""
    engine, _ = loaded()
    with pytest.raises(ConfigError, match=r"cannot read the picture 'no\.png'"):
        engine.bind(Chat((ChatMessage("user", "?", Picture("no.png", b"text")),)), LIMITS)
    with pytest.raises(ConfigError, match="a prompt with 2 pictures"):
        engine.bind(Chat((*question(1).messages, *question(2).messages)), LIMITS)
    with pytest.raises(ConfigError, match="no vision projector for this model"):
        loaded("wide")
    with pytest.raises(ConfigError, match="there is no projector"):
        loaded("absent")
    bare = LlamaCpp()
    bare.load(folder / "model.gguf", Options(), 200)
    with pytest.raises(ConfigError, match="give its projector"):
        bare.bind(question(1), LIMITS)
    bare.close()


def test_a_run_has_its_pictures_stages_apart(folder, tmp_path):
    """Twelve pictures, each asked once before any again; the prefill's rate leaves out what the encoder took."""
    entries = []
    for seed in range(12):
        (tmp_path / f"p{seed}.png").write_bytes(picture(seed).content)
        entries.append({"image": f"p{seed}.png", "prompt": "What colour is it?", "answer": "red"})
    prompts = write_prompts(tmp_path, *entries)
    run = measure_prompts(folder / "model.gguf", options={"mmproj": str(folder / "mmproj.gguf")}, prompts=prompts, queries=12)
    generation = run.generation
    raw = {entry.name: samples.unpack(entry) for entry in run.samples}
    assert (generation.image_tokens, generation.image_encode.count, generation.image_reason) == (16, 12, None)
    assert (raw["image_encode"] < raw["first_token"]).all()
    prefill_s = (raw["first_token"] - raw["image_encode"]).sum() / 1e9
    assert generation.prefill_tokens_per_s == pytest.approx(12 * generation.prompt_tokens / prefill_s)
    assert (run.accuracy.metric, run.accuracy.images) == ("exact_match", 12)


def test_prompts_without_a_picture_have_none_of_its_time(folder, tmp_path):
    """Of nine prompts six have a picture, the first has none: the encoder's time is of six, and no part of the prefill's."""
    entries = []
    for seed in range(9):
        (tmp_path / f"p{seed}.png").write_bytes(picture(seed).content)
        entries.append({"prompt": "What colour is it?"} | ({} if seed % 3 == 0 else {"image": f"p{seed}.png"}))
    prompts = write_prompts(tmp_path, *entries)
    run = measure_prompts(folder / "model.gguf", options={"mmproj": str(folder / "mmproj.gguf")}, prompts=prompts, queries=9)
    generation, raw = run.generation, {entry.name: samples.unpack(entry) for entry in run.samples}
    assert (generation.image_tokens, generation.image_encode.count, generation.image_reason) == (16, 6, None)
    assert np.count_nonzero(raw["image_encode"]) == 6
    prefill_s = (raw["first_token"] - raw["image_encode"]).sum() / 1e9
    assert generation.prefill_tokens_per_s == pytest.approx(9 * generation.mean_prompt_tokens / prefill_s)
    texts = write_prompts(tmp_path, {"prompt": "What colour is it?"})
    bare = measure_prompts(folder / "model.gguf", options={"mmproj": str(folder / "mmproj.gguf")}, prompts=texts, queries=3)
    assert (bare.generation.image_tokens, bare.generation.image_encode, bare.generation.image_reason) == (None, None, None)
    assert "image_encode" not in {entry.name for entry in bare.samples}
