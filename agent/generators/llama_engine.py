"""llama.cpp: language models in GGUF files (.gguf) on the CPU, or on the GPU of a build that has one, by the package xllamacpp.

Library: `pip install 'edgemeter[llama]'`. Its wheel for x86-64 needs AVX2, FMA, F16C and BMI2 and uses no AVX-512; its wheel for aarch64
uses no dot products: a native build is faster on a Pi 5. What the build uses is the fact `system_info`. Builds with CUDA or Vulkan are in
the package's own index.
Backends: `cpu`, or `gpu` with such a build (its default then). Settings: `gpu_layers` (how many layers go to the GPU, default all),
`batch` (tokens handed over at once, default 2,048) and `ubatch` (tokens computed at once, default 512), `kv_type` (f16, or f32, bf16,
q8_0, q5_1, q5_0, q4_1, q4_0; those below 16 bits need flash attention), `flash_attention` (auto, on, off).
What is timed: `llama_decode` on the prompt, `batch` tokens at a time, and the likeliest token's id (numpy's argmax) after it, then one
`llama_decode` and argmax a token. The engine's own timings cover `llama_decode` alone. The cache is cleared with its contents before each
query. The end of text is ignored by going on behind it. The engine's server, slots and context shift are not used.
Tested with xllamacpp 2026.10.11549 (llama.cpp b11549 by its name), x86-64, CPU.
"""

import ctypes
import os
import re
import time
from collections.abc import Sequence
from ctypes import c_int32, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.generators import (
    ChatMessage,
    Ended,
    EngineTimings,
    Generated,
    GeneratorAbilities,
    Limits,
    LoadedGenerator,
    Prompt,
    Query,
    Stamp,
    chat_template,
    gguf_file,
)
from edgemeter.agent.generators import llama_c_api as api
from edgemeter.agent.generators.adapter import check_tokens, log_likelihoods
from edgemeter.agent.generators.gguf_file import GgufModel
from edgemeter.agent.generators.llama_settings import FLASH_ATTENTION, LlamaSettings, check_size
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import LibraryCandidate, RuntimeLibrary, load_library

_LIBRARIES = (LibraryCandidate("xllamacpp.xllamacpp", ("xllamacpp",)),)
_OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
_FLASH_SET = re.compile(r"(?:Flash Attention|flash_attn *=) (enabled|disabled)")
_CACHE_SIZE = re.compile(r"size = +([\d.]+) MiB \( *\d+ cells, .* K \(\w+\)")
# Logits are copied for so many bytes at a time.
_LOGITS_BYTES = 64_000_000
_TEXT_BYTES_PER_TOKEN = 32


class LlamaCpp:
    """Generates with llama.cpp: `llama_decode` in a loop of our own."""

    def __init__(self) -> None:
        self._api: Any = None
        self._model: int | None = None
        self._context: int | None = None
        self._vocab: int | None = None
        self._log = api.EngineLog()
        self._found: LoadedGenerator | None = None
        self._template: str | None = None
        self._vocabulary = 0
        self._batch = 0
        self._logits: dict[int, NDArray[np.float32]] = {}

    def check(self, model: Path, options: Options) -> None:
        """Raise if the header or a setting is wrong, or the file is not whole; see `Checks.check`."""
        LlamaSettings(options)
        gguf_file.read(model)

    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Read the header, load the weights, allocate the cache; see `Generator.load`."""
        settings = LlamaSettings(options)
        library = load_library(_LIBRARIES, "llama")
        header = gguf_file.read(model)
        check_size(model, header, context_tokens, settings)
        self._api = api.open_library(Path(library.module.__file__))
        self._api.llama_log_set(self._log.callback, None)
        self._api.llama_backend_init()
        has_gpu = bool(self._api.llama_supports_gpu_offload())
        if options.backend == "gpu" and not has_gpu:
            raise UnavailableError(
                "this build of llama.cpp has no GPU backend: install a build of xllamacpp with CUDA or Vulkan, or use cpu"
            )
        backend = options.backend or ("gpu" if has_gpu else "cpu")
        begin = time.monotonic_ns()
        self._open(model, options, settings, context_tokens, backend)
        load_ns = time.monotonic_ns() - begin
        self._found = self._loaded(library, header, settings, context_tokens, backend, load_ns)
        return self._found

    def _open(self, model: Path, options: Options, settings: LlamaSettings, context_tokens: int, backend: str) -> None:
        layers = settings.gpu_layers if backend == "gpu" else 0
        self._model = self._api.llama_model_load_from_file(os.fsencode(model), api.model_params(self._api, layers))
        if not self._model:
            raise ConfigError(f"llama.cpp cannot load {str(model)!r}: {self._log.last_error()}")
        if self._api.llama_model_has_encoder(self._model) or self._api.llama_model_is_diffusion(self._model):
            raise ConfigError(f"{str(model)!r} does not generate token by token from a prompt alone: use a decoder-only model")
        params = api.context_params(
            self._api,
            tokens=context_tokens,
            batch=settings.batch,
            ubatch=settings.ubatch,
            kv_type=settings.kv_type,
            flash_attention=FLASH_ATTENTION[settings.flash_attention],
            offload=backend == "gpu",
        )
        self._context = self._api.llama_init_from_model(self._model, params)
        if not self._context:
            raise ConfigError(f"llama.cpp cannot make a context of {context_tokens} tokens for {str(model)!r}: {self._log.last_error()}")
        self._api.llama_set_n_threads(self._context, options.threads, options.threads)
        self._vocab = self._api.llama_model_get_vocab(self._model)
        self._vocabulary = self._api.llama_vocab_n_tokens(self._vocab)
        self._batch = self._api.llama_n_batch(self._context)

    def _loaded(
        self, library: RuntimeLibrary, header: GgufModel, settings: LlamaSettings, context_tokens: int, backend: str, load_ns: int
    ) -> LoadedGenerator:
        quantisation, template = header.quantisation(), header.values.get("tokenizer.chat_template")
        self._template = template if isinstance(template, str) else None
        text_tokens, n_ctx = header.text_tokens(), self._api.llama_n_ctx(self._context)
        # The engine knows of layers that share or hold no cache; it states the size to 0.01 MiB.
        logged_mb = sum(float(match[1]) for match in map(_CACHE_SIZE.search, self._log.lines) if match) * 1.048576
        cache_mb = logged_mb if logged_mb >= 1 else header.kv_cache_mb(n_ctx, settings.kv_bytes)
        return LoadedGenerator(
            package=library.package,
            version=library.version,
            backend=backend,
            import_ns=library.import_ns,
            load_ns=load_ns,
            context_tokens=context_tokens,
            text_tokens=text_tokens[text_tokens < self._vocabulary],
            first_tokens=(self._api.llama_vocab_bos(self._vocab),) if self._api.llama_vocab_get_add_bos(self._vocab) else (),
            name=header.values.get("general.name"),
            architecture=header.architecture,
            precision=quantisation.file_type.lower(),
            parameters=sum(tensor.weights for tensor in header.tensors),
            read_parameters=header.read_parameters(),
            trained_context_tokens=header.number("context_length"),
            weights_mb=header.weights_mb(),
            kv_token_bytes=None if cache_mb is None or header.has_window else cache_mb * 1e6 / n_ctx,
            kv_type=settings.kv_type,
            chat_template=self._template,
            tokenizer_sha256=header.tokenizer_sha256,
            abilities=GeneratorAbilities(likelihoods=True),
            facts=self._facts(settings, backend),
        )

    def _facts(self, settings: LlamaSettings, backend: str) -> dict[str, str]:
        layers = self._api.llama_model_n_layer(self._model) + 1
        requested = 0 if backend == "cpu" else layers if settings.gpu_layers < 0 else min(settings.gpu_layers, layers)
        got = self._log.search(_OFFLOADED)
        flash = self._log.search(_FLASH_SET)
        return {
            "system_info": one_line(self._api.llama_print_system_info().decode(errors="replace")),
            "gpu_layers_asked": str(requested),
            "gpu_layers": got.group(1) if got else "0",
            "layers": str(layers),
            "batch": str(self._batch),
            "ubatch": str(self._api.llama_n_ubatch(self._context)),
            "n_ctx": str(self._api.llama_n_ctx(self._context)),
            "flash_attention": flash.group(1) if flash else settings.flash_attention,
            "omp_wait_policy": os.environ.get("OMP_WAIT_POLICY", "default"),
        }

    def encode(self, prompt: str | Sequence[ChatMessage]) -> list[int]:
        """Return the tokens of a text or chat; see `Generator.encode`."""
        self._open_model()
        if isinstance(prompt, str):
            return self._tokens(prompt.encode(), special=True, parse=False)
        rendered, bos = self.render(prompt), self._word("llama_vocab_bos")
        return self._tokens(rendered.encode(), special=not (bos and rendered.startswith(bos)), parse=True)

    def _tokens(self, text: bytes, *, special: bool, parse: bool) -> list[int]:
        room = len(text) + 8
        tokens = (ctypes.c_int32 * room)()
        count = self._api.llama_tokenize(self._vocab, text, len(text), tokens, room, special, parse)
        if count < 0:
            raise MeasurementError(f"llama.cpp cannot tokenise a text of {len(text)} bytes: it answers {count}")
        return list(tokens[:count])

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Return the text of a chat; see `TemplateGenerator.render`."""
        if self._template is None:
            raise UnavailableError("the model has no chat template: give a text, or use an instruction-tuned model")
        return chat_template.render(self._template, messages, bos=self._word("llama_vocab_bos"), eos=self._word("llama_vocab_eos"))

    def _word(self, function: str) -> str:
        token = getattr(self._api, function)(self._vocab)
        return (self._api.llama_vocab_get_text(self._vocab, token) or b"").decode(errors="replace") if token >= 0 else ""

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Clear the cache, lay the prompt's batches out; see `Generator.bind`."""
        tokens = check_tokens(prompt, limits, self._open_model().context_tokens, self._vocabulary)
        self._clear()
        array, starts = (ctypes.c_int32 * len(tokens))(*tokens), range(0, len(tokens), self._batch)
        parts = [api.batch_of(array, start, min(self._batch, len(tokens) - start)) for start in starts]
        answer: list[int] = []

        def query(stamp: Stamp) -> Generated:
            for part in parts:
                self._decode(part)
            ended = self._generate(answer, limits, stamp, len(tokens))
            # The array has to outlive its batches.
            return self._generated(answer, ended, len(array))

        return query

    def _ended(self, answer: Sequence[int], limits: Limits) -> Ended | None:
        if not limits.ignore_end and self._api.llama_vocab_is_eog(self._vocab, answer[-1]):
            return "end_of_text"
        return "length" if len(answer) == limits.output_tokens else None

    def _generate(self, answer: list[int], limits: Limits, stamp: Stamp, position: int) -> Ended:
        last, positions = (c_int32 * 1)(), (c_int32 * 1)()
        step = api.batch_of(last, 0, 1, positions)
        # A step reads all weights and leaves little else in the caches: whatever is touched between two steps is slow, so that is little.
        decode, logits_at, context, newest = self._api.llama_decode, self._api.llama_get_logits_ith, c_void_p(self._context), c_int32(-1)
        may_end_early, logits_address = not limits.ignore_end, 0
        argmax: Any = None
        while True:
            # Waits for the device.
            if (address := logits_at(context, newest)) != logits_address:
                logits_address, argmax = address, self._logits_of(-1).argmax
            token = int(argmax())
            stamp(1)
            answer.append(token)
            if (may_end_early or len(answer) == limits.output_tokens) and (ended := self._ended(answer, limits)):
                return ended
            last[0], positions[0] = token, position
            if status := decode(context, step):
                raise self._failure(step, status)
            position += 1

    def _generated(self, answer: Sequence[int], ended: Ended, prompt_tokens: int) -> Generated:
        timings = self._api.llama_perf_context(self._context)
        # A prompt of one token is one of the decode steps to the engine. Of none it counts 1.
        prefilled, decoded = timings.n_p_eval * (timings.t_p_eval_ms > 0), timings.n_eval * (timings.t_eval_ms > 0)
        engine_timings = EngineTimings(timings.t_p_eval_ms, prefilled, timings.t_eval_ms, decoded)
        return Generated(
            tokens=tuple(answer),
            # The end of text is a token, and no text.
            text=self._text(answer[:-1] if ended == "end_of_text" else answer).decode(errors="replace"),
            ended=ended,
            prompt_tokens=prompt_tokens,
            cached_tokens=0,
            output_tokens=len(answer),
            own=engine_timings if prompt_tokens != 1 else None,
        )

    def likelihoods(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Return the log likelihood of each token but the first; see `LikelihoodGenerator`."""
        loaded = self._open_model()
        if len(tokens) < 2:
            raise ConfigError(f"{len(tokens)} tokens have no likelihood: give 2 or more")
        # The last token is only scored.
        check_tokens([*tokens[1:]], Limits(1), loaded.context_tokens + 1, self._vocabulary)
        self._clear()
        return self._next_likelihoods(tokens)

    def _next_likelihoods(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Process all but the last token behind what is cached, and return the log likelihood of each but the first."""
        count = len(tokens) - 1
        array = (ctypes.c_int32 * count)(*tokens[:-1])
        limit = max(1, min(self._batch, _LOGITS_BYTES // (4 * self._vocabulary)))
        flags = (ctypes.c_int8 * limit)(*[1] * limit)
        likely = np.empty(count, np.float64)
        for start in range(0, count, limit):
            part = api.batch_of(array, start, min(limit, count - start))
            part.logits = ctypes.cast(flags, ctypes.POINTER(ctypes.c_int8))
            self._decode(part)
            for position in range(part.n_tokens):
                pair = tokens[start + position : start + position + 2]
                likely[start + position] = log_likelihoods(self._logits_of(position)[None], pair)[0]
        return likely

    def _decode(self, batch: api.LlamaBatch) -> None:
        if status := self._api.llama_decode(self._context, batch):
            raise self._failure(batch, status)

    def _failure(self, batch: api.LlamaBatch, status: int) -> MeasurementError:
        return MeasurementError(f"llama.cpp failed on {batch.n_tokens} tokens (status {status}): {self._log.last_error()}")

    def _logits_of(self, position: int) -> NDArray[np.float32]:
        """Return the logits [vocabulary] of an output of the last batch, not copied."""
        address = self._api.llama_get_logits_ith(self._context, position)
        logits = self._logits.get(address)
        if logits is None:
            if not address:
                raise MeasurementError("llama.cpp gives no logits: the model is no language model")
            logits = np.ctypeslib.as_array((ctypes.c_float * self._vocabulary).from_address(address))
            self._logits[address] = logits
        return logits

    def _text(self, tokens: Sequence[int]) -> bytes:
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        room = 64 + _TEXT_BYTES_PER_TOKEN * len(tokens)
        while True:
            text = ctypes.create_string_buffer(room)
            size = self._api.llama_detokenize(self._vocab, array, len(tokens), text, room, False, True)
            if size >= 0:
                return text.raw[:size]
            room = -size

    def _clear(self) -> None:
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)
        self._api.llama_perf_context_reset(self._context)

    def _open_model(self) -> LoadedGenerator:
        if self._found is None:
            raise ConfigError("llama.cpp has no model: load one first")
        return self._found

    def close(self) -> None:
        """Free the context and the model."""
        self._found = None
        self._logits.clear()
        if self._context:
            self._api.llama_free(self._context)
        if self._model:
            self._api.llama_model_free(self._model)
        self._context = self._model = self._vocab = None
