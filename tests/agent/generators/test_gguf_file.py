"""The GGUF header: what it tells of a model, and that a spoilt one ends in one line."""

import importlib
import struct
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.generators.gguf_file import FILE_TYPES, TENSOR_TYPES, read
from tests.fixtures.rows import in_folders, table_row

TINY = Path(__file__).resolve().parents[2] / "fixtures" / "generators" / "llama.gguf"


def text(value: str) -> bytes:
    """Return a GGUF string."""
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key: str, kind: int, packed: bytes) -> bytes:
    """Return a key with its value."""
    return text(key) + struct.pack("<I", kind) + packed


def numbers(architecture: str, values: dict[str, int]) -> list[bytes]:
    """Return keys of the architecture with their whole numbers."""
    return [entry(f"{architecture}.{key}", 4, struct.pack("<I", value)) for key, value in values.items()]


def tensor(name: str, weights: int, kind: int, offset: int = 0) -> bytes:
    """Return the description of a tensor of one dimension."""
    return text(name) + struct.pack("<IQIQ", 1, weights, kind, offset)


def written(folder: Path, values: list[bytes], tensors: list[bytes], data: int = 0) -> Path:
    """Write a GGUF file with `data` bytes of tensors."""
    path = folder / "model.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values) + b"".join(tensors)
    path.write_bytes(head + bytes(-len(head) % 32 + data))
    return path


def headed(folder: Path, version: int) -> Path:
    """Write the head of a file of this version."""
    (folder / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
    return folder / "model.gguf"


def test_the_header_holds_size_quantisation_and_cache():
    """Weights that a token reads leave the input table out; the cache is keys and values of all layers."""
    model = read(TINY)
    assert model.architecture == "llama"
    assert model.number("context_length") == 256
    quantisation = model.quantisation()
    assert quantisation.file_type == "Q8_0"
    assert sum(quantisation.bytes_ratio.values()) == pytest.approx(1.0)
    table_mb = 268 * 32 * 34 / 32 / 1e6
    assert model.weights_mb() == pytest.approx(sum(tensor.size_bytes for tensor in model.tensors) / 1e6 - table_mb)
    # Of a prompt only the last token passes the table of outputs.
    assert model.read_parameters() == sum(tensor.weights for tensor in model.tensors) - 2 * 268 * 32
    # 2 (keys, values) x 2 layers x 2 heads x 8 x 100 tokens x 2 bytes
    assert model.kv_cache_mb(100, 2) == pytest.approx(2 * 2 * 2 * 8 * 100 * 2 / 1e6)
    assert model.text_tokens().tolist() == list(range(3, 268))


def test_a_tied_input_table_is_read_and_of_a_mixture_only_the_experts_used(tmp_path):
    """Without an output matrix the table of the inputs is the output; 2 of 8 experts are a quarter of their weights."""
    values = [entry("general.architecture", 8, text("mix")), *numbers("mix", {"expert_count": 8, "expert_used_count": 2})]
    tensors = [tensor("token_embd.weight", 1000, 0), tensor("blk.0.ffn_up_exps.weight", 1000, 1, 4000)]
    model = read(written(tmp_path, values, tensors, 6000))
    assert model.weights_mb() == pytest.approx((4000 + 2000 / 4) / 1e6)
    assert model.read_parameters() == 1000 / 4


def test_tables_of_each_layer_and_blocks_that_only_guess_are_not_read_for_a_token(tmp_path):
    """Gemma's E-models look one row up in a table for all layers; of 11 blocks the last predicts further tokens, and is not run."""
    values = [entry("general.architecture", 8, text("e")), *numbers("e", {"block_count": 11, "nextn_predict_layers": 1})]
    names = ("per_layer_token_embd.weight", "blk.1.ffn_up.weight", "blk.9.ffn_up.weight", "blk.10.ffn_up.weight", "output.weight")
    model = read(written(tmp_path, values, [tensor(name, 1000 + index, 0) for index, name in enumerate(names)], 5000))
    assert model.weights_mb() == pytest.approx(4 * (1001 + 1002 + 1004) / 1e6)
    assert model.read_parameters() == 1001 + 1002


def test_layers_that_do_not_attend_and_values_within_keys_take_no_cache(tmp_path):
    """Hybrid models, and those with latent attention (MLA), in f16."""
    for keys, token_bytes in [
        # Qwen3.5 9B: 8 of 32 layers attend, 4 heads of 256 keys and values.
        ({"block_count": 32, "full_attention_interval": 4, "attention.head_count_kv": 4, "attention.key_length": 256}, 32_768),
        # GLM-4.7 Flash: 47 layers, and one that only guesses; the 512 values are a part of the 576 keys.
        (
            {"block_count": 48, "nextn_predict_layers": 1, "attention.head_count_kv": 1, "attention.key_length": 576}
            | {"attention.value_length": 512, "attention.key_length_mla": 256},
            54_144,
        ),
    ]:
        every_key = {"attention.head_count": 16, "embedding_length": 4096} | keys
        values = [entry("general.architecture", 8, text("new")), *numbers("new", every_key)]
        assert read(written(tmp_path, values, [])).kv_cache_mb(1000, 2) == pytest.approx(token_bytes / 1000)


def test_heads_that_differ_by_layer_are_added(tmp_path):
    """A model with fewer key heads in some layers has the smaller cache that it has."""
    values = [entry("general.architecture", 8, text("some"))]
    values += numbers("some", {"block_count": 3, "attention.head_count": 4, "embedding_length": 32})
    values.append(entry("some.attention.head_count_kv", 9, struct.pack("<IQ3i", 5, 3, 4, 2, 0)))
    assert read(written(tmp_path, values, [])).kv_cache_mb(10, 2) == pytest.approx(6 * 16 * 10 * 2 / 1e6)


def test_every_cut_ends_in_one_line(tmp_path):
    """Wherever a file is cut off before the end of its tensors, it is refused with its name."""
    content = TINY.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(1, 300, 17), *range(300, len(content) - 100, 4001)]:
        path.write_bytes(content[:length])
        with pytest.raises(ConfigError, match=r"cut\.gguf") as refusal:
            read(path)
        assert "\n" not in str(refusal.value)


def test_what_cannot_be_is_named(tmp_path):
    """A garbled header is refused with what is wrong in it."""
    for folder, spoil, why in in_folders(
        tmp_path,
        [
            (lambda folder: written(folder, [entry("split.count", 2, struct.pack("<H", 3))], []), "join them into one"),
            (lambda folder: headed(folder, 1), "version"),
            (lambda folder: headed(folder, 4), "version"),
            # Of a machine of the other byte order.
            (lambda folder: headed(folder, 3 << 24), "version"),
            (lambda folder: written(folder, [], [tensor("w", 32, 77)], 64), "unknown type 77"),
            (lambda folder: written(folder, [], [tensor("w", 1 << 40, 0)], 64), "need"),
            (lambda folder: written(folder, [text("k") + struct.pack("<I", 99)], []), "unknown type 99"),
            (lambda folder: written(folder, [entry("k", 9, struct.pack("<IQ", 8, 1 << 60))], []), "claims"),
            (lambda folder: written(folder, [entry("general.alignment", 4, struct.pack("<I", 0))], []), "alignment"),
        ],
    ):
        with table_row(why), pytest.raises(ConfigError, match=why):
            read(spoil(folder))


def test_types_and_their_sizes_are_those_of_the_package_gguf():
    """The tables of numbers equal those of the project that defines them."""
    gguf = importlib.import_module("gguf")
    assert dict(TENSOR_TYPES) == {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    names = {int(kind): kind.name.removeprefix("ALL_").removeprefix("MOSTLY_") for kind in gguf.LlamaFileType if kind.name != "GUESSED"}
    assert dict(FILE_TYPES) == names
