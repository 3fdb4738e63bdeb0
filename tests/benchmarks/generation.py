"""Decode and prefill of a served model as we time them, beside the server's own timings of the same query, in its last lines.

The model is untrained, of 20 million weights in Q8_0, so that a token takes milliseconds.
"""

import importlib.util
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from edgemeter.agent import generators
from edgemeter.agent.generators import Limits, LoadedGenerator, server, server_lines
from edgemeter.agent.runtimes import Options
from tests.benchmarks.harness import Comparison, LeftOutError, Line, at_least, compared

PROMPT_TOKENS, OUTPUT_TOKENS, CONTEXT = 512, 128, 1024
SECONDS = 6.0
GOAL = at_least(0.99)


class Subject:
    """A file that is served; each call of `query` is one query of 512 + 128 tokens."""

    def __init__(self, model: Path) -> None:
        self.generator: Any = generators.create("llama")
        self.found: LoadedGenerator = self.generator.load(model, Options(), CONTEXT)
        self._asked = 0
        for _ in range(2):
            self.query()

    def prompt(self) -> list[int]:
        """Return tokens that no query before began with."""
        self._asked += 1
        texts = self.found.text_tokens.tolist()
        tokens = (texts[(self._asked * 7 + 31 * index) % len(texts)] for index in range(PROMPT_TOKENS))
        return [*self.found.first_tokens, *tokens][:PROMPT_TOKENS]

    def query(self) -> tuple[float, float, dict[str, Any]]:
        """Return TTFT and TPOT by our stamps, in ms, and the engine's own timings; those of the prompt include the first token."""
        moments: list[int] = []
        lines: list[bytes] = []
        call = self.generator.bind(self.prompt(), Limits(OUTPUT_TOKENS))
        with mock.patch.object(server, "read_line", lambda line: (lines.append(line), server_lines.read_line(line))[1]):
            begun = time.monotonic_ns()
            answer = call(lambda _: moments.append(time.monotonic_ns()))
        timings = next((timings for line in reversed(lines) if (timings := json.loads(line).get("timings"))), None)
        if timings is None:
            raise LeftOutError("the engine tells no timings")
        # Over HTTP several tokens may have one moment.
        return (moments[0] - begun) / 1e6, (moments[-1] - moments[0]) / (answer.output_tokens - 1) / 1e6, timings


def comparisons() -> Iterator[Comparison]:
    """Yield the comparisons; none without llama.cpp."""
    with _made_model() as model:
        yield from _server(model)


@contextmanager
def _made_model() -> Iterator[Path]:
    missing = [name for name in ("xllamacpp", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise LeftOutError(f"{' and '.join(missing)} not installed (extra `dev`)")
    from tests.fixtures.generators.make_llama import Shape, write  # noqa: PLC0415 - needs gguf

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "bench_q8_0.gguf"
        write(model, shape=Shape(width=512, layers=6, heads=8, kv_heads=8, hidden=1408, context=CONTEXT))
        yield model


def _decode_rates(subject: Subject) -> tuple[float, float]:
    """Return the rate by our stamps and by the engine's own timings of the same query, as for the prefill."""
    _, tpot_ms, timings = subject.query()
    return 1e3 / tpot_ms, 1e3 * (timings["predicted_n"] - 1) / timings["predicted_ms"]


def _prefill_rates(subject: Subject) -> tuple[float, float]:
    ttft_ms, _, timings = subject.query()
    return 1e3 * PROMPT_TOKENS / ttft_ms, 1e3 * timings["prompt_n"] / timings["prompt_ms"]


def _server(model: Path) -> Iterator[Comparison]:
    subject = Subject(model)
    peer = "the server's own timings"
    decode = Line("decode rate over HTTP, 512+128 tokens", "tokens/s", peer, GOAL)
    yield compared(decode, lambda: _decode_rates(subject), SECONDS)
    prefill = Line("prefill rate over HTTP, 512 tokens", "tokens/s", peer)
    yield compared(prefill, lambda: _prefill_rates(subject), SECONDS / 2)
    subject.generator.close()
