"""LiteRT-LM: Google's language models for LiteRT (.litertlm), on the CPU, or by WebGPU on a GPU. Never run on a board.

Library: `pip install 'edgemeter[litert-lm]'` (64-bit). Backend: `cpu` (the default), or `gpu`, which was not run. No settings.
What is timed: `run_prefill` of the prompt in a new session, then `run_decode_async`, greedy, without speculation. The library takes texts:
synthetic prompts are of words that it reads back as the same tokens, and lengths are as it counts them. It hands each token over
one step late: TTFT holds two steps, and of an answer of full length the first two tokens count as one piece (no ITL). The end of text
cannot be ignored. Ids of the answer, quantisation, parameters and cache are null.
Tested with litert-lm-api 0.18.1 on an x86-64 CPU.
"""

import time
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from edgemeter.agent import generators
from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.contract.record_generation import EMPTY_ANSWER
from edgemeter.agent.generators.adapter import ORDINARY_WORDS, check_tokens, shared_out
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import LibraryCandidate, captured_stderr, check_options, load_library

_CANDIDATES = (LibraryCandidate("litert_lm", ("litert-lm-api",)),)
_ANY_ID = 1 << 31  # The library does not tell how many it knows: they are checked by reading them back.


class LiteRtLm:
    """Generates with LiteRT-LM, one session a query."""

    def __init__(self) -> None:
        self._library: Any = None
        self._engine: Any = None
        self._session: Any = None
        self._found: Any = None
        self._texts: dict[tuple[int, ...], str] = {}

    def check(self, model: Path, options: Options) -> None:
        """Raise if the file or a setting is wrong; see `Checks.check`."""
        check_options("litert-lm", options, backends=("cpu", "gpu"))
        if not model_file.head(model).startswith(b"LITERTLM"):
            raise ConfigError(f"{str(model)!r} is no model of LiteRT-LM, it lacks the identifier LITERTLM: give a .litertlm file")

    def load(self, model: Path, options: Options, context_tokens: int) -> generators.LoadedGenerator:
        """Read what the file states, make the engine; see `Generator.load`."""
        self.check(model, options)
        library, backend = load_library(_CANDIDATES, "litert-lm"), options.backend or "cpu"
        self._library, self._texts, trained, began_ns = library.module, {}, 0, time.monotonic_ns()
        with suppress(RuntimeError), captured_stderr() as lines:
            trained = self._open(model, backend, options.threads, context_tokens)
        load_ns = time.monotonic_ns() - began_ns
        if self._engine is None:
            if context_tokens > trained > 0:
                raise ConfigError(f"{str(model)!r} has a context of {trained} tokens, not {context_tokens}: shorten prompt or output")
            reason = one_line(next((line.partition("] ")[2] for line in lines if line.startswith("E")), "no reason is given"))
            if backend == "gpu":
                raise UnavailableError(f"LiteRT-LM cannot run {str(model)!r} on a GPU: {reason}; choose cpu, or install a Vulkan driver")
            raise ConfigError(f"LiteRT-LM cannot load {str(model)!r} as a language model: {reason}; fetch it again")
        bos, read = self._engine.bos_token_id, self._engine.tokenize
        twice = {token: self._engine.detokenize([token, token]) for token in sorted(set(read(ORDINARY_WORDS)))}
        # What begins with a space and is read back as itself: so is then a text of it.
        words = [token for token, text in twice.items() if " " in text.strip() and read(text) == [token, token]]
        self._found = loaded = generators.LoadedGenerator(
            library.package, library.version, backend, library.import_ns, load_ns, context_tokens, np.array(words, np.int32),
            first_tokens=() if bos is None else (bos,), trained_context_tokens=trained,
            abilities=generators.GeneratorAbilities(ignores_end=False), facts={"ttft_decode_steps": "2"},
        )  # fmt: skip
        return loaded

    def _open(self, model: Path, backend: str, threads: int, context_tokens: int) -> int:
        """Make the engine if the file holds a language model with that context; return the context that it has."""
        (library := self._library).set_min_log_severity(self._library.LogSeverity.ERROR)
        with library.ModelInfo(model) as info:
            trained = int(info.max_context_tokens) if info.is_llm_model else 0
        if context_tokens <= trained:
            device = library.Backend.GPU() if backend == "gpu" else library.Backend.CPU(thread_count=threads)
            self._engine = library.Engine(str(model), device, context_tokens, cache_dir=":nocache", enable_benchmark=True)
        return trained

    def encode(self, prompt: str | Sequence[generators.ChatMessage]) -> list[int]:
        """Return the tokens of a text or chat; see `Generator.encode`."""
        first = list(self._found.first_tokens)
        # A session puts the begin-of-text token before a text by itself.
        text = (prompt if isinstance(prompt, str) else self.render(prompt)).removeprefix(self._engine.detokenize(first))
        tokens = [*first, *self._engine.tokenize(text)]
        self._texts[tuple(tokens)] = text
        return tokens

    def render(self, messages: Sequence[generators.ChatMessage]) -> str:
        """Return the text of a chat; see `TemplateGenerator.render`."""
        *before, last = ({"role": message.role, "content": message.text} for message in messages)
        text = "".join(message.text for message in messages)
        with suppress(RuntimeError), self._engine.create_conversation(messages=before) as conversation:
            if (rendered := str(conversation.render_message_to_string(last))) != text:
                return rendered
        raise UnavailableError("the model has no chat template, or one that cannot be applied: give a text")

    def bind(self, prompt: generators.Prompt, limits: generators.Limits) -> generators.Query:
        """Find the text of the prompt, and make a new session, which has no cache; see `Generator.bind`."""
        first, tokens = list(self._found.first_tokens), tuple(check_tokens(prompt, limits, self._found.context_tokens, _ANY_ID))
        if (text := self._texts.get(tokens)) is None:
            text = self._engine.detokenize(list(tokens[len(first) :]))
            if [*first, *self._engine.tokenize(text)] != list(tokens):
                raise ConfigError(f"LiteRT-LM takes texts, and reads that of these {len(tokens)} tokens as others: encode a text")
        if self._session:
            self._session.close()
        greedy = {"sampler_config": self._library.SamplerConfig(top_k=1, top_p=1.0, temperature=0.0, seed=0)}
        fixed = {"apply_prompt_template": False, "enable_speculative_decoding": False}
        self._session = self._engine.create_session(max_output_tokens=limits.output_tokens, **greedy, **fixed)
        return partial(self._generate, text, limits)

    def _generate(self, text: str, limits: generators.Limits, stamp: generators.Stamp) -> generators.Generated:
        session, pieces, stamps, is_stopped = self._session, list[str](), 0, False
        try:
            session.run_prefill([text])
            for response in session.run_decode_async():
                pieces.append(response.texts[0])
                if not is_stopped:
                    stamp(1)
                    stamps = len(pieces)
                    if is_stopped := any(stop in "".join(pieces) for stop in limits.stops):
                        session.cancel_process()
            info = session.get_benchmark_info()
        except RuntimeError as error:
            raise MeasurementError(f"LiteRT-LM failed on a prompt of {len(text)} characters: {one_line(error)}") from error
        if not pieces:
            raise AnswerError("LiteRT-LM ended its answer without a text: give another prompt", kind=EMPTY_ANSWER)
        counted, prompt_tokens = info.last_decode_token_count, info.last_prefill_token_count
        ended: generators.Ended = "stop" if is_stopped else "end_of_text" if counted < limits.output_tokens else "length"
        # The token that ends a text shows none, nor does what was computed when an answer was stopped.
        is_one_each = 0 <= counted - len(pieces) <= (ended != "length")
        tokens = (1,) * stamps if is_one_each else shared_out(counted, [len(text) for text in pieces])[:stamps]
        if is_one_each and 1 < stamps == counted == limits.output_tokens:
            tokens = (2, *tokens[2:], 0)  # No step follows the last token: it comes at once after the one before.
        prefill_ms = prompt_tokens * 1e3 / max(info.last_prefill_tokens_per_second, 1e-9)
        step_ms = 1e3 / max(info.last_decode_tokens_per_second, 1e-9)
        return generators.Generated(
            (), "".join(pieces[:stamps]), ended, prompt_tokens, sum(tokens), cached_tokens=0, stamped_tokens=tokens,
            own=generators.EngineTimings(prefill_ms, prompt_tokens, (counted - 1) * step_ms, counted - 1),
        )  # fmt: skip

    def close(self) -> None:
        """Release session and engine."""
        for part in filter(None, (self._session, self._engine)):
            part.close()
        self._session = self._engine = self._found = None
