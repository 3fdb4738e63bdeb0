"""ONNX GenAI: language models for onnxruntime-genai on the CPU, or on what the folder's configuration names (CUDA, WebGPU, QNN).

Library: `pip install 'edgemeter[genai]'` (Python 3.11 or newer). The model is `genai_config.json` in the folder that
onnxruntime-genai's builder made; its other files (model.onnx, model.onnx.data, the tokenizer's) lie beside it and belong to the model's
hash. Backend: `cpu`, or `config` for the providers in the file; `config` when none is given. No settings. What is timed:
`append_tokens` of the whole prompt and the first `generate_next_token`, then one `generate_next_token` a token; sampling is the
library's own and greedy. Threads are those of the case, whatever the file says. The cache of the whole context is allocated before each
query. The end of text is not chosen before the context is full (`min_length`), which is how the library ignores it; it has no timings
of its own. Likelihoods need a model that gives the logits of all positions; some are built to give the last only. Tested with
onnxruntime-genai 0.18.0 on the CPU.
"""

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, MeasurementError, UnavailableError, one_line
from edgemeter.agent.base.server_connection import json_object
from edgemeter.agent.contract import model_file
from edgemeter.agent.generators import ChatMessage, Ended, Generated, GeneratorAbilities, Limits, LoadedGenerator, Prompt, Query, Stamp
from edgemeter.agent.generators.adapter import check_tokens, log_likelihoods, part
from edgemeter.agent.runtimes import Options, onnx_file
from edgemeter.agent.runtimes.adapter import LibraryCandidate, check_options, load_library

CONFIG = "genai_config.json"
_CANDIDATES = (LibraryCandidate("onnxruntime_genai", ("onnxruntime-genai", "onnxruntime-genai-cuda")),)


class OnnxGenai:
    """Generates with onnxruntime-genai, one call a token."""

    def __init__(self) -> None:
        self._library: Any = None
        self._model: Any = None
        self._tokenizer: Any = None
        self._found: LoadedGenerator | None = None
        self._vocabulary = 0
        self._ends: frozenset[int] = frozenset()
        self._filled: Any = None
        self._depth = 0

    def check(self, model: Path, options: Options) -> None:
        """Raise if the configuration or a setting is wrong; see `Checks.check`."""
        _checked(model, options)

    def load(self, model: Path, options: Options, context_tokens: int) -> LoadedGenerator:
        """Read the configuration, load model and tokenizer; see `Generator.load`."""
        described = _checked(model, options)
        library = load_library(_CANDIDATES, "genai")
        trained = _whole(described, "context_length", model)
        if context_tokens > trained:
            raise ConfigError(f"{str(model)!r} has a context of {trained} tokens, {context_tokens} are needed: shorten prompt or output")
        self._vocabulary = _whole(described, "vocab_size", model)
        self._library = library.module
        began_ns = time.monotonic_ns()
        self._open(model, options)
        load_ns = time.monotonic_ns() - began_ns
        decoder, texts = part(described, "decoder"), _text_tokens(model)
        bos = int(self._tokenizer.bos_token_id)
        adds_bos = bool(_beside(model, "tokenizer_config.json").get("add_bos_token")) or self._tokens("a")[:1] == [bos]
        self._found = LoadedGenerator(
            package=library.package,
            version=library.version,
            backend=str(self._model.device_type).lower(),
            import_ns=library.import_ns,
            load_ns=load_ns,
            context_tokens=context_tokens,
            text_tokens=texts[texts < self._vocabulary],
            first_tokens=(bos,) if adds_bos else (),
            architecture=str(self._model.type),
            precision=_precision(model, decoder),
            trained_context_tokens=trained,
            chat_template=_beside(model, "tokenizer_config.json").get("chat_template"),
            tokenizer_sha256=model_file.sha256(model.with_name("tokenizer.json")) if model.with_name("tokenizer.json").is_file() else None,
            abilities=GeneratorAbilities(likelihoods=True),
            facts={"providers": json.dumps(part(decoder, "session_options").get("provider_options", []))},
        )
        return self._found

    def _open(self, model: Path, options: Options) -> None:
        threads = {"model": {"decoder": {"session_options": {"intra_op_num_threads": options.threads}}}}
        try:
            config = self._library.Config(str(model.parent))
            config.overlay(json.dumps(threads))
            if options.backend == "cpu":
                config.clear_providers()
            self._model = self._library.Model(config)
            self._tokenizer = self._library.Tokenizer(self._model)
            self._ends = frozenset(int(token) for token in self._tokenizer.eos_token_ids)
        except RuntimeError as error:
            raise ConfigError(f"onnxruntime-genai cannot load {str(model)!r}: {one_line(error)}") from error

    def encode(self, prompt: str | Sequence[ChatMessage]) -> list[int]:
        """Return the tokens of a text or chat; see `Generator.encode`."""
        first = list(self._loaded().first_tokens)
        text = prompt if isinstance(prompt, str) else self.render(prompt)
        tokens = self._tokens(text)
        return tokens if tokens[: len(first)] == first else first + tokens

    def _tokens(self, text: str) -> list[int]:
        return [int(token) for token in self._tokenizer.encode(text)] if text else []

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """Return the text of a chat; see `TemplateGenerator.render`."""
        chat = json.dumps([{"role": message.role, "content": message.text} for message in messages])
        try:
            return str(self._tokenizer.apply_chat_template(chat))
        except RuntimeError as error:
            raise UnavailableError(f"the model's chat template cannot be applied ({one_line(error)}): give a text") from error

    def bind(self, prompt: Prompt, limits: Limits) -> Query:
        """Allocate a cache for the whole context; see `Generator.bind`."""
        loaded = self._loaded()
        tokens = np.asarray(check_tokens(prompt, limits, loaded.context_tokens, self._vocabulary), np.int32)
        generator = self._generator(loaded.context_tokens, min_length=loaded.context_tokens if limits.ignore_end else 0)
        return self._query(generator, tokens, limits)

    def fill(self, tokens: Sequence[int]) -> None:
        """Process the tokens in a cache that stays; the end of text is ignored there. See `DepthGenerator.fill`."""
        context_tokens = self._loaded().context_tokens
        self._filled, self._depth = self._generator(context_tokens, min_length=context_tokens), len(tokens)
        if tokens:
            filling = np.asarray(check_tokens(tokens, Limits(1), context_tokens, self._vocabulary), np.int32)
            try:
                self._filled.append_tokens(filling)
            except RuntimeError as error:
                raise MeasurementError(f"onnxruntime-genai failed on {len(tokens)} tokens: {one_line(error)}") from error

    def bind_behind(self, token: int, limits: Limits) -> Query:
        """Rewind the cache to the filled context; see `DepthGenerator.bind_behind`."""
        step = np.asarray(check_tokens([token], limits, self._loaded().context_tokens - self._depth, self._vocabulary), np.int32)
        try:
            self._filled.rewind_to(self._depth)
        except RuntimeError as error:
            raise MeasurementError(f"onnxruntime-genai cannot rewind to {self._depth} tokens: {one_line(error)}") from error
        return self._query(self._filled, step, limits, depth=self._depth)

    def _query(self, generator: Any, tokens: NDArray[np.int32], limits: Limits, depth: int | None = None) -> Query:
        """Return the query that processes `tokens`, which are its prompt, or at a depth its first step."""

        def query(stamp: Stamp) -> Generated:
            try:
                answer, ended = self._generate(generator, tokens, limits, stamp)
            except RuntimeError as error:
                raise MeasurementError(f"onnxruntime-genai failed on {len(tokens)} tokens: {one_line(error)}") from error
            return Generated(
                tokens=tuple(answer),
                text=str(self._tokenizer.decode(np.asarray(answer, np.int32))),
                ended=ended,
                prompt_tokens=len(tokens) if depth is None else 0,
                cached_tokens=depth or 0,
                output_tokens=len(answer),
            )

        return query

    def _generate(self, generator: Any, tokens: NDArray[np.int32], limits: Limits, stamp: Stamp) -> tuple[list[int], Ended]:
        answer: list[int] = []
        step, next_tokens = generator.generate_next_token, generator.get_next_tokens
        generator.append_tokens(tokens)
        while True:
            step()
            token = int(next_tokens()[0])
            stamp(1)
            answer.append(token)
            if not limits.ignore_end and token in self._ends:
                return answer, "end_of_text"
            if limits.stops and any(stop in self._tokenizer.decode(np.asarray(answer, np.int32)) for stop in limits.stops):
                return answer, "stop"
            if len(answer) == limits.output_tokens:
                return answer, "length"

    def _generator(self, context_tokens: int, min_length: int = 0) -> Any:
        params = self._library.GeneratorParams(self._model)
        params.set_search_options(max_length=context_tokens, min_length=min_length, do_sample=False, num_beams=1, batch_size=1)
        try:
            return self._library.Generator(self._model, params)
        except RuntimeError as error:
            raise ConfigError(f"onnxruntime-genai cannot make a context of {context_tokens} tokens: {one_line(error)}") from error

    def likelihoods(self, tokens: Sequence[int]) -> NDArray[np.float64]:
        """Return the log likelihood of each token but the first; see `LikelihoodGenerator`."""
        loaded = self._loaded()
        if len(tokens) < 2:
            raise ConfigError(f"{len(tokens)} tokens have no likelihood: give 2 or more")
        # The last token is only scored.
        context = check_tokens(tokens[:-1], Limits(1), loaded.context_tokens, self._vocabulary)
        check_tokens(tokens[-1:], Limits(1), 2, self._vocabulary)
        generator = self._generator(loaded.context_tokens)
        try:
            generator.append_tokens(np.asarray(context, np.int32))
            logits = np.asarray(generator.get_output("logits"), np.float32)[0]
        except RuntimeError as error:
            raise MeasurementError(f"onnxruntime-genai failed on {len(context)} tokens: {one_line(error)}") from error
        if len(logits) != len(context):
            raise UnavailableError(
                "this model gives the logits of the last position only: build it without pruning, or score its GGUF file"
            )
        return log_likelihoods(logits, tokens)

    def _loaded(self) -> LoadedGenerator:
        if self._found is None:
            raise ConfigError("onnxruntime-genai has no model: load one first")
        return self._found

    def close(self) -> None:
        """Release model and tokenizer."""
        self._filled = self._tokenizer = self._model = self._found = None


def _checked(model: Path, options: Options) -> Mapping[str, Any]:
    """Return the model's part of the configuration; raises ConfigError if it or a setting is wrong, or it cannot be run."""
    check_options("genai", options, backends=("cpu", "config"))
    model_file.head(model)
    try:
        document = json.loads(model.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{str(model)!r} is no {CONFIG} of onnxruntime-genai: {one_line(error)}") from error
    if not isinstance(document, dict) or not isinstance(document.get("model"), dict):
        raise ConfigError(f"{str(model)!r} is no {CONFIG} of onnxruntime-genai: it has no part `model`")
    if model.name != CONFIG:
        raise ConfigError(f"{str(model)!r} has to be called {CONFIG}: the library finds it by that name in its folder")
    described: Mapping[str, Any] = document["model"]
    if "decoder" not in described or "encoder" in described:
        raise ConfigError(f"{str(model)!r} does not generate token by token from a prompt alone: use a decoder-only model")
    return described


def _whole(described: Mapping[str, Any], key: str, model: Path) -> int:
    value = described.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{str(model)!r}: model.{key} is {value!r}, not a whole number of 1 or more: build the folder again")
    return value


def _beside(model: Path, name: str) -> Mapping[str, Any]:
    """Return a JSON object beside the model; empty if there is none, as the library has read what it needs."""
    path = model.with_name(name)
    return json_object(path.read_bytes()) if path.is_file() else {}


def _text_tokens(model: Path) -> NDArray[np.int32]:
    """Return the ids that stand for ordinary text, int32 [n]; empty where the tokenizer's file does not list them."""
    tokenizer = _beside(model, "tokenizer.json")
    listed = part(tokenizer, "model").get("vocab")
    vocabulary = dict(listed) if isinstance(listed, dict) else {str(pair[0]): index for index, pair in enumerate(listed or [])}
    special = {entry.get("id") for entry in tokenizer.get("added_tokens") or []}
    ids = [index for token, index in vocabulary.items() if index not in special and not (token.startswith("<0x") and len(token) == 6)]
    return np.unique(np.asarray(ids, np.int32))


def _precision(model: Path, decoder: Mapping[str, Any]) -> str | None:
    """Return what the decoder's file shows of its weights; None where it has another name or form."""
    name = decoder.get("filename")
    return onnx_file.precision(model.with_name(name)) if isinstance(name, str) and model.with_name(name).is_file() else None
