"""TTFT and TPOT of a served model by our stamps, beside the server's own timings.

The server states the timings of the same query in its last lines. The model is untrained, of 20
million weights in Q8_0, so that a token takes milliseconds.
"""

import importlib.util
import json
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

from edgemeter.agent import generators
from edgemeter.agent.generators import Limits, LoadedGenerator, server, server_lines
from edgemeter.agent.runtimes import Options
from tools.benchmarks.harness import Comparison, Goal, LeftOutError, Line, Pair, at_most, compared

PROMPT_TOKENS, OUTPUT_TOKENS, CONTEXT = 512, 128, 1024
SECONDS = 8.0
# The most that ours may be apart from the server's.
APART_MS, APART_RATIO = 1.0, 0.01


class Timed(NamedTuple):
    """TTFT and TPOT of a query by our stamps, and by the server's own timings, ms.

    The timings are in the lines that were stamped.
    """

    ttft: Pair
    tpot: Pair


class Subject:
    """A file that is served; each call of `query` is one query of 512 tokens and more."""

    def __init__(self, model: Path) -> None:
        self.generator: Any = generators.create("llama")
        self.loaded: LoadedGenerator = self.generator.load(model, Options(), CONTEXT)
        self._asked = 0

    def prompt(self) -> list[int]:
        """Return tokens that no query before began with."""
        self._asked += 1
        texts = self.loaded.text_tokens.tolist()
        tokens = (
            texts[(self._asked * 7 + 31 * index) % len(texts)] for index in range(PROMPT_TOKENS)
        )
        return [*self.loaded.first_tokens, *tokens][:PROMPT_TOKENS]

    def query(self, output_tokens: int) -> Timed:
        """Return the times of one query.

        A line may have several tokens, because the server waits for whole characters.
        """
        stamped_ns: list[int] = []
        lines: list[bytes] = []
        call = self.generator.bind(self.prompt(), Limits(output_tokens))
        with mock.patch.object(
            server, "read_line", lambda line: (lines.append(line), server_lines.read_line(line))[1]
        ):
            begun_ns = time.monotonic_ns()
            call(lambda _: stamped_ns.append(time.monotonic_ns()))
        timings = [timing for line in lines if (timing := json.loads(line).get("timings"))]
        if not timings:
            raise LeftOutError("the engine tells no timings")
        first, last = timings[0], timings[-1]
        later = max(last["predicted_n"] - first["predicted_n"], 1)
        return Timed(
            ttft=((stamped_ns[0] - begun_ns) / 1e6, first["prompt_ms"] + first["predicted_ms"]),
            tpot=(
                (stamped_ns[-1] - stamped_ns[0]) / later / 1e6,
                (last["predicted_ms"] - first["predicted_ms"]) / later,
            ),
        )


def comparisons() -> Iterator[Comparison]:
    """Yield the comparisons; none without llama.cpp."""
    missing = [name for name in ("xllamacpp", "gguf") if importlib.util.find_spec(name) is None]
    if missing:
        raise LeftOutError(f"{' and '.join(missing)} not installed (extra `dev`)")
    from tools.fixtures.make_llama import Shape, write  # noqa: PLC0415 - needs gguf

    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "bench_q8_0.gguf"
        write(
            model,
            shape=Shape(width=512, layers=6, heads=8, kv_heads=8, hidden=1408, context=CONTEXT),
        )
        subject = Subject(model)
        with closing(subject.generator):
            first = [subject.query(OUTPUT_TOKENS) for _ in range(2)][-1]
            peer = "the server's own timings"
            line = Line(f"TTFT over HTTP, {PROMPT_TOKENS} tokens", "ms", peer, _near(first.ttft))
            yield compared(line, lambda: subject.query(1).ttft, SECONDS)
            line = Line(
                f"TPOT over HTTP, {PROMPT_TOKENS}+{OUTPUT_TOKENS} tokens",
                "ms",
                peer,
                _near(first.tpot),
            )
            yield compared(line, lambda: subject.query(OUTPUT_TOKENS).tpot, SECONDS)


def _near(pair: Pair) -> Goal:
    """Return the goal of pairs like this: 1 ms and 1% apart at most."""
    apart = min(APART_RATIO, round(APART_MS / pair[1], 4))
    return at_most(1 + apart, reach=apart)
