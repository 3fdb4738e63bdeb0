"""Decode and prefill as we time them, beside the engine's own timings, llama-bench's method, a server's counters, and bare loops.

llama-bench's method is repeated through the same C API: random tokens through `llama_decode`, no tokeniser, no sampling, an empty context
for the prompt (pp512) and for decoding (tg128). Ours chooses the likeliest token after each step, and stamps it. The model is untrained, of
20 million weights in Q8_0, so that a token takes milliseconds.

What we add to a token is what passes between two calls of `llama_decode`, beside the same loop in C. Of the shipped model that is less
than a microsecond. Another's weights empty the caches at each step: behind 20 million of them our loop took 26 us on two quiet cores, in C
3. Nothing but the calls that no loop can leave out (decode, logits, argmax, clock) took about 25 us from Python, on a busy machine.
"""

import ctypes
import importlib.util
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from edgemeter.agent import generators
from edgemeter.agent.engine.generation_queries import Stamps
from edgemeter.agent.engine.scenarios.timing import no_collection
from edgemeter.agent.generators import Generated, Limits, LoadedGenerator
from edgemeter.agent.runtimes import Options
from tests.benchmarks.comparison import ROOT, Comparison, LeftOutError, Line, at_least, at_most, compared
from tests.benchmarks.interleaving import in_turn
from tests.fixtures.servers import free_port

SHIPPED = ROOT / "models" / "language"
PROMPT_TOKENS, OUTPUT_TOKENS, CONTEXT = 512, 128, 1024
SECONDS = 6.0
GOAL = at_least(0.99)
# What our loop may add to a token; tokens of a block, seconds of a line.
MOST_ADDED_US, BLOCK_TOKENS, LOOP_SECONDS = 10.0, 64, 6.0
OF_ENGINE = "llama_perf of the same query"
LOOP = """
#include <stdint.h>
#include <time.h>
typedef struct { int32_t count, *token; void *embd; int32_t *position; void *sequences, *ids; int8_t *logits; } Batch;
int32_t (*decode)(void *, Batch), taken;
float *(*logits)(void *, int32_t);
int64_t moments[512];
static int64_t now() {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}
int32_t timed_decode(void *context, Batch batch) {
  moments[taken++] = now();
  int32_t status = decode(context, batch);
  moments[taken++] = now();
  return status;
}
void generate(void *context, int32_t position, int32_t vocabulary, int32_t count, int64_t *stamps) {
  int32_t token;
  Batch batch = {1, &token, 0, &position};
  for (;; position++) {
    float *row = logits(context, -1);
    token = 0;
    for (int32_t index = 1; index < vocabulary; index++)
      if (row[index] > row[token]) token = index;
    *stamps++ = now();
    if (!--count) return;
    timed_decode(context, batch);
  }
}
"""
SERVE = """
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.n_ctx, params.n_parallel, params.port, params.cpuparams.n_threads = sys.argv[1], 1024, 1, int(sys.argv[2]), 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
sys.stdin.read()
"""


class Subject:
    """A loaded generator; each call of `query` is one query of 512 + 128 tokens."""

    def __init__(self, name: str, model: Path) -> None:
        self.generator: Any = generators.create(name)
        self.found: LoadedGenerator = self.generator.load(model, Options(), CONTEXT)
        self._asked = 0
        for _ in range(2):
            self.query()

    def prompt(self, length: int) -> list[int]:
        """Return tokens that no query before began with."""
        self._asked += 1
        texts = self.found.text_tokens.tolist()
        return [*self.found.first_tokens, *(texts[(self._asked * 7 + 31 * index) % len(texts)] for index in range(length))][:length]

    def query(self, prompt_tokens: int = PROMPT_TOKENS) -> tuple[float, float, Generated]:
        """Return TTFT and TPOT by our stamps, in ms, and what the engine says."""
        moments: list[int] = []
        call = self.generator.bind(self.prompt(prompt_tokens), Limits(OUTPUT_TOKENS))
        begun = time.monotonic_ns()
        answer = call(lambda _: moments.append(time.monotonic_ns()))
        # Over HTTP several tokens may have one moment.
        return (moments[0] - begun) / 1e6, (moments[-1] - moments[0]) / (answer.output_tokens - 1) / 1e6, answer


def comparisons() -> Iterator[Comparison]:
    """Yield the comparisons; none without llama.cpp."""
    with _made_model() as model:
        yield from _engine(model)
        yield from _server(model)


def of_a_token() -> Iterator[Comparison]:
    """Yield what passes between two steps in our loop and in one in C; none without llama.cpp or a C compiler."""
    with _made_model() as large:
        for model in (SHIPPED / "edgemeter-notes_f16.gguf", large):
            with closing(TokenLoops(model)) as loops:
                line = Line(f"between two steps of {model.stem}", "us", f"a loop in C + {MOST_ADDED_US:g} us", at_most(1.0))
                yield compared(line, in_turn(loops.ours_us, lambda loops=loops: loops.bare_us() + MOST_ADDED_US), LOOP_SECONDS)


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


class TokenLoops:
    """A model whose steps are timed from within: each call returns the median time between two of a block, outside `llama_decode`."""

    def __init__(self, model: Path) -> None:
        compiler = shutil.which("cc")
        if compiler is None:
            raise LeftOutError("no C compiler (cc) is here")
        with tempfile.TemporaryDirectory() as folder:
            library = Path(folder) / "loop.so"
            subprocess.run([compiler, "-O2", "-shared", "-fPIC", "-xc", "-", "-o", library], input=LOOP, text=True, check=True)
            self._loop = ctypes.CDLL(str(library))
        self._subject = Subject("llama", model)
        self._engine = self._subject.generator
        api, step = self._engine._api, self._loop.timed_decode
        for name, function in (("decode", api.llama_decode), ("logits", api.llama_get_logits_ith)):
            ctypes.c_void_p.in_dll(self._loop, name).value = ctypes.cast(function, ctypes.c_void_p).value
        step.restype, step.argtypes = api.llama_decode.restype, api.llama_decode.argtypes
        api.llama_decode = step
        for block in (self.ours_us, self.bare_us) * 2:
            block()

    def ours_us(self) -> float:
        """Return the time of our own loop."""
        query, stamps = self._engine.bind(self._subject.prompt(1), Limits(BLOCK_TOKENS)), Stamps(BLOCK_TOKENS)
        self._begin()
        with no_collection():
            query(stamps.take)
        return self._between_us()

    def bare_us(self) -> float:
        """Return the time of a loop in C: the likeliest token, its moment."""
        engine, stamps = self._engine, (ctypes.c_int64 * BLOCK_TOKENS)()
        (prefill,) = _bare_calls(self._subject, 1, 1)
        prefill()
        self._begin()
        self._loop.generate(ctypes.c_void_p(engine._context), 1, engine._vocabulary, BLOCK_TOKENS, stamps)
        return self._between_us()

    def _begin(self) -> None:
        ctypes.c_int32.in_dll(self._loop, "taken").value = 0

    def _between_us(self) -> float:
        moment_count = ctypes.c_int32.in_dll(self._loop, "taken").value
        moments = list((ctypes.c_int64 * moment_count).in_dll(self._loop, "moments"))
        return statistics.median(begin - end for end, begin in zip(moments[1::2], moments[2::2], strict=False)) / 1e3

    def close(self) -> None:
        """Let the model go."""
        self._engine.close()


def _engine(model: Path) -> Iterator[Comparison]:
    subject = Subject("llama", model)
    yield compared(Line("decode rate, 512+128 tokens", "tokens/s", OF_ENGINE, GOAL), lambda: _decode_rates(subject), SECONDS)
    yield compared(Line("prefill rate, 512 tokens", "tokens/s", OF_ENGINE, GOAL), lambda: _prefill_rates(subject), SECONDS)
    prefill = Line("prefill rate, 512 tokens", "tokens/s", "llama-bench's pp512", GOAL)
    bare_prefill = partial(_bare_rate, subject, PROMPT_TOKENS, PROMPT_TOKENS)
    yield compared(prefill, in_turn(lambda: 1e3 * PROMPT_TOKENS / subject.query()[0], bare_prefill), SECONDS)
    decode = Line("decode rate, 1+128 tokens", "tokens/s", "llama-bench's tg128", GOAL)
    yield compared(decode, in_turn(lambda: 1e3 / subject.query(1)[1], partial(_bare_rate, subject, 1, OUTPUT_TOKENS)), SECONDS)
    subject.generator.close()


def _decode_rates(subject: Subject) -> tuple[float, float]:
    """Return the rate by our stamps and by the engine's own timings of the same query, as for the prefill."""
    _, tpot_ms, timings = _timed(subject)
    return 1e3 / tpot_ms, 1e3 * timings.decoded_tokens / timings.decode_ms


def _prefill_rates(subject: Subject) -> tuple[float, float]:
    ttft_ms, _, timings = _timed(subject)
    return 1e3 * PROMPT_TOKENS / ttft_ms, 1e3 * timings.prefilled_tokens / timings.prefill_ms


def _timed(subject: Subject) -> tuple[float, float, Any]:
    ttft_ms, tpot_ms, answer = subject.query()
    if answer.own is None:
        raise LeftOutError("the engine tells no timings")
    return ttft_ms, tpot_ms, answer.own


def _bare_rate(subject: Subject, tokens_a_call: int, tokens: int) -> float:
    """Return the rate of `llama_decode` over so many tokens, from an empty context."""
    calls = _bare_calls(subject, tokens_a_call, tokens)
    begun = time.monotonic_ns()
    for call in calls:
        call()
    return 1e9 * tokens / (time.monotonic_ns() - begun)


def _bare_calls(subject: Subject, tokens_a_call: int, tokens: int) -> list[Callable[[], object]]:
    """Return the calls of `llama_decode` over so many tokens; the context is empty now."""
    from edgemeter.agent.generators import llama_c_api as api  # noqa: PLC0415 - of this peer only

    engine, prompt = subject.generator, subject.prompt(tokens)
    token_array = (api.c_int32 * tokens)(*prompt)
    engine._clear()
    return [partial(engine._decode, api.batch_of(token_array, index, tokens_a_call)) for index in range(0, tokens, tokens_a_call)]


def _server(model: Path) -> Iterator[Comparison]:
    command = [sys.executable, "-c", SERVE, str(model), str(free_port())]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        path = model.with_name("bench.server")
        path.write_text(f'url = "{(process.stdout or sys.stdin).readline().strip()}"\n')
        subject = Subject("server", path)
        peer, trip_ms = "the server's own timings", subject.found.network_round_trip_ms or 0.0
        decode = Line("decode rate over HTTP, 512+128 tokens", "tokens/s", peer, GOAL)
        yield compared(decode, lambda: _decode_rates(subject), SECONDS)
        prefill = Line(f"prefill rate over HTTP, round trip {trip_ms:.2f} ms", "tokens/s", peer)
        yield compared(prefill, lambda: _prefill_rates(subject), SECONDS / 2)
        subject.generator.close()
        process.kill()
