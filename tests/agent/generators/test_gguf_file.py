"""Facts about the GGUF header: what it tells of a model, and that a spoilt one ends in one line."""

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


def tensor(name: str, weights: int, kind: int, offset: int = 0) -> bytes:
    """Return the description of a tensor of one dimension."""
    return text(name) + struct.pack("<IQIQ", 1, weights, kind, offset)


def written(folder: Path, values: list[bytes], tensors: list[bytes], data: int = 0) -> Path:
    """Write a GGUF file with `data` bytes of tensors."""
    path = folder / "model.gguf"
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(values)) + b"".join(values) + b"".join(tensors)
    path.write_bytes(head + bytes(-len(head) % 32 + data))
    return path


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
    values = [
        entry("general.architecture", 8, text("mix")),
        entry("mix.expert_count", 4, struct.pack("<I", 8)),
        entry("mix.expert_used_count", 4, struct.pack("<I", 2)),
    ]
    tensors = [tensor("token_embd.weight", 1000, 0), tensor("blk.0.ffn_up_exps.weight", 1000, 1, 4000)]
    model = read(written(tmp_path, values, tensors, 6000))
    assert model.weights_mb() == pytest.approx((4000 + 2000 / 4) / 1e6)
    assert model.read_parameters() == 1000 / 4


def test_heads_that_differ_by_layer_are_added(tmp_path):
    """A model with fewer key heads in some layers has the smaller cache that it has."""
    values = [entry("general.architecture", 8, text("some"))]
    values += [
        entry(f"some.{key}", 4, struct.pack("<I", value))
        for key, value in {"block_count": 3, "attention.head_count": 4, "embedding_length": 32}.items()
    ]
    values.append(entry("some.attention.head_count_kv", 9, struct.pack("<IQ3i", 5, 3, 4, 2, 0)))
    assert read(written(tmp_path, values, [])).kv_cache_mb(10, 2) == pytest.approx(6 * 16 * 10 * 2 / 1e6)


def test_every_cut_ends_in_one_line(tmp_path):
    """Wherever a file is cut off before the end of its tensors, it is refused with its name."""
    content = TINY.read_bytes()
    path = tmp_path / "cut.gguf"
    for length in [*range(1, 300, 7), *range(300, len(content) - 100, 1009)]:
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
            (lambda folder: written(folder, [], [tensor("w", 32, 77)], 64), "unknown type 77"),
            (lambda folder: written(folder, [], [tensor("w", 1 << 40, 0)], 64), "need"),
            (lambda folder: written(folder, [text("k") + struct.pack("<I", 99)], []), "unknown type 99"),
            (lambda folder: written(folder, [entry("k", 9, struct.pack("<IQ", 8, 1 << 60))], []), "claims"),
            (lambda folder: written(folder, [entry("general.alignment", 4, struct.pack("<I", 0))], []), "alignment"),
        ],
    ):
        with table_row(why), pytest.raises(ConfigError, match=why):
            read(spoil(folder))


def test_another_byte_order_or_version_is_refused(tmp_path):
    """Big-endian files and versions to come are no headers that are known here."""
    path = tmp_path / "model.gguf"
    for version in (1, 4, 3 << 24):
        path.write_bytes(b"GGUF" + struct.pack("<IQQ", version, 0, 0))
        with pytest.raises(ConfigError, match="version"):
            read(path)


def test_types_and_their_sizes_are_those_of_the_package_gguf():
    """The tables of numbers equal those of the project that defines them."""
    gguf = pytest.importorskip("gguf")
    assert dict(TENSOR_TYPES) == {int(kind): (kind.name, *sizes) for kind, sizes in gguf.GGML_QUANT_SIZES.items()}
    names = {int(kind): kind.name.removeprefix("ALL_").removeprefix("MOSTLY_") for kind in gguf.LlamaFileType if kind.name != "GUESSED"}
    assert dict(FILE_TYPES) == names
