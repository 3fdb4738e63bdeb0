from edgemeter.collector.published.models import facts_of, least_bits
from tests.fixtures.rows import table_row


def test_a_model_is_known_by_any_spelling():
    """The name may have a precision and a form of file.

    With a word more or less it is unknown, as a wrong bound is worse than none.
    """
    for name, reads, gop in (
        ("Llama-3.2-3B-Instruct-Q4_K_M.gguf", 3_212_749_824, None),
        ("llama3.2:3b", 3_212_749_824, None),
        ("Qwen3-30B-A3B-GPTQ-Int4", 3e9, None),
        ("Gemma-4-E2B", 1.8e9, None),
        ("YOLO11n", None, 6.5),
        ("yolov8s", None, 28.6),
    ):
        with table_row(name):
            facts = facts_of(name)
            assert (facts.reads, facts.gop) == (reads, gop)
    names = (
        "Llama 3.2",
        "Llama-3.2-3B-pruned",
        "Qwen3-VL-8B",
        "YOLO11n-seg",
        "Qwen3-30B",
        "SomeNet 3B",
        "yolo11nano",
    )
    assert [name for name in names if facts_of(name) is not None] == []


def test_a_precision_states_the_bits_of_a_weight_at_least():
    """For llama.cpp's types the bits include the scale of a block."""
    bits = {
        "Q4_K_M": 4.5,
        "Q8_0": 8.5,
        "INT4 GPTQ": 4,
        "w8a8": 8,
        "w4a16": 4,
        "FP32": 32,
        "4 bit": 4,
        "NVFP4": 4,
        "mixed": None,
    }
    assert {precision: least_bits(precision) for precision in bits} == bits
