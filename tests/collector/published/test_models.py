import pytest

from edgemeter.collector.published.models import facts_of, least_bits


@pytest.mark.parametrize(
    ("name", "reads", "gop"),
    [
        ("Llama-3.2-3B-Instruct-Q4_K_M.gguf", 3_212_749_824, None), ("llama3.2:3b", 3_212_749_824, None),
        ("Qwen3-30B-A3B-GPTQ-Int4", 3e9, None), ("Gemma-4-E2B", 1.8e9, None), ("YOLO11n", None, 6.5), ("yolov8s", None, 28.6),
    ],
)  # fmt: skip
def test_a_model_is_known_by_any_spelling(name, reads, gop):
    """With its precision and form of file."""
    facts = facts_of(name)
    assert (facts.reads, facts.gop) == (reads, gop)


@pytest.mark.parametrize(
    "name", ["Llama 3.2", "Llama-3.2-3B-pruned", "Qwen3-VL-8B", "YOLO11n-seg", "Qwen3-30B", "SomeNet 3B", "yolo11nano"]
)
def test_a_name_with_more_or_fewer_words_has_no_facts(name):
    """A wrong bound is worse than none."""
    assert facts_of(name) is None


@pytest.mark.parametrize(
    ("precision", "bits"),
    [
        ("Q4_K_M", 4.5),
        ("Q8_0", 8.5),
        ("INT4 GPTQ", 4),
        ("w8a8", 8),
        ("w4a16", 4),
        ("FP32", 32),
        ("4 bit", 4),
        ("NVFP4", 4),
        ("mixed", None),
    ],
)
def test_a_precision_states_the_bits_of_a_weight_at_least(precision, bits):
    """Of llama.cpp's types with the scale of a block."""
    assert least_bits(precision) == bits
