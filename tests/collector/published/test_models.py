import pytest

from edgemeter.collector.published.models import _families, facts_of, is_mixture, least_bits


@pytest.mark.parametrize(
    ("name", "precision", "weights_mb"),
    [
        # Llama 3.2 3B: 28 layers of 100,669,440 weights (q and o 2 x 3,072 x 3,072, k and v 2 x 3,072 x 1,024, three of 3,072 x 8,192, two
        # norms), a norm, and the tied table of 128,256 x 3,072: 3,212,749,824, at half a byte.
        ("Llama 3.2 3B", "4-bit", (28 * 100_669_440 + 3_072 + 128_256 * 3_072) / 2 / 1e6),
        ("llama3.2:3b", "Q4_K_M", (28 * 100_669_440 + 3_072 + 128_256 * 3_072) * 4.5 / 8 / 1e6),
        ("Llama-3.2-3B-Instruct-Q8_0.gguf", None, (28 * 100_669_440 + 3_072 + 128_256 * 3_072) * 8.5 / 8 / 1e6),
        # Llama 3.1 8B: 32 layers of 218,112,000, a norm, and an untied head of 128,256 x 4,096; its input table is not read.
        ("Llama 3.1 8B", "int8", (32 * 218_112_000 + 4_096 + 128_256 * 4_096) / 1e6),
        # TinyLlama: 22 layers of 44,044,288, a norm, a head of 32,000 x 2,048.
        ("TinyLlama-1.1B-Chat", "fp16", (22 * 44_044_288 + 2_048 + 32_000 * 2_048) * 2 / 1e6),
        ("Mixtral-8x7B", "4 bit", 12_600 / 2),
        ("gpt-oss:20b", "MXFP4", 3_500 * 4.25 / 8),
        ("Gemma-4-E2B", "mixed 2/4/8 bit", 1_800 / 4),
    ],
)
def test_a_token_reads_the_weights_of_its_layers_and_head(name, precision, weights_mb):
    """Worked out from the layers, and at least: larger types in a file come on top."""
    assert facts_of(name, precision).weights_mb == pytest.approx(weights_mb, rel=1e-4)


@pytest.mark.parametrize("name", ["phi-4", "phi-4-Q4_K_M.gguf", "mistral", "Mistral-Instruct-v0.3", "TinyLlama chat", "mixtral:8x7b"])
def test_a_family_of_one_size_may_go_without_its_tag(name):
    """With words that name no other model."""
    assert facts_of(name, "int4") is not None


def test_the_active_weights_of_a_mixture_are_counted_by_hand():
    """DeepSeek-R1: 61 x 187.1 x 10^6 of attention, 3 x 396.4 of dense layers, 58 x 398.2 of nine experts and their gate, the head 926.7."""
    millions = 61 * 187.107 + 3 * 396.362 + 58 * 398.197 + 926.7
    assert facts_of("DeepSeek-R1 671B", None).read_parameters / 1e6 == pytest.approx(millions, rel=0.001)


# Layers, width, width within, heads, heads of keys, width of a head, tokens, whether tied, biases, norms of heads, norms of a layer.
SHAPES = {
    "Qwen2.5-0.5B": (24, 896, 4864, 14, 2, 64, 151936, True, True, False, 2),
    "Qwen2.5-1.5B": (28, 1536, 8960, 12, 2, 128, 151936, True, True, False, 2),
    "DeepSeek-R1-Distill-Qwen-1.5B": (28, 1536, 8960, 12, 2, 128, 151936, False, True, False, 2),
    "Qwen2.5-3B": (36, 2048, 11008, 16, 2, 128, 151936, True, True, False, 2),
    "Qwen2.5-7B": (28, 3584, 18944, 28, 4, 128, 152064, False, True, False, 2),
    "Qwen3-0.6B": (28, 1024, 3072, 16, 8, 128, 151936, True, False, True, 2),
    "Qwen3-1.7B": (28, 2048, 6144, 16, 8, 128, 151936, True, False, True, 2),
    "Qwen3-4B": (36, 2560, 9728, 32, 8, 128, 151936, True, False, True, 2),
    "Qwen3-8B": (36, 4096, 12288, 32, 8, 128, 151936, False, False, True, 2),
    "Llama-3.2-1B": (16, 2048, 8192, 32, 8, 64, 128256, True, False, False, 2),
    "Llama-2-13B": (40, 5120, 13824, 40, 40, 128, 32000, False, False, False, 2),
    "Mistral-7B": (32, 4096, 14336, 32, 8, 128, 32000, False, False, False, 2),
    "Gemma 2B": (18, 2048, 16384, 8, 1, 256, 256000, True, False, False, 2),
    "Gemma-2-2B": (26, 2304, 9216, 8, 4, 256, 256000, True, False, False, 4),
    "Gemma-3-270m": (18, 640, 2048, 4, 1, 256, 262144, True, False, True, 4),
    "Gemma-3-1B": (26, 1152, 6912, 4, 1, 256, 262144, True, False, True, 4),
    "Gemma-3-12B": (48, 3840, 15360, 16, 8, 256, 262144, True, False, True, 4),
    "Phi-4-mini": (32, 3072, 8192, 24, 8, 128, 200064, True, False, False, 2),
    "Phi-3.5-mini": (32, 3072, 8192, 32, 32, 96, 32064, False, False, False, 2),
    "SmolLM2-135M": (30, 576, 1536, 9, 3, 64, 49152, True, False, False, 2),
    "SmolLM3-3B": (36, 2048, 11008, 16, 4, 128, 128256, True, False, False, 2),
    "granite-3.3-2b-instruct": (40, 2048, 8192, 32, 8, 64, 49155, True, False, False, 2),
}


@pytest.mark.parametrize("name", SHAPES)
def test_the_parameters_are_those_of_the_shape(name):
    """Each matrix counted: attention, a gated block, norms, the table, and the head where it is another."""
    layers, width, inner, heads, key_heads, head, tokens, is_tied, has_bias, has_head_norms, norms = SHAPES[name]
    attention = 2 * width * heads * head + 2 * width * key_heads * head
    attention += (heads + 2 * key_heads) * head if has_bias else 0
    attention += 2 * head if has_head_norms else 0
    total = layers * (attention + 3 * width * inner + norms * width) + width + tokens * width * (1 if is_tied else 2)
    facts = facts_of(name, None)
    assert facts.parameters == total
    assert facts.read_parameters == total - (0 if is_tied else tokens * width)


def test_a_prompt_passes_the_layers_only():
    """Neither table nor head, tied or not."""
    assert facts_of("Llama 3.2 3B", None).prompt_parameters == 28 * 100_669_440 + 3_072
    assert facts_of("Llama 3 8B", None).prompt_parameters == 32 * 218_112_000 + 4_096


def test_what_is_read_is_never_more_than_there_is():
    """Of each size; a table is smaller than the model."""
    for family in _families().language:
        for tag, size in family.sizes.items():
            facts = size.facts(tag, family.source, 4.0)
            assert 0 < facts.prompt_parameters < facts.read_parameters <= facts.parameters, (family.words, tag)


@pytest.mark.parametrize(
    "name",
    [
        "Llama-3.2-3B pruned 50%", "Llama 3B", "Qwen3.5-0.8B", "Cosmos-Reason2-2B", "Qwen2.5-7B + Qwen2.5-0.5B draft", "Qwen2-VL-2B",
        "Llama 3.2 11B Vision", "yolov8n-cls", "mobilenet_v1_0.25_128", "MiniCPM4", "Phi", "Gemma 5 2B", "Llama-3.1-8B-MoE-A2B",
        "phi-4-multimodal", "mistral-small", "mistral-large-2411", "mixtral-8x22b", "mobilenet_v4_conv_small", "mobilenetv2_035",
    ],
)  # fmt: skip
def test_a_name_that_is_not_one_model_has_no_facts(name):
    """Others' facts would make a wrong bound."""
    assert facts_of(name, "int4") is None


@pytest.mark.parametrize(
    ("precision", "bits"),
    [
        ("Q4_K_M", 4.5), ("Q2_K", 2.625), ("IQ4_XS", 4.25), ("INT8", 8), ("w8a8", 8), ("W4A16", 4), ("a8w4", 4), ("8da4w", 4), ("FP16", 16),
        ("bfloat16", 16), ("BF16", 16), ("q4f16_1", 4),
        ("NVFP4", 4), ("INT4 AWQ", 4), ("GPTQ", None), ("4-bit", 4), ("mixed 2/4/8 bit", 2),
        ("int4 weights, int8 activations", 4), ("KV q8_0, weights Q4_K_M", 4.5),
        ("Q40", 4.5), ("Q80", 8.5), ("q12", None), ("40 bit", None), ("float32", 32), ("1.58 bit", 1.58), ("4.25 bpw", 4.25),
        ("full", None),
    ],
)  # fmt: skip
def test_the_bits_are_the_fewest_that_are_named(precision, bits):
    """And none where none is named."""
    assert least_bits(precision) == bits


@pytest.mark.parametrize(
    ("name", "gop"),
    [
        ("YOLO11n", 6.5),
        ("yolov8s.pt", 28.6),
        ("yolov8n-seg", 8.7),
        ("ResNet-50", 7.6),
        ("resnet_v1_50", 7.6),
        ("mobilenet_v2_1.0_224", 0.6),
        ("SSD MobileNet v2", 1.6),
        ("MobileNet V3 Small", 0.112),
        ("mobilenet_v3_small", 0.112),
        ("mobilenet", 1.138),
    ],
)
def test_a_network_has_operations_at_its_usual_input(name, gop):
    """A multiplication and an addition being two."""
    assert [*facts_of(name, None).gop.values()] == [gop]


def test_a_mixture_is_recognised_by_its_name():
    """Its active weights, or the number of its experts, are part of it."""
    assert [is_mixture(name) for name in ("Qwen3-30B-A3B", "Mixtral-8x7B", "granite-3-moe", "Llama 3.1 8B", "Gemma-4-E2B")] == [
        True, True, True, False, False,
    ]  # fmt: skip
