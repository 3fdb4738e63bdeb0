"""Reads the header of a GGUF file: whether it is complete, what model it holds, and how its weights are quantised.

Every length is checked: a broken file ends as an error here, where C++ may end the process.
Source: the GGUF specification of ggml (docs/gguf.md); block sizes of the tensor types: ggml-common.h; file types: `llama_ftype`.
"""

import hashlib
import re
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_file

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_ALIGNMENT = 32
# More than any model has; a garbled count ends here and not in a loop over billions.
_MOST_ENTRIES = 1 << 20
_MOST_STRING = 1 << 24

# Tensor types by number: name, weights in a block, bytes of a block.
TENSOR_TYPES: Mapping[int, tuple[str, int, int]] = {
    0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 6: ("Q5_0", 32, 22), 7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34), 9: ("Q8_1", 32, 40), 10: ("Q2_K", 256, 84), 11: ("Q3_K", 256, 110), 12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176), 14: ("Q6_K", 256, 210), 15: ("Q8_K", 256, 292), 16: ("IQ2_XXS", 256, 66), 17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98), 19: ("IQ1_S", 256, 50), 20: ("IQ4_NL", 32, 18), 21: ("IQ3_S", 256, 110), 22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136), 24: ("I8", 1, 1), 25: ("I16", 1, 2), 26: ("I32", 1, 4), 27: ("I64", 1, 8), 28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56), 30: ("BF16", 1, 2), 34: ("TQ1_0", 256, 54), 35: ("TQ2_0", 256, 66), 39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36), 41: ("Q1_0", 128, 18),
}  # fmt: skip

# What the file says that it is as a whole (`general.file_type`).
FILE_TYPES: Mapping[int, str] = {
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M", 13: "Q3_K_L",
    14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS", 21: "Q2_K_S", 22: "IQ3_XS",
    23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S", 29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16",
    36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4_MOE", 39: "NVFP4", 40: "Q1_0",
}  # fmt: skip
_BLOCK = re.compile(r"blk\.(\d+)\.")
# By number: struct code; 8 is a string, 9 an array.
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
_NORMAL, _BYTE = 1, 6


class Quantisation(NamedTuple):
    """How a model file stores its weights: the quantisation's name in the file, e.g. Q4_K_M, and the share of bytes by tensor type."""

    file_type: str
    bytes_ratio: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class GgufTensor:
    """One tensor: its type's name, the number of its weights and its bytes."""

    name: str
    kind: str
    weights: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GgufModel:
    """The content of the header: `values` by key (texts, numbers, arrays of numbers; arrays of texts are only counted), and the tensors."""

    values: Mapping[str, Any]
    tensors: tuple[GgufTensor, ...]
    tokenizer_sha256: str | None
    token_count: int

    @property
    def architecture(self) -> str:
        """Return the architecture, e.g. llama."""
        return str(self.values.get("general.architecture", "unknown"))

    def number(self, key: str) -> int | None:
        """Return the whole number of `ARCHITECTURE.key`, None where there is none or it differs by layer."""
        value = self.values.get(f"{self.architecture}.{key}")
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def quantisation(self) -> Quantisation:
        """Return how the weights are stored."""
        sizes: Counter[str] = Counter()
        for tensor in self.tensors:
            sizes[tensor.kind] += tensor.size_bytes
        file_type = FILE_TYPES.get(self.values.get("general.file_type", -1))
        largest_kind = sizes.most_common(1)[0][0] if sizes else "unknown"
        shares = {kind: size / sizes.total() for kind, size in sizes.most_common()}
        return Quantisation(file_type=file_type or largest_kind, bytes_ratio=shares)

    def text_tokens(self) -> NDArray[np.int32]:
        """Return the ids of tokens that stand for text (normal ones and bytes), int32 [n]; all where the file has no types."""
        kinds = self.values.get("tokenizer.ggml.token_type")
        if not isinstance(kinds, np.ndarray):
            return np.arange(self.token_count, dtype=np.int32)
        return np.flatnonzero((kinds == _NORMAL) | (kinds == _BYTE)).astype(np.int32)

    def weights_mb(self) -> float:
        """Return the bytes of the weights that one token passes, MB."""
        return sum(tensor.size_bytes * self._read_ratio(tensor) for tensor in self.tensors) / 1e6

    def read_parameters(self) -> int:
        """Return the number of weights that every token passes: of a mixture the experts used, no table of inputs or outputs."""
        layers = [tensor for tensor in self.tensors if tensor.name not in ("token_embd.weight", "output.weight")]
        return round(sum(tensor.weights * self._read_ratio(tensor) for tensor in layers))

    @property
    def layers(self) -> int | None:
        """Return the number of blocks that are run: the last ones may predict further tokens (MTP), and are only loaded."""
        blocks = self.number("block_count")
        return None if blocks is None else blocks - (self.number("nextn_predict_layers") or 0)

    def _read_ratio(self, tensor: GgufTensor) -> float:
        # Of these tables a token takes one row.
        if tensor.name == "per_layer_token_embd.weight":
            return 0.0
        if tensor.name == "token_embd.weight" and any(other.name == "output.weight" for other in self.tensors):
            return 0.0
        block = _BLOCK.match(tensor.name)
        if block and self.layers is not None and int(block[1]) >= self.layers:
            return 0.0
        experts, used = self.number("expert_count"), self.number("expert_used_count")
        return used / experts if "_exps" in tensor.name and experts and used else 1.0

    def kv_cache_mb(self, context_tokens: int, bytes_per_value: float) -> float | None:
        """Return the size of the cache in MB: keys and values of every layer for `context_tokens`; None if the file does not tell."""
        layers, heads, width = self.layers, self.number("attention.head_count"), self.number("embedding_length")
        by_layer = self.values.get(f"{self.architecture}.attention.head_count_kv", heads)
        if not layers or not heads or not width or by_layer is None:
            return None
        # Of a hybrid model every n-th layer attends; the others hold a state of one size.
        interval = self.number("full_attention_interval") or 1
        is_array = isinstance(by_layer, np.ndarray)
        kv_heads = int(by_layer[:layers][interval - 1 :: interval].sum()) if is_array else layers // interval * int(by_layer)
        # Latent attention (MLA) takes its values out of the keys.
        value_length = 0 if self.number("attention.key_length_mla") else self.number("attention.value_length") or width // heads
        length = (self.number("attention.key_length") or width // heads) + value_length
        return kv_heads * length * bytes_per_value * context_tokens / 1e6

    @property
    def has_window(self) -> bool:
        """Return whether layers attend to the last tokens only, so that a step does not read the whole cache."""
        return bool(self.values.get(f"{self.architecture}.attention.sliding_window"))


def read(model: Path) -> GgufModel:
    """Return the header of the GGUF file `model`.

    Raises:
        ConfigError: it is no GGUF file, one of another version or a part of a split one, is cut off or garbled.
    """
    start = model_file.head(model)
    if not start.startswith(MAGIC):
        raise ConfigError(f"{str(model)!r} is not a GGUF file: it does not begin with GGUF; convert the model, or fetch it again")
    try:
        with model.open("rb") as file, mmap(file.fileno(), 0, access=ACCESS_READ) as data:
            header = _GgufReader(data).model()
    except ValueError as error:
        raise ConfigError(f"{str(model)!r} is cut off or garbled: {error}; fetch it again") from error
    except OSError as error:
        raise ConfigError(f"cannot read the model {str(model)!r}: {error.strerror}") from error
    if header.values.get("split.count", 0) > 1:
        raise ConfigError(f"{str(model)!r} is one part of {header.values['split.count']}: join them into one file with llama-gguf-split")
    return header


@dataclass(slots=True)
class _GgufReader:
    """Reads one value after the other."""

    data: mmap
    at: int = 0
    tokenizer: Any = field(default_factory=hashlib.sha256)
    tokens: int = 0

    def model(self) -> GgufModel:
        self.at = len(MAGIC)
        version = self.number("I")
        if version not in VERSIONS:
            raise ValueError(f"it has version {version}, not 2 or 3 in little-endian order")
        tensor_count, value_count = self.count("tensors"), self.count("values")
        values: dict[str, Any] = {}
        for _ in range(value_count):
            key = self.string()
            begin = self.at
            values[key] = self.value(self.number("I"))
            if key.startswith("tokenizer."):
                self.tokenizer.update(key.encode() + self.data[begin : self.at])
            if key == "tokenizer.ggml.tokens":
                self.tokens = int(values[key])
        has_tokenizer = any(key.startswith("tokenizer.") for key in values)
        tensors = self.tensors(tensor_count, int(values.get("general.alignment", _ALIGNMENT)))
        return GgufModel(values, tensors, self.tokenizer.hexdigest() if has_tokenizer else None, self.tokens)

    def tensors(self, count: int, alignment: int) -> tuple[GgufTensor, ...]:
        tensors, ends = [], [0]
        for _ in range(count):
            name = self.string()
            dimensions = self.number("I")
            if dimensions > 8:
                raise ValueError(f"tensor {name!r} has {dimensions} dimensions")
            weights = prod(self.number("Q") for _ in range(dimensions))
            number, offset = self.number("I"), self.number("Q")
            if number not in TENSOR_TYPES:
                raise ValueError(f"tensor {name!r} has the unknown type {number}")
            kind, block, block_bytes = TENSOR_TYPES[number]
            size = -(-weights // block) * block_bytes
            tensors.append(GgufTensor(name, kind, weights, size))
            ends.append(offset + size)
        if alignment < 1:
            raise ValueError(f"its alignment is {alignment}")
        needed_bytes = -(-self.at // alignment) * alignment + max(ends)
        if needed_bytes > len(self.data):
            raise ValueError(f"its tensors need {needed_bytes:,} bytes, the file has {len(self.data):,}")
        return tuple(tensors)

    def number(self, code: str) -> int:
        begin, size = self.at, struct.calcsize(f"<{code}")
        if begin + size > len(self.data):
            raise ValueError(f"it ends at byte {len(self.data):,}, within its header")
        self.at += size
        value: int = struct.unpack_from(f"<{code}", self.data, begin)[0]
        return value

    def count(self, subject: str) -> int:
        number = self.number("Q")
        if number > _MOST_ENTRIES:
            raise ValueError(f"it claims {number:,} {subject}")
        return number

    def skip_string(self) -> None:
        length = self.number("Q")
        if length > _MOST_STRING or self.at + length > len(self.data):
            raise ValueError(f"a text at byte {self.at:,} would have {length:,} bytes")
        self.at += length

    def string(self) -> str:
        begin = self.at + 8
        self.skip_string()
        return self.data[begin : self.at].decode("utf-8", "replace")

    def value(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array()
        if kind not in _SCALARS:
            raise ValueError(f"a value at byte {self.at:,} has the unknown type {kind}")
        return self.number(_SCALARS[kind])

    def array(self) -> Any:
        """Return an array of numbers; of texts only their number."""
        kind, length = self.number("I"), self.number("Q")
        if kind == _STRING:
            if length > len(self.data):
                raise ValueError(f"it claims {length:,} texts")
            for _ in range(length):
                self.skip_string()
            return length
        if kind not in _SCALARS:
            raise ValueError(f"an array at byte {self.at:,} has the unknown type {kind}")
        dtype = np.dtype(_SCALARS[kind]).newbyteorder("<")
        if length * dtype.itemsize > len(self.data) - self.at:
            raise ValueError(f"an array at byte {self.at:,} would have {length:,} values")
        values = np.frombuffer(self.data[self.at : self.at + length * dtype.itemsize], dtype)
        self.at += length * dtype.itemsize
        return values
