"""Writes the tiny language model as GGUF (llama.cpp), its weights rounded to 16 bits, and with the quantisations of llama.cpp."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType, GGUFWriter, LlamaFileType
from gguf.quants import quantize
from numpy.typing import NDArray

from edgemeter.models.builder.language import (
    CONTEXT_TOKENS,
    EPSILON,
    FEED_FORWARD,
    HEAD_WIDTH,
    HEADS,
    KV_HEADS,
    LAYERS,
    ROPE_BASE,
    WIDTH,
    TinyLlama,
)
from edgemeter.models.builder.vocabulary import BOS, EOS, Vocabulary

LANGUAGE_NAME = "edgemeter-notes"
GGUF_TYPES: Mapping[str, tuple[GGMLQuantizationType, LlamaFileType]] = {
    "f16": (GGMLQuantizationType.F16, LlamaFileType.MOSTLY_F16),
    "q8_0": (GGMLQuantizationType.Q8_0, LlamaFileType.MOSTLY_Q8_0),
    "q4_0": (GGMLQuantizationType.Q4_0, LlamaFileType.MOSTLY_Q4_0),
}
Weights = Mapping[str, NDArray[np.float32]]


def weights(model: TinyLlama) -> Weights:
    """Return the weights by llama.cpp's names: float32 [outputs, inputs], matrices rounded to 16 bits; vectors as they are."""
    arrays = {name: tensor.detach().numpy().astype(np.float32) for name, tensor in _parameters(model).items()}
    return {name: array.astype(np.float16).astype(np.float32) if array.ndim == 2 else array for name, array in arrays.items()}


def _parameters(model: TinyLlama) -> dict[str, torch.nn.Parameter]:
    parameters = {"token_embd": model.embedding.weight, "output_norm": model.norm.weight, "output": model.output.weight}
    for number, layer in enumerate(model.layers):
        parts: Mapping[str, Any] = {
            "attn_norm": layer.attention_norm,
            "attn_q": layer.attention.q,
            "attn_k": layer.attention.k,
            "attn_v": layer.attention.v,
            "attn_output": layer.attention.output,
            "ffn_norm": layer.ffn_norm,
            "ffn_gate": layer.gate,
            "ffn_up": layer.up,
            "ffn_down": layer.down,
        }
        parameters |= {f"blk.{number}.{name}": part.weight for name, part in parts.items()}
    return parameters


def write_gguf(path: Path, arrays: Weights, vocabulary: Vocabulary, precision: str) -> None:
    """Write a GGUF file whose matrices have the type `precision` of `GGUF_TYPES`, or `f32`."""
    writer = GGUFWriter(path, "llama")
    writer.add_name(LANGUAGE_NAME)
    writer.add_license("Apache-2.0")
    writer.add_context_length(CONTEXT_TOKENS)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(HEAD_WIDTH)
    writer.add_rope_freq_base(ROPE_BASE)
    writer.add_layer_norm_rms_eps(EPSILON)
    writer.add_vocab_size(len(vocabulary.tokens))
    _add_tokenizer(writer, vocabulary)
    kind, file_type = GGUF_TYPES.get(precision, (GGMLQuantizationType.F32, LlamaFileType.ALL_F32))
    writer.add_file_type(file_type)
    writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
    for name, array in arrays.items():
        if array.ndim == 2:
            writer.add_tensor(f"{name}.weight", quantize(array, kind), raw_dtype=kind)
        else:
            writer.add_tensor(f"{name}.weight", array)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _add_tokenizer(writer: GGUFWriter, vocabulary: Vocabulary) -> None:
    kinds = [gguf.TokenType.UNKNOWN, gguf.TokenType.CONTROL, gguf.TokenType.CONTROL, *[gguf.TokenType.BYTE] * 256]
    plain = len(vocabulary.tokens) - len(kinds)
    first_merge = len(kinds) + len(vocabulary.characters)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(list(vocabulary.tokens))
    # llama.cpp joins the pair whose token has the highest score: merges rank by their order.
    writer.add_token_scores([float(first_merge - index) if index >= first_merge else 0.0 for index in range(len(vocabulary.tokens))])
    writer.add_token_types([*kinds, *[gguf.TokenType.NORMAL] * plain])
    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(False)
    writer.add_add_space_prefix(False)
