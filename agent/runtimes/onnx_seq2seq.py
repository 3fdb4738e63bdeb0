"""Encoder and decoder in two ONNX files, as Hugging Face Optimum exports Whisper: `encoder_model.onnx`, `decoder_model.onnx` beside it.

The runtime `onnx` runs them as one model: its input is the encoder's, its output the tokens. One call encodes once, then decodes greedily,
a token a step, until the end token or the limit; what is timed is all of it. The decoder takes all tokens so far at every step
(`decoder_model.onnx` of Optimum, without a KV cache), so that long texts cost more than an engine with a cache would need.
Start, forced and suppressed tokens, the end and the limit stand in `generation_config.json` beside the files, by Hugging Face's names.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError, MeasurementError
from edgemeter.agent.base.foreign_text import decode_json
from edgemeter.agent.contract.model_file import DECODER, ENCODER, GENERATION_CONFIG, TOKENIZERS
from edgemeter.agent.runtimes import TensorInfo

# Whisper's own limit.
_MOST_TOKENS = 448
TOKENS = TensorInfo("tokens", (1, None), "int64")
Run = Callable[[list[str] | None, Mapping[str, Any]], list[Any]]


class GenerationConfig(msgspec.Struct, frozen=True, kw_only=True):
    """The part of generation_config.json that determines greedy decoding; other keys are ignored."""

    decoder_start_token_id: int
    eos_token_id: int | list[int]
    max_length: int = _MOST_TOKENS
    forced_decoder_ids: list[tuple[int, int | None]] | None = None
    suppress_tokens: list[int] | None = None
    begin_suppress_tokens: list[int] | None = None


def decoder_of(model: Path) -> tuple[Path, GenerationConfig] | None:
    """Return the decoder's file of an encoder and how it decodes; None of any other model.

    Raises:
        ConfigError: generation_config.json is absent or wrong.
    """
    decoder = model.with_name(DECODER)
    if model.name != ENCODER or not decoder.is_file():
        return None
    path = model.with_name(GENERATION_CONFIG)
    try:
        return decoder, decode_json(path.read_bytes(), GenerationConfig)
    except OSError as error:
        raise ConfigError(f"cannot read {str(path)!r}: {error.strerror}: it names the start and end of a text; copy it there") from error
    except msgspec.MsgspecError as error:
        raise ConfigError(f"{str(path)!r}: {error}: fetch it again") from error


def tokenizer_texts(model: Path) -> dict[str, str]:
    """Return the tokenizer's file beside the model, by its name; nothing where there is none, or none that can be read."""
    for path in (model.with_name(name) for name in TOKENIZERS):
        try:
            return {path.name: path.read_text(encoding="utf-8")}
        except (OSError, UnicodeDecodeError):
            continue
    return {}


class GreedyDecoder:
    """Encodes and decodes with two sessions' `run`."""

    def __init__(self, encode: Run, decode: Run, names: tuple[str, ...], config: GenerationConfig) -> None:
        """Take the calls of both files and the names of the decoder's inputs.

        Raises:
            ConfigError: the decoder takes something else than the tokens and what the encoder gave.
        """
        states = [name for name in names if name != "input_ids"]
        if "input_ids" not in names or len(states) != 1:
            raise ConfigError(
                f"the decoder {DECODER!r} takes {', '.join(names)}; input_ids and encoder_hidden_states are right: export it without a "
                "cache (not decoder_with_past, not merged)"
            )
        self._encode, self._decode, self._states, self._config = encode, decode, states[0], config
        ends = config.eos_token_id
        self._ends = frozenset(ends if isinstance(ends, list) else [ends])
        self._forced = {position: token for position, token in config.forced_decoder_ids or () if token is not None}

    def run(self, _names: list[str], feeds: Mapping[str, Any]) -> list[NDArray[np.int64]]:
        """Return the one output, as a session does: the tokens of a text, int64 [1, n], from the start token on, without the end."""
        states = self._encode(None, feeds)[0]
        tokens = [self._config.decoder_start_token_id]
        while len(tokens) < self._config.max_length:
            token = self._forced.get(len(tokens))
            if token is None:
                logits = self._decode(["logits"], {"input_ids": np.array([tokens], np.int64), self._states: states})[0]
                token = self._best(np.array(logits[0, -1], np.float32), len(tokens))
            if token in self._ends:
                break
            tokens.append(token)
        return [np.array([tokens], np.int64)]

    def _best(self, logits: NDArray[np.float32], position: int) -> int:
        if not np.isfinite(logits).any():
            raise MeasurementError(f"the decoder {DECODER!r} gives no number for any token: export the model again")
        suppressed = [*(self._config.suppress_tokens or ())]
        if position == 1 + len(self._forced):
            suppressed += self._config.begin_suppress_tokens or ()
        logits[[token for token in suppressed if 0 <= token < len(logits)]] = -np.inf
        return int(np.nanargmax(logits))
