"""Quantises a GGUF file of 16 or 32 bits to the types that the package gguf computes: Q8_0, Q5_1, Q5_0, Q4_1, Q4_0.

All matrices get the one type; vectors, and the matrix that chooses the experts of a mixture, stay as they are. llama.cpp's own tool keeps
the output matrix in more bits (Q6_K), so that its file of the same name is a little larger and better; xllamacpp does not offer it. The
file's other contents (tokenizer, chat template, lengths) are copied.
"""

import re
from pathlib import Path
from typing import Any

from edgemeter.agent.base.errors import ConfigError, one_line, os_error_as
from edgemeter.agent.base.plugins import import_extra

TYPES = ("q8_0", "q5_1", "q5_0", "q4_1", "q4_0")
_FROM = ("F16", "BF16", "F32")
# What is written anew; the rest of the header is copied.
_OWN = ("GGUF.version", "GGUF.tensor_count", "GGUF.kv_count", "general.architecture", "general.file_type", "general.quantization_version")
_KEPT = ("ffn_gate_inp",)
_PRECISION = re.compile(r"[._-](?:b?f16|f32)$", re.IGNORECASE)


def quantise(source: Path, kind: str, out: Path) -> Path:
    """Return the file in `out` that holds the model of `source` with its matrices in `kind`, one of `TYPES`.

    Raises:
        UnavailableError: the package gguf is not installed.
        ConfigError: the source is no whole GGUF file or quantised already, or the file cannot be written.
    """
    gguf = import_extra("gguf", "convert", "quantising needs the package gguf")
    try:
        reader = gguf.GGUFReader(source)
        tensors = list(reader.tensors)
    except (OSError, ValueError, IndexError, KeyError) as error:
        raise ConfigError(f"{str(source)!r} cannot be read as GGUF ({one_line(error)}): convert the model, or fetch it again") from error
    quantised = sorted({tensor.tensor_type.name for tensor in tensors} - set(_FROM))
    if quantised:
        raise ConfigError(
            f"{str(source)!r} is quantised already ({', '.join(quantised)}): give the file in 16 or 32 bits that it was made from"
        )
    target = out / f"{_PRECISION.sub('', source.stem)}_{kind}.gguf"
    if target.exists() and target.samefile(source):
        raise ConfigError(f"{str(target)!r} would replace its own source: choose another folder with --output")
    with os_error_as(ConfigError, f"cannot write {str(target)!r}", "choose another folder with --output"):
        out.mkdir(parents=True, exist_ok=True)
        part = target.with_suffix(".part")
        _write(gguf, reader, kind, part)
        part.replace(target)
    return target


def _write(gguf: Any, reader: Any, kind: str, target: Path) -> None:
    target_type = gguf.GGMLQuantizationType[kind.upper()]
    block, _ = gguf.GGML_QUANT_SIZES[target_type]
    # Into a temporary file: a model may be larger than memory.
    writer = gguf.GGUFWriter(target, reader.fields["general.architecture"].contents(), use_temp_file=True)
    for field in reader.fields.values():
        if field.name not in _OWN:
            inner = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(field.name, field.contents(), field.types[0], sub_type=inner)
    writer.add_file_type(gguf.LlamaFileType[f"MOSTLY_{kind.upper()}"])
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for tensor in reader.tensors:
        is_matrix = len(tensor.shape) > 1 and int(tensor.shape[0]) % block == 0 and not any(part in tensor.name for part in _KEPT)
        if is_matrix:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
            writer.add_tensor(tensor.name, gguf.quants.quantize(values, target_type), raw_dtype=target_type)
        else:
            writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
