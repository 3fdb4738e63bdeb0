"""llama.cpp: language models in GGUF files (.gguf) on the CPU, or on the GPU of a build that has one, by the package xllamacpp.

Library: `pip install 'edgemeter[llama]'`. Its wheel for x86-64 needs AVX2, FMA, F16C and BMI2 and uses no AVX-512; its wheel for aarch64
uses no dot products: a native build is faster on a Pi 5. What the build uses is the fact `system_info`. Builds with CUDA or Vulkan are in
the package's own index.
Backends: `cpu`, or `gpu` with such a build (its default then). Settings: `gpu_layers` (how many layers go to the GPU, default all),
`batch` (tokens handed over at once, default 2,048) and `ubatch` (tokens computed at once, default 512), `kv_type` (f16, or f32, bf16,
q8_0, q5_1, q5_0, q4_1, q4_0; those below 16 bits need flash attention), `flash_attention` (auto, on, off), `mmproj` (a projector file).
What is timed: `llama_decode` on the prompt, `batch` tokens at a time, and the likeliest token's id (numpy's argmax) after it, then one
`llama_decode` and argmax a token. The engine's own timings cover `llama_decode` alone. The cache is cleared with its contents before each
query; at a depth what was decoded behind it is removed, or its saved state put back where a model cannot forget a part (recurrent, hybrid
or sliding-window memory). The end of text is ignored by going on behind it. The engine's server, slots and context shift are not used.
Speculation: `draft_model` (a smaller .gguf file with the same tokens) guesses `draft_tokens` tokens a step (default 4). TTFT then holds
the prompt's processing by both models; the tokens of a step have one moment. Heads for several tokens (MTP) are not used.
Tested with xllamacpp 2026.10.11549 (llama.cpp b11549 by its name), x86-64, CPU.
"""

import ctypes
import itertools
import os
import re
import time
from collections.abc import Callable, Sequence
from ctypes import c_int32, c_void_p
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.contract import model_file
from edgemeter.agent.generators import (
    Chat,
    ChatMessage,
    Ended,
    EngineTimings,
    Generated,
    GeneratorAbilities,
    Limits,
    LoadedGenerator,
    Picture,
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
from edgemeter.agent.generators.llama_vision import Projector, with_markers
from edgemeter.agent.generators.speculative_decoding import Speculation
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import LibraryCandidate, RuntimeLibrary, load_library

_LIBRARIES = (LibraryCandidate("xllamacpp.xllamacpp", ("xllamacpp",)),)
# Models of one family have tables of tokens that are filled up to different lengths; llama.cpp itself allows as much.
_MOST_PADDING = 128
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
        self._depth = 0
        self._state: ctypes.Array[ctypes.c_char] | None = None
        self._logits: dict[int, NDArray[np.float32]] = {}
        self._projector: Projector | None = None
        self._draft: LlamaCpp | None = None
        self._draft_tokens = 0
        # The conversation in the cache: its name and tokens.
        self._kept: tuple[str | None, Sequence[int]] = None, []

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
        if settings.mmproj is not None:
            self._found = self._with_projector(self._found, Path(settings.mmproj).expanduser(), options.threads, backend)
        if settings.draft_model is not None:
            self._found = self._with_draft(self._found, settings, options, context_tokens)
        return self._found

    def _with_projector(self, loaded: LoadedGenerator, path: Path, threads: int, backend: str) -> LoadedGenerator:
        """Load the vision encoder and projector beside the model."""
        begin = time.monotonic_ns()
        self._projector = Projector(self._api, path, self._model, threads=threads, offload=backend == "gpu", log=self._log.callback)
        facts = {"mmproj": path.name, "mmproj_sha256": model_file.sha256(path), "mmproj_mb": f"{path.stat().st_size / 1e6:.4g}"}
        load_ns = loaded.load_ns + time.monotonic_ns() - begin
        return replace(loaded, load_ns=load_ns, facts={**loaded.facts, **facts}, abilities=replace(loaded.abilities, pictures=True))

    def _with_draft(self, loaded: LoadedGenerator, settings: LlamaSettings, options: Options, context_tokens: int) -> LoadedGenerator:
        """Load the draft model beside this one; raises ConfigError if its tokens are others."""
        path = Path(settings.draft_model or "").expanduser()
        extra = {key: value for key, value in options.extra.items() if not key.startswith("draft_")}
        self._draft, self._draft_tokens = LlamaCpp(), settings.draft_tokens
        draft = self._draft.load(path, replace(options, extra=extra, sha256=None), context_tokens)
        if draft.tokenizer_sha256 != loaded.tokenizer_sha256 and not self._draft.share_tokens(self.words()):
            raise ConfigError(f"the draft model {str(path)!r} has other tokens than the model: use a smaller model of the same family")
        facts = {
            "draft_model": path.name,
            "draft_model_sha256": model_file.sha256(path),
            "draft_tokens": str(settings.draft_tokens),
            "draft_weights_mb": f"{draft.weights_mb:.4g}",
        }
        return replace(
            loaded,
            speculative="draft",
            load_ns=loaded.load_ns + draft.load_ns,
            facts={**loaded.facts, **facts},
            # Both caches are cleared before each query.
            abilities=replace(loaded.abilities, keeps_prefix=False),
        )

    def share_tokens(self, words: Sequence[bytes]) -> bool:
        """Return whether these are the model's tokens, but for a few that fill a table up; then guess no others."""
        own_words = self.words()
        self._vocabulary = min(len(words), len(own_words))
        is_padded = abs(len(words) - len(own_words)) <= _MOST_PADDING
        return is_padded and own_words[: self._vocabulary] == words[: self._vocabulary]

    def words(self) -> list[bytes]:
        """Return the text of each token."""
        return [self._api.llama_vocab_get_text(self._vocab, token) for token in range(self._vocabulary)]

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
            quantisation=quantisation,
            parameters=sum(tensor.weights for tensor in header.tensors),
            read_parameters=header.read_parameters(),
            trained_context_tokens=header.number("context_length"),
            weights_mb=header.weights_mb(),
            kv_token_bytes=None if cache_mb is None or header.has_window else cache_mb * 1e6 / n_ctx,
            kv_cache_mb=cache_mb,
            kv_type=settings.kv_type,
            chat_template=self._template,
            tokenizer_sha256=header.tokenizer_sha256,
            abilities=GeneratorAbilities(likelihoods=True, keeps_prefix=True),
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
        if any(message.picture for message in prompt):
            text, picture, special = self._around_picture(prompt)
            # Only how many there are is known of the picture's.
            return [-1] * self._with_pictures().count(text, picture, add_special=special)
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
        loaded = self._open_model()
        if isinstance(prompt, Chat):
            return self._picture_query(prompt.messages, limits)
        tokens = check_tokens(prompt, limits, loaded.context_tokens, self._vocabulary)
        cached_tokens = self._keep(tokens, None if self._draft else limits.prefix_cache)
        array, parts = self._parts(tokens, cached_tokens)
        if self._draft is not None:
            return self._speculative_query(self._draft, self._draft.prepare(tokens), array, parts, limits)
        answer: list[int] = []

        def query(stamp: Stamp) -> Generated:
            for part in parts:
                self._decode(part)
            ended = self._generate(answer, limits, stamp, len(tokens))
            # The last token was not read.
            self._kept = limits.prefix_cache, [*tokens, *answer[:-1]]
            return self._generated(answer, ended, len(array), cached_tokens)

        return query

    def _with_pictures(self) -> Projector:
        if self._projector is None:
            raise ConfigError("this model takes no pictures: give its projector (--option mmproj=FILE)")
        return self._projector

    def _around_picture(self, messages: Sequence[ChatMessage]) -> tuple[str, Picture, bool]:
        """Return the text with a marker for the picture, the picture, and whether the beginning-of-text token is still to come."""
        marked, picture = with_markers(messages)
        if self._template is None:
            return "\n\n".join(message.text for message in marked), picture, True
        text, bos = self.render(marked), self._word("llama_vocab_bos")
        return text, picture, not (bos and text.startswith(bos))

    def _picture_query(self, messages: Sequence[ChatMessage], limits: Limits) -> Query:
        """Decode the picture's file outside the clock; scaling, encoding and prefill are the query's."""
        projector = self._with_pictures()
        if self._draft is not None:
            raise ConfigError("a draft model does not guess behind pictures: leave draft_model or mmproj out")
        text, picture, special = self._around_picture(messages)
        bitmap, answer = projector.bitmap(picture), list[int]()
        self._keep([], None)

        def query(stamp: Stamp) -> Generated:
            begin = time.monotonic_ns()
            chunks = projector.encode(text, bitmap, add_special=special)
            encode_ns = time.monotonic_ns() - begin
            try:
                total, image_tokens, position = projector.prefill(chunks, self._context, self._batch, self._process)
            finally:
                chunks.close()
                bitmap.close()
            ended = self._generate(answer, limits, stamp, position)
            generated = self._generated(answer, ended, total, cached_tokens=0)
            # The engine counts a picture's tokens, but not its encoder's time.
            return replace(generated, own=None, image_tokens=image_tokens, image_encode_ns=encode_ns)

        return query

    def _process(self, tokens: Sequence[int], position: int) -> None:
        count = len(tokens)
        array, positions = (ctypes.c_int32 * count)(*tokens), (ctypes.c_int32 * count)(*range(position, position + count))
        for start in range(0, count, self._batch):
            self._decode(api.batch_of(array, start, min(self._batch, count - start), positions))

    def prepare(self, tokens: Sequence[int]) -> Callable[[], None]:
        """Clear the cache, and return what processes the tokens."""
        self._clear()
        # The tokens have to outlive their batches.
        array_and_parts = self._parts(tokens)

        def process() -> None:
            for part in array_and_parts[1]:
                self._decode(part)
            # Waits for the device.
            self._logits_of(-1)

        return process

    def _speculative_query(
        self,
        draft: "LlamaCpp",
        prefill_draft: Callable[[], None],
        array: "ctypes.Array[ctypes.c_int32]",
        parts: Sequence[Any],
        limits: Limits,
    ) -> Query:
        answer: list[int] = []
        speculation = Speculation(self, draft, self._draft_tokens, len(array), lambda tokens: self._ended(tokens, limits))

        def query(stamp: Stamp) -> Generated:
            for part in parts:
                self._decode(part)
            prefill_draft()
            answer.append(int(self._logits_of(-1).argmax()))
            stamp(1)
            ended = speculation.generate(answer, limits, stamp)
            generated = self._generated(answer, ended, len(array), cached_tokens=0)
            # The engine's own timings are of steps, and of one of the two models.
            drafted, accepted, steps = speculation.drafted, speculation.accepted, speculation.steps
            return replace(generated, own=None, drafted_tokens=drafted, accepted_tokens=accepted, steps=steps)

        return query

    def step(self, tokens: Sequence[int]) -> list[int]:
        """Process the tokens at once; see `SteppedModel.step`."""
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        flags = (ctypes.c_int8 * len(tokens))(*[1] * len(tokens))
        batch = api.batch_of(array, 0, len(tokens))
        batch.logits = ctypes.cast(flags, ctypes.POINTER(ctypes.c_int8))
        self._decode(batch)
        return [int(self._logits_of(position).argmax()) for position in range(len(tokens))]

    def forget(self, position: int) -> None:
        """Drop the end of the cache; see `SteppedModel.forget`."""
        if not self._api.llama_memory_seq_rm(self._api.llama_get_memory(self._context), 0, position, -1):
            raise MeasurementError("this model cannot forget a part of what it has cached, which speculation needs: leave draft_model out")

    def _ended(self, answer: Sequence[int], limits: Limits) -> Ended | None:
        if not limits.ignore_end and self._api.llama_vocab_is_eog(self._vocab, answer[-1]):
            return "end_of_text"
        return "length" if len(answer) == limits.output_tokens else None

    def _keep(self, tokens: Sequence[int], name: str | None) -> int:
        """Drop what is cached but the beginning that a prompt shares with the conversation of this name; return its tokens."""
        kept_name, kept_tokens = self._kept
        if name is None or name != kept_name:
            self._clear()
            return 0
        pairs = zip(kept_tokens, tokens[:-1], strict=False)
        shared = sum(1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], pairs))
        # Memory that cannot be cut, as of recurrent models, is cleared.
        if not self._api.llama_memory_seq_rm(self._api.llama_get_memory(self._context), 0, shared, -1):
            self._clear()
            return 0
        self._kept = name, kept_tokens[:shared]
        self._api.llama_perf_context_reset(self._context)
        return shared

    def _parts(self, tokens: Sequence[int], cached_tokens: int = 0) -> "tuple[ctypes.Array[ctypes.c_int32], list[api.LlamaBatch]]":
        """Return the tokens that are not cached as batches, and the array of all that has to outlive them."""
        array, starts = (ctypes.c_int32 * len(tokens))(*tokens), range(cached_tokens, len(tokens), self._batch)
        return array, [api.batch_of(array, start, min(self._batch, len(tokens) - start)) for start in starts]

    def fill(self, tokens: Sequence[int]) -> None:
        """Process the tokens, and keep the state of a memory that cannot forget a part; see `DepthGenerator.fill`."""
        loaded = self._open_model()
        if self._draft is not None:
            raise ConfigError("a draft model does not guess at a depth: leave draft_model or depth_tokens out")
        self._depth, self._state = len(tokens), None
        if not tokens:
            self._clear()
            return
        self.prepare(check_tokens(tokens, Limits(1), loaded.context_tokens, self._vocabulary))()
        if any(map(self._has, ("llama_model_is_recurrent", "llama_model_is_hybrid", "llama_model_n_swa"))):
            size = self._api.llama_state_seq_get_size(self._context, 0)
            self._state = ctypes.create_string_buffer(size)
            if self._api.llama_state_seq_get_data(self._context, self._state, size, 0) != size:
                raise MeasurementError(f"llama.cpp cannot save the state of {self._depth} tokens: {self._log.last_error()}")

    def _has(self, function: str) -> bool:
        return bool(getattr(self._api, function)(self._model))

    def bind_behind(self, token: int, limits: Limits) -> Query:
        """Take the cache back to the filled context; see `DepthGenerator.bind_behind`."""
        loaded = self._open_model()
        step, _ = self._parts(check_tokens([token], limits, loaded.context_tokens - self._depth, self._vocabulary))
        self._rewind()
        answer: list[int] = []

        def query(stamp: Stamp) -> Generated:
            self._decode(api.batch_of(step, 0, 1))
            ended = self._generate(answer, limits, stamp, self._depth + 1)
            return self._generated(answer, ended, 0, self._depth)

        return query

    def _rewind(self) -> None:
        memory = self._api.llama_get_memory(self._context)
        if self._state is None:
            is_back = self._api.llama_memory_seq_rm(memory, 0, self._depth, -1)
        else:
            self._api.llama_memory_clear(memory, False)
            is_back = self._api.llama_state_seq_set_data(self._context, self._state, len(self._state), 0) == len(self._state)
        if not is_back:
            raise MeasurementError(f"llama.cpp cannot take its memory back to a depth of {self._depth} tokens: {self._log.last_error()}")
        self._api.llama_perf_context_reset(self._context)

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

    def _generated(self, answer: Sequence[int], ended: Ended, prompt_tokens: int, cached_tokens: int) -> Generated:
        timings = self._api.llama_perf_context(self._context)
        # A prompt of one token is one of the decode steps to the engine; behind a filled context there is none. Of none it counts 1.
        prefilled, decoded = timings.n_p_eval * (timings.t_p_eval_ms > 0), timings.n_eval * (timings.t_eval_ms > 0)
        engine_timings = EngineTimings(timings.t_p_eval_ms, prefilled, timings.t_eval_ms, decoded)
        return Generated(
            tokens=tuple(answer),
            # The end of text is a token, and no text.
            text=self._text(answer[:-1] if ended == "end_of_text" else answer).decode(errors="replace"),
            ended=ended,
            prompt_tokens=prompt_tokens,
            cached_tokens=cached_tokens,
            output_tokens=len(answer),
            image_tokens=0,
            image_encode_ns=0,
            own=engine_timings if prompt_tokens - cached_tokens != 1 else None,
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
        self._kept = None, []
        self._api.llama_memory_clear(self._api.llama_get_memory(self._context), True)
        self._api.llama_perf_context_reset(self._context)

    def _open_model(self) -> LoadedGenerator:
        if self._found is None:
            raise ConfigError("llama.cpp has no model: load one first")
        return self._found

    def close(self) -> None:
        """Free the context and the model."""
        self._found = self._state = None
        if self._projector is not None:
            self._projector.close()
        if self._draft is not None:
            self._draft.close()
        self._logits.clear()
        if self._context:
            self._api.llama_free(self._context)
        if self._model:
            self._api.llama_model_free(self._model)
        self._context = self._model = self._vocab = None
