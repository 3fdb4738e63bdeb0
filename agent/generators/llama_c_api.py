"""The C API of llama.cpp by ctypes, out of the shared object that the package xllamacpp brings.

Parameters are structs whose layout changes from build to build. Here they are opaque: a build fills them with its defaults, and a field is
found by the defaults around it, which have stayed the same for years. Where they are not found the build is refused: a wrong offset would
set another field. Source: include/llama.h of llama.cpp.
"""

import ctypes
import re
import struct
from collections.abc import Sequence
from ctypes import CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_double, c_int, c_int8, c_int32, c_uint8, c_uint32, c_void_p
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import UnavailableError

# More than any build's structs have.
_PARAMS_BYTES = 1024
AUTOMATIC, OFF, ON = -1, 0, 1
KV_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q5_0": 6, "q5_1": 7, "q8_0": 8, "bf16": 30}

LogCallback = CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_ERROR_LEVEL = 4


class LlamaParams(Structure):
    """The parameters of a model or a context, opaque."""

    _fields_ = (("raw", c_uint8 * _PARAMS_BYTES),)

    def set(self, code: str, at: int, value: float) -> None:
        """Set the field at byte `at`; `code` is its struct format."""
        struct.pack_into(f"<{code}", self.raw, at, value)


class LlamaBatch(Structure):
    """Tokens to process: with null pointers they belong to sequence 0 at the next positions, and only the last gives logits."""

    _fields_ = (
        ("n_tokens", c_int32), ("token", POINTER(c_int32)), ("embd", c_void_p), ("pos", POINTER(c_int32)), ("n_seq_id", c_void_p),
        ("seq_id", c_void_p), ("logits", POINTER(c_int8)),
    )  # fmt: skip


class LlamaTimings(Structure):
    """The engine's own timings since they were reset, ms and tokens; a batch of one token counts as decoding."""

    _fields_ = (
        ("t_start_ms", c_double), ("t_load_ms", c_double), ("t_p_eval_ms", c_double), ("t_eval_ms", c_double),
        ("n_p_eval", c_int32), ("n_eval", c_int32), ("n_reused", c_int32),
    )  # fmt: skip


# By what they return and take: the functions.
_SIGNATURES: Sequence[tuple[Any, Sequence[Any], str]] = (
    (None, (), "llama_backend_init"),
    (None, (LogCallback, c_void_p), "llama_log_set"),
    (None, (c_void_p,), "llama_model_free llama_free llama_perf_context_reset"),
    (None, (c_void_p, c_int32, c_int32), "llama_set_n_threads"),
    (None, (c_void_p, c_bool), "llama_memory_clear"),
    (c_char_p, (), "llama_print_system_info"),
    (c_char_p, (c_void_p, c_int32), "llama_vocab_get_text"),
    (c_bool, (), "llama_supports_gpu_offload"),
    (c_bool, (c_void_p,), "llama_model_has_encoder llama_model_is_diffusion llama_vocab_get_add_bos"),
    (c_bool, (c_void_p, c_int32), "llama_vocab_is_eog"),
    (c_uint32, (c_void_p,), "llama_n_ctx llama_n_batch llama_n_ubatch"),
    (c_int32, (c_void_p,), "llama_model_n_layer llama_vocab_n_tokens llama_vocab_bos llama_vocab_eos"),
    (c_int32, (c_void_p, LlamaBatch), "llama_decode"),
    (c_int32, (c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool), "llama_tokenize"),
    (c_int32, (c_void_p, POINTER(c_int32), c_int32, c_char_p, c_int32, c_bool, c_bool), "llama_detokenize"),
    (c_void_p, (c_void_p,), "llama_model_get_vocab llama_get_memory"),
    (c_void_p, (c_void_p, c_int32), "llama_get_logits_ith"),
    (c_void_p, (c_char_p, LlamaParams), "llama_model_load_from_file"),
    (c_void_p, (c_void_p, LlamaParams), "llama_init_from_model"),
    (LlamaParams, (), "llama_model_default_params llama_context_default_params"),
    (LlamaTimings, (c_void_p,), "llama_perf_context"),
)


def open_library(path: Path) -> Any:
    """Return the shared object with the signatures of the functions that are used.

    Raises:
        UnavailableError: it cannot be opened, or lacks one of them.
    """
    try:
        library = ctypes.CDLL(str(path))
        for returns, takes, names in _SIGNATURES:
            for name in names.split():
                function = getattr(library, name)
                function.restype, function.argtypes = returns, tuple(takes)
    except (OSError, AttributeError) as error:
        raise _unknown(f"{path.name}: {error}") from error
    return library


class EngineLog:
    """The log of the engine, `callback` for `llama_log_set`: nothing of it is printed, some of it is available from nowhere else."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.errors: list[str] = []
        self.callback = LogCallback(self._take)

    def _take(self, level: int, text: bytes | None, _: object) -> None:
        line = (text or b"").decode(errors="replace")
        self.lines.append(line)
        if level == _ERROR_LEVEL:
            self.errors.append(line)

    def last_error(self) -> str:
        """Return the first error that was logged, which names the cause, in one line."""
        return " ".join(self.errors[0].split())[:300] if self.errors else "it gives no reason"

    def search(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """Return the last line that matches."""
        return next((match for line in reversed(self.lines) if (match := pattern.search(line))), None)


def model_params(library: Any, gpu_layers: int) -> LlamaParams:
    """Return the parameters of a model of which `gpu_layers` layers go to the GPU; -1: all.

    Raises:
        UnavailableError: this build's struct is another than the one that is known.
    """
    params: LlamaParams = library.llama_model_default_params()
    # Two pointers, then n_gpu_layers and split_mode (by layer).
    devices, overrides, layers, split_mode = struct.unpack_from("<QQii", params.raw)
    if devices or overrides or layers not in (-1, 0, 99, 999) or split_mode != 1:
        raise _unknown("llama_model_params")
    params.set("i", 16, gpu_layers)
    return params


def context_params(library: Any, *, tokens: int, batch: int, ubatch: int, kv_type: str, flash_attention: int, offload: bool) -> LlamaParams:
    """Return the parameters of a context: its sizes in tokens, the type of its cache, flash attention, whether a GPU takes part.

    The engine's own timings are switched on.

    Raises:
        UnavailableError: this build's struct is another than the one that is known.
    """
    params: LlamaParams = library.llama_context_default_params()
    raw = bytes(params.raw)
    if struct.unpack_from("<III", raw) != (512, 2048, 512):
        raise _unknown("llama_context_params")
    # rope, pooling, attention and flash attention: all "automatic".
    flash_at = raw.find(struct.pack("<iiii", *[AUTOMATIC] * 4), 16, 96) + 12
    # The types of keys and values (f16), some null pointers, then: embeddings, offload_kqv, no_perf, op_offload.
    types_at = raw.find(struct.pack("<ii", 1, 1), flash_at, 256)
    flags_at = raw.find(struct.pack("<????", False, True, True, True), types_at + 24, types_at + 48)
    if flash_at < 28 or flash_at % 4 or types_at < 0 or types_at % 8 or flags_at % 8 or any(raw[types_at + 8 : flags_at]):
        raise _unknown("llama_context_params")
    for index, size in enumerate((tokens, batch, ubatch)):
        params.set("I", 4 * index, size)
    params.set("i", flash_at, flash_attention)
    params.set("i", types_at, KV_TYPES[kv_type])
    params.set("i", types_at + 4, KV_TYPES[kv_type])
    params.set("?", flags_at + 1, offload)
    params.set("?", flags_at + 2, False)
    params.set("?", flags_at + 3, offload)
    return params


def batch_of(tokens: "ctypes.Array[c_int32]", start: int, count: int, positions: "ctypes.Array[c_int32] | None" = None) -> LlamaBatch:
    """Return `count` of the tokens from `start` on as a batch, at the next positions or at these; the arrays have to outlive it."""
    pointers = [None if array is None else ctypes.cast(ctypes.byref(array, start * 4), POINTER(c_int32)) for array in (tokens, positions)]
    return LlamaBatch(count, pointers[0], None, pointers[1], None, None, None)


def _unknown(subject: str) -> UnavailableError:
    return UnavailableError(
        f"this build of llama.cpp is not one that is known here ({subject}): install the version that this edgemeter was tested with: "
        "pip install 'edgemeter[llama]'"
    )
