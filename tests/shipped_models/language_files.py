"""Writes the tiny language model as GGUF (llama.cpp) and as a folder for onnxruntime-genai.

Both hold the weights rounded to 16 bits, so that they are one model; GGUF also with the quantisations of llama.cpp.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import onnx
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, LlamaFileType
from gguf.quants import dequantize, quantize
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.shipped_models.language import (
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
from tests.shipped_models.vocabulary import BOS, EOS, SPACE, SPECIAL, Vocabulary

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


def read_gguf(path: Path) -> TinyLlama:
    """Return the model in a GGUF file, its weights as they are after rounding."""
    arrays = {tensor.name: dequantize(tensor.data, tensor.tensor_type) for tensor in GGUFReader(path).tensors}
    model = TinyLlama(len(arrays["output.weight"]))
    for name, parameter in _parameters(model).items():
        parameter.data.copy_(torch.tensor(arrays[f"{name}.weight"]))
    return model.eval()


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


def write_genai(folder: Path, arrays: Weights, vocabulary: Vocabulary) -> None:
    """Write `model.onnx`, `genai_config.json` and the tokenizer's files into `folder`."""
    folder.mkdir(parents=True, exist_ok=True)
    graph = helper.make_graph(
        list(_nodes()),
        LANGUAGE_NAME,
        [_value("input_ids", TensorProto.INT64, "batch", "tokens"), _value("attention_mask", TensorProto.INT64, "batch", "total")]
        + [_value(f"past_key_values.{number}.{part}", TensorProto.FLOAT, *_cache("past")) for number, part in _caches()],
        [_value("logits", TensorProto.FLOAT, "batch", "tokens", len(vocabulary.tokens))]
        + [_value(f"present.{number}.{part}", TensorProto.FLOAT, *_cache("total")) for number, part in _caches()],
        list(_constants(arrays)),
    )
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=11, producer_name="edgemeter")
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")
    for name, document in (
        ("genai_config.json", _genai_config(len(vocabulary.tokens))),
        ("tokenizer.json", _tokenizer(vocabulary)),
        ("tokenizer_config.json", _tokenizer_config()),
    ):
        (folder / name).write_text(json.dumps(document, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _value(name: str, kind: int, *shape: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, list(shape))


def _cache(length: str) -> tuple[int | str, ...]:
    return ("batch", KV_HEADS, length, HEAD_WIDTH)


def _caches() -> Iterator[tuple[int, str]]:
    return ((number, part) for number in range(LAYERS) for part in ("key", "value"))


def _constants(arrays: Weights) -> Iterator[onnx.TensorProto]:
    """Yield the weights, matrices as [inputs, outputs] in 16 bits, and the tables of the rotation."""
    for name, array in arrays.items():
        stored = array if array.ndim == 1 or name == "token_embd" else array.T
        yield numpy_helper.from_array(np.ascontiguousarray(stored.astype(np.float16 if array.ndim == 2 else np.float32)), f"{name}.stored")
    yield numpy_helper.from_array(np.array([1], np.int64), "one")
    yield numpy_helper.from_array(np.array(1, np.int64), "axis")
    yield numpy_helper.from_array(np.array(0, np.int64), "zero")
    yield numpy_helper.from_array(np.array(CONTEXT_TOKENS, np.int64), "context")
    rates = ROPE_BASE ** (-np.arange(0, HEAD_WIDTH, 2) / HEAD_WIDTH)
    yield numpy_helper.from_array(rates.astype(np.float32)[None], "rates")
    yield numpy_helper.from_array(np.array([-1, 1], np.int64), "column")


def _nodes() -> Iterator[onnx.NodeProto]:
    """Yield the graph in the order of the data."""
    node = helper.make_node
    for name in _matrices():
        yield node("Cast", [f"{name}.stored"], [name], to=TensorProto.FLOAT)
    yield node("ReduceSum", ["attention_mask", "one"], ["lengths"], keepdims=0)
    yield node("Sub", ["lengths", "axis"], ["last"])
    yield node("Cast", ["last"], ["seqlens_k"], to=TensorProto.INT32)
    yield node("Shape", ["attention_mask"], ["mask_shape"])
    yield node("Gather", ["mask_shape", "axis"], ["total"])
    yield node("Cast", ["total"], ["total_tokens"], to=TensorProto.INT32)
    yield node("Range", ["zero", "context", "axis"], ["positions"])
    yield node("Cast", ["positions"], ["positions_real"], to=TensorProto.FLOAT)
    yield node("Reshape", ["positions_real", "column"], ["positions_column"])
    yield node("Mul", ["positions_column", "rates"], ["angles"])
    yield node("Cos", ["angles"], ["cosines"])
    yield node("Sin", ["angles"], ["sines"])
    yield node("Gather", ["token_embd", "input_ids"], ["x.0"])
    for number in range(LAYERS):
        yield from _layer(number)
    yield _norm(f"x.{LAYERS}", "output_norm.stored", "normed")
    yield node("MatMul", ["normed", "output"], ["logits"])


def _matrices() -> Iterator[str]:
    yield from ("token_embd", "output")
    for number in range(LAYERS):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
            yield f"blk.{number}.{part}"


def _layer(number: int) -> Iterator[onnx.NodeProto]:
    node, layer, x = helper.make_node, f"blk.{number}", f"x.{number}"
    yield _norm(x, f"{layer}.attn_norm.stored", f"{layer}.normed")
    for part in "qkv":
        yield node("MatMul", [f"{layer}.normed", f"{layer}.attn_{part}"], [f"{layer}.{part}"])
    yield node(
        "GroupQueryAttention",
        [
            *(f"{layer}.{part}" for part in "qkv"),
            *(f"past_key_values.{number}.{part}" for part in ("key", "value")),
            *("seqlens_k", "total_tokens", "cosines", "sines"),
        ],
        [f"{layer}.mixed", f"present.{number}.key", f"present.{number}.value"],
        domain="com.microsoft",
        num_heads=HEADS,
        kv_num_heads=KV_HEADS,
        do_rotary=1,
        rotary_interleaved=1,
    )
    yield node("MatMul", [f"{layer}.mixed", f"{layer}.attn_output"], [f"{layer}.attended"])
    yield node("Add", [x, f"{layer}.attended"], [f"{layer}.x"])
    yield _norm(f"{layer}.x", f"{layer}.ffn_norm.stored", f"{layer}.inner")
    yield node("MatMul", [f"{layer}.inner", f"{layer}.ffn_gate"], [f"{layer}.gate"])
    yield node("Sigmoid", [f"{layer}.gate"], [f"{layer}.open"])
    yield node("Mul", [f"{layer}.gate", f"{layer}.open"], [f"{layer}.silu"])
    yield node("MatMul", [f"{layer}.inner", f"{layer}.ffn_up"], [f"{layer}.up"])
    yield node("Mul", [f"{layer}.silu", f"{layer}.up"], [f"{layer}.gated"])
    yield node("MatMul", [f"{layer}.gated", f"{layer}.ffn_down"], [f"{layer}.fed"])
    yield node("Add", [f"{layer}.x", f"{layer}.fed"], [f"x.{number + 1}"])


def _norm(x: str, scale: str, output: str) -> onnx.NodeProto:
    return helper.make_node("RMSNormalization", [x, scale], [output], axis=-1, epsilon=EPSILON)


def _genai_config(vocabulary: int) -> dict[str, Any]:
    return {
        "model": {
            "bos_token_id": BOS,
            "eos_token_id": EOS,
            "pad_token_id": EOS,
            "context_length": CONTEXT_TOKENS,
            "type": "llama",
            "vocab_size": vocabulary,
            "decoder": {
                "filename": "model.onnx",
                "head_size": HEAD_WIDTH,
                "hidden_size": WIDTH,
                "num_attention_heads": HEADS,
                "num_hidden_layers": LAYERS,
                "num_key_value_heads": KV_HEADS,
                "session_options": {"log_id": "onnxruntime-genai", "provider_options": []},
                "inputs": {
                    "input_ids": "input_ids",
                    "attention_mask": "attention_mask",
                    "past_key_names": "past_key_values.%d.key",
                    "past_value_names": "past_key_values.%d.value",
                },
                "outputs": {"logits": "logits", "present_key_names": "present.%d.key", "present_value_names": "present.%d.value"},
            },
        },
        "search": {"do_sample": False, "max_length": CONTEXT_TOKENS, "past_present_share_buffer": True, "num_beams": 1, "top_k": 1},
    }


def _tokenizer(vocabulary: Vocabulary) -> dict[str, Any]:
    """Return the vocabulary as a tokenizer of the Hugging Face library: byte pairs with bytes as the last resort."""
    special = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": index, "content": token, **special} for index, token in enumerate(SPECIAL)],
        "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": SPACE},
        "pre_tokenizer": None,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [BOS], "tokens": ["<s>"]}},
        },
        "decoder": {
            "type": "Sequence",
            "decoders": [
                {"type": "Replace", "pattern": {"String": SPACE}, "content": " "},
                {"type": "ByteFallback"},
                {"type": "Fuse"},
            ],
        },
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": "<unk>",
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": True,
            "byte_fallback": True,
            "ignore_merges": False,
            "vocab": {token: index for index, token in enumerate(vocabulary.tokens)},
            "merges": [f"{first} {right}" for first, right in vocabulary.merges],
        },
    }


def _tokenizer_config() -> dict[str, Any]:
    return {
        "add_bos_token": True,
        "add_eos_token": False,
        "bos_token": "<s>",
        "eos_token": "</s>",
        "unk_token": "<unk>",
        "legacy": False,
        "model_max_length": CONTEXT_TOKENS,
        "tokenizer_class": "LlamaTokenizer",
        "clean_up_tokenization_spaces": False,
    }
