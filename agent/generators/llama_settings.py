"""The settings of llama.cpp that a case may have: their names, defaults and limits."""

from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.generators import llama_c_api as api
from edgemeter.agent.generators.gguf_file import TENSOR_TYPES, GgufModel
from edgemeter.agent.machine.load import read_memory
from edgemeter.agent.machine.machine import THIS_MACHINE
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.adapter import check_options

_NAMES = ("gpu_layers", "batch", "ubatch", "kv_type", "flash_attention")
_BATCH, _UBATCH = 2048, 512
FLASH_ATTENTION = {"auto": api.AUTOMATIC, "on": api.ON, "off": api.OFF}


class LlamaSettings:
    """The settings of `Options.extra`; backend and settings are checked."""

    def __init__(self, options: Options) -> None:
        check_options("llama", options, backends=("cpu", "gpu"), extra=_NAMES)
        extra = options.extra
        self.gpu_layers = _whole(extra, "gpu_layers", -1, lowest=0)
        self.batch = _whole(extra, "batch", _BATCH)
        self.ubatch = min(_whole(extra, "ubatch", _UBATCH), self.batch)
        self.kv_type = _one_of(extra, "kv_type", "f16", api.KV_TYPES)
        self.flash_attention = _one_of(extra, "flash_attention", "auto", FLASH_ATTENTION)

    @property
    def kv_bytes(self) -> float:
        """Bytes of a value in the cache."""
        _, weights, size = TENSOR_TYPES[api.KV_TYPES[self.kv_type]]
        return size / weights


def _whole(extra: Any, name: str, default: int, lowest: int = 1) -> int:
    text = extra.get(name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < lowest:
        raise ConfigError(f"runtime 'llama': {name} is {text!r}: give a whole number, {lowest} or more")
    return int(text)


def _one_of(extra: Any, name: str, default: str, allowed: Any) -> str:
    text: str = extra.get(name, default)
    if text not in allowed:
        raise ConfigError(f"runtime 'llama': {name} is {text!r}: choose one of {', '.join(allowed)}")
    return text


def check_size(model: Path, header: GgufModel, context_tokens: int, settings: LlamaSettings) -> None:
    """Return when the context is one that the model was made for and, with the weights, fits into memory.

    Raises:
        ConfigError: it is longer, or does not fit.
    """
    trained = header.number("context_length")
    if trained is not None and context_tokens > trained:
        raise ConfigError(
            f"{str(model)!r} was trained for a context of {trained} tokens, {context_tokens} are needed: shorten prompt or output"
        )
    weights_mb = sum(tensor.size_bytes for tensor in header.tensors) / 1e6
    cache_mb, free_mb = header.kv_cache_mb(context_tokens, settings.kv_bytes) or 0.0, read_memory(THIS_MACHINE).available_mb
    if free_mb is not None and weights_mb + cache_mb > free_mb:
        raise ConfigError(
            f"{str(model)!r} needs {weights_mb:,.0f} MB for weights and {cache_mb:,.0f} MB for a context of {context_tokens} tokens, "
            f"{free_mb:,.0f} MB of memory are free: use a shorter context, a smaller kv_type, or a smaller model"
        )
