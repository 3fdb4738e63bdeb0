import pytest

from edgemeter.collector.published.rules import evidence_of
from tests.fixtures.published_rows import published_row


def decode(value=20.0, model="Llama 3.2 3B", device="Raspberry Pi 5", figure="tokens", companions=(), **fields):
    """Return the evidence by the bandwidth of the memory, None without."""
    row = published_row(figure, value, model, device, **({"precision": "4-bit", "backend": "cpu"} | fields))
    return next((entry for entry in evidence_of(row, companions) if entry.rule == "decode-above-bandwidth"), None)


# 1,606.4 MB a token at 4 bits: 17.1 GB/s give 10.64 a second.
@pytest.mark.parametrize(("value", "state"), [(4.0, "plausible"), (10.6, "plausible"), (10.7, "unclear"), (10.8, "impossible")])
def test_the_bound_lies_where_it_is_worked_out(value, state):
    """Beyond rounding: 10.6 is 10.55 to 10.65, and caches of 4 MB explain 10.65."""
    assert decode(value).state == state


def test_the_sentence_has_all_of_the_arithmetic_and_its_source():
    """One sentence, with units, bound and document, and with the convention on users."""
    assert decode().sentence == (
        "20 tokens/s x 1.606 GB of weights per token (3.213 x 10^9 weights x 4 bits / 8) = 32.1 GB/s, and the memory "
        "of Raspberry Pi 5 gives at most "
        "17.1 GB/s (LPDDR4X-4267, 32 bit; Raspberry Pi documentation, Processors, BCM2712): impossible for one user without speculative "
        "decoding or a batch, and neither is stated"
    )


@pytest.mark.parametrize(
    ("fields", "state", "words"),
    [
        ({"batch": 1, "speculative": "off"}, "impossible", "impossible for one user"),
        ({"batch": 2}, "plausible", "/ 2 answers at once"),
        ({"concurrency": 4}, "plausible", "/ 4 answers at once"),
        ({"batch": 2, "value": 30.0}, "impossible", "for 2 answers at once without speculative decoding"),
        ({"speculative": "draft model"}, "unclear", "tokens a step yields"),
        ({"conditions": "llama-server --draft-max 8"}, "unclear", "tokens a step yields"),
        ({"conditions": "MLPerf Offline"}, "unclear", "decoded at once"),
        ({"figure": "output-tokens"}, "unclear", "decoded at once"),
        ({"figure": "user-tokens"}, "impossible", "for one user"),
        ({"figure": "user-tokens", "batch": 8}, "impossible", "for one user"),
        ({"figure": "tpot", "value": 50.0}, "impossible", "1 token / 50 ms"),
        ({"figure": "tpot", "value": 0.05, "unit": "s"}, "impossible", "1 token / 50 ms"),
        ({"precision": None}, "unclear", "but the precision is not stated"),
        ({"precision": None, "value": 60.0}, "impossible", "x 1.5 bits, the fewest in use, / 8"),
        ({"model": "an unknown 3B"}, "unclear", "how many weights a token reads"),
        ({"model": "Qwen3-30B-A3B"}, "impossible", "3 x 10^9"),
        ({"model": "Qwen3-30B-A3B", "value": 8.0}, "plausible", "3 x 10^9"),
        ({"device": "a board"}, "unclear", "no bound of this board is on record"),
        # 0.135 x 10^9 x 2 bytes = 269 MB; 63.6 steps in 17.1 GB/s.
        ({"model": "SmolLM2-135M", "precision": "fp16", "value": 66.0}, "impossible", "269 MB"),
        ({"model": "SmolLM2-135M", "precision": "fp16", "value": 64.0, "device": "Jetson Orin Nano"}, "plausible", "269 MB"),
    ],
)  # fmt: skip
def test_a_fact_that_could_explain_it_decides(fields, state, words):
    """Stated it counts, not stated it is named; batch and speculation that are not stated are taken as none."""
    evidence = decode(**fields)
    assert evidence.state == state, evidence.sentence
    assert words in evidence.sentence


def test_the_tokens_of_a_step_count_where_they_are_stated():
    """20 tokens/s at 2 a step are 10 steps."""
    step = published_row("step-tokens", 2.0, "Llama 3.2 3B", "Raspberry Pi 5")
    assert decode(speculative="draft", companions=[step]).state == "plausible"
    assert decode(40.0, speculative="draft", companions=[step]).state == "impossible"
    assert decode(companions=[step], speculative="off").state == "impossible"


def test_a_model_that_fits_into_caches_is_not_judged():
    """134.5 x 10^6 x 3 bits are 50 MB."""
    assert decode(900.0, "SmolLM2-135M", precision="Q2_K") is None


def test_caches_may_hold_what_is_a_little_above():
    """100 MB less the 72 of a card's last cache: 12,000 steps read 336 GB/s."""
    assert decode(12_000.0, "a model", "RTX 4090", backend="gpu", weights_mb=100.0).state == "unclear"
    assert decode(120_000.0, "a model", "RTX 4090", backend="gpu", weights_mb=100.0).state == "impossible"


INT8_640, Q4_K_M = {"precision": "INT8", "input_size": "640"}, {"precision": "Q4_K_M"}


def state_of(figure, value, model, device, **fields):
    """Return the worst that any evidence says of a row, and all sentences."""
    evidence = evidence_of(published_row(figure, value, model, device, **fields), ())
    states = {entry.state for entry in evidence}
    return next((state for state in ("impossible", "unclear", "plausible") if state in states), None), [
        entry.sentence for entry in evidence
    ]


@pytest.mark.parametrize(
    ("row", "state", "words"),
    [
        # 7,504,924,672 x 4.5 bits = 4.222 GB; x 6.43 = 27.1 of 4 x 17.1.
        (("tokens", 6.43, "DeepSeek R1 Distill Llama 8B Q40", "4x Raspberry Pi 5", {}), "plausible", "27.1 GB/s"),
        # 1.807 GB x 220 = 397 GB/s, beyond 17.1, but not beyond the card's.
        (("tokens", 220.0, "Llama 3.2 3B", "Raspberry Pi 5 with RTX4090", Q4_K_M), "unclear", "named beside it"),
        # 3.752 GB x 9 = 33.8 of 8 x 17.1 = 136.8.
        (("tokens", 9.0, "Llama 3 8B", "8 Raspberry Pi 5 boards", {"precision": "Q4"}), "plausible", "8 x Raspberry Pi 5"),
        # 28.6 Gop x 491 = 14,043 Gop/s, of the Hailo-8's 26,000.
        (
            ("throughput", 491.0, "YOLOv8s", "Orange Pi 5 Plus",
             {"precision": "INT8", "input_size": "640", "backend": "Hailo-8", "batch": 8}), "plausible", "Hailo-8 do",
        ),
        # 4.222 GB x 2,500 = 10.6 TB/s: of one user too much, of many not.
        (("tokens", 2500.0, "Llama 3.1 8B", "RTX 4090", Q4_K_M | {"conditions": "continuous batching"}), "unclear", "at once"),
        # 3,000 x 2 x 440,467,456 weights without the table = 2,643 of 33,500 Gop/s.
        (("tokens", 3000.0, "Qwen3-Embedding-0.6B", "Jetson Orin Nano", {"precision": "FP16"}), "plausible", "2,640 Gop/s"),
        (("tokens", 3000.0, "Qwen3-Reranker-0.6B", "Jetson Orin Nano", {"precision": "FP16"}), "plausible", "2,640 Gop/s"),
        (("tokens", 200.0, "phi-4-multimodal", "RTX 4090", {"precision": "INT4"}), "unclear", "how many weights"),
        (("throughput", 9000.0, "ResNet-50", "Jetson Nano", {"precision": "INT8, 95% sparse"}), "unclear", "how many operations"),
        (("tokens", 30.0, "Llama 3.2 3B", "Raspberry Pi 5", {"precision": "int4", "conditions": "pruned by half"}), "unclear", "weights"),
    ],
)  # fmt: skip
def test_what_is_not_known_accuses_nobody(row, state, words):
    """A name, a backend or a condition that may add memory or compute, or takes weights out."""
    *values, fields = row
    worst, sentences = state_of(*values, **fields)
    assert worst == state, sentences
    assert words in " ".join(sentences)


@pytest.mark.parametrize(
    ("row", "state", "words"),
    [
        # 15.01 GB x 500 = 7,505 of 1,008 GB/s; x16 are lanes.
        (("tokens", 500.0, "Llama 3.1 8B", "RTX 4090 (PCIe 4.0 x16)", {"precision": "FP16"}), "impossible", "7,500 GB/s"),
        # 1,000 x 2 x 7.505 = 15,010 of 4 x 3.24 x 32 = 414.7 Gop/s.
        (("tokens", 1000.0, "Llama 3.1 8B", "Raspberry Pi 5", {"precision": "FP16", "batch": 1024}), "impossible", "15,000 Gop/s"),
        # 4.222 GB / 102.4 GB/s = 41.2 ms.
        (("ttft", 5.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "Q4_K_M", "prompt_tokens": 16}), "impossible", "41.2 ms"),
        (("ttft", 5.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "Q4_K_M", "conditions": "prefix cache"}), "impossible", "41.2 ms"),
        # 4 tokens / 2,000 a second = 2 ms; without the head of 525,336,576 weights 4.222 x .93 = 3.926 GB: 38.3 ms.
        (
            ("prefill-tokens", 2000.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "Q4_K_M", "prompt_tokens": 4, "batch": 1}),
            "impossible", "38.3 ms",
        ),
        (
            ("prefill-tokens", 2000.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "Q4_K_M", "prompt_tokens": 4}),
            "unclear", "several prompts",
        ),
        # 15.01 GB in 1 GB, and in 8: 6 x (15.01 - 8.59) = 38.5 GB/s from a disk.
        (("tokens", 0.8, "Llama 3.1 8B", "Raspberry Pi 4 1GB", {"precision": "FP16"}), "unclear", "more than the 1 GB of RAM"),
        (("tokens", 6.0, "Llama 3.1 8B", "Jetson Orin Nano 8GB", {"precision": "FP16"}), "impossible", "from storage"),
        (("tokens", 7.0, "Llama 3.3 70B", "RTX 4060", {"precision": "Q4"}), "unclear", "more than the 16 GB"),
        (("tokens", 7.0, "Llama 3.3 70B", "RTX 4090", {"precision": "FP16"}), "unclear", "more than the 24 GB"),
        # 116,829,156,672 x 4.25 bits = 62.07 GB.
        (("tokens", 300.0, "gpt-oss-120b", "RTX 4090", {"precision": "MXFP4"}), "unclear", "62.07 GB"),
        # 3.752 GB x 26 = 97.6 of 68.3 GB/s.
        (("tokens", 26.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "INT4", "power_mode": "15W"}), "impossible", "68.3 GB/s"),
        (("tokens", 26.0, "Llama 3.1 8B", "Jetson Orin Nano (7W)", {"precision": "INT4"}), "impossible", "68.3 GB/s"),
        # 3,085,938,688 x 4.5 bits = 1.736 GB; x 55 = 95.5 of 51.2.
        (("tokens", 55.0, "Qwen2.5 3B", "Jetson Orin Nano 4GB", Q4_K_M), "impossible", "51.2 GB/s"),
        # 600 x 28.6 = 17,160 of 13,000 Gop/s; 1,100 of them are beyond 13,000 x 2.25 = 29,250.
        (("throughput", 600.5, "YOLOv8s", "Raspberry Pi 5 with AI HAT+ (13 TOPS)", INT8_640), "unclear", "13,000"),
        (("throughput", 1100.5, "YOLOv8s", "Pi 5 with AI HAT+ (13 TOPS)", INT8_640), "impossible", "Hailo-8L"),
        # 760,000 of 165,200 in FP32, and of 165,200 x 5.0625 = 836,000; 120,000 are 912,000.
        (("throughput", 100_000.5, "ResNet-50", "RTX 4090", {"precision": "FP32", "input_size": "224"}), "unclear", "Winograd"),
        (("throughput", 120_000.5, "ResNet-50", "RTX 4090", {"precision": "FP32", "input_size": "224"}), "impossible", "165,000"),
        # 43,500 of 33,500 in FP16.
        (("throughput", 5000.5, "YOLOv8n", "Jetson Orin Nano", {"precision": "FP16", "input_size": "640"}), "unclear", "33,500"),
        (("throughput", 500.0, "YOLOv8n", "Hailo-8", {"precision": "FP32"}), "unclear", "whole numbers"),
        # 261,000: more than 165,200 in 32 bit, less than the most in 4.
        (("throughput", 30_000.0, "YOLOv8n", "RTX 4090", {"input_size": "640"}), "unclear", "the precision is not stated"),
        # 100,000 x 2 x 6.98 = 1,396,000 Gop/s: FP16 has 660,600, 4 bit would have 2,643,000.
        (("prefill-tokens", 100_000.5, "Llama 3.1 8B", "RTX 4090", {"precision": "FP16"}), "impossible", "661,000"),
    ],
)  # fmt: skip
def test_what_no_part_can_do_is_not_plausible(row, state, words):
    """By the type of the numbers, the mode, the RAM, the compute of a batch, and the one reading of the weights that a token needs."""
    *values, fields = row
    worst, sentences = state_of(*values, **fields)
    assert worst == state, sentences
    assert words in " ".join(sentences)


@pytest.mark.parametrize(
    "row",
    [
        # 41.2 ms, and 38.3 of a prompt.
        ("ttft", 42.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "Q4_K_M", "prompt_tokens": 1}),
        ("prefill-tokens", 100.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "Q4_K_M", "prompt_tokens": 4, "batch": 1}),
        # 49.5 ms x 64 answers: 19,000 of 67,000 Gop/s.
        ("tokens", 1200.0, "Llama 3.1 8B", "Jetson Orin Nano", {"precision": "int4", "batch": 64}),
        # 4.222 GB of 4.29: 4 GB are 4 x 1024^3 bytes.
        ("tokens", 8.0, "Llama 3.1 8B", "Jetson Orin Nano 4GB", Q4_K_M),
        ("tokens", 0.05, "Llama 3.1 8B", "Raspberry Pi 5 8GB with 8GB RAM and NVMe SSD", {"precision": "Q8_0"}),
    ],
)
def test_what_a_part_can_do_is_not_accused(row):
    """A little on the right side of each new bound."""
    *values, fields = row
    worst, sentences = state_of(*values, **fields)
    assert worst == "plausible" or (not sentences and worst is None), sentences


def compute(figure, value, model, device, **fields):
    """Return the evidence by the peak of the compute units."""
    row = published_row(figure, value, model, device, **fields)
    return next(entry for entry in evidence_of(row, ()) if entry.rule in {"prefill-above-compute", "work-above-compute"})


@pytest.mark.parametrize(
    ("value", "fields", "state"),
    [
        # 2 x 2,818,747,392 x 147 = 828.7 Gop/s of 4 x 3.24 x 64 = 829.4.
        (146.9, {}, "plausible"),
        (147.4, {}, "impossible"),
        (110.4, {"clock_hz": 2.4e9}, "impossible"),
        (108.4, {"clock_hz": 2.4e9}, "plausible"),
        (800.0, {"conditions": "prefix cache on"}, "unclear"),
    ],
)
def test_a_prompt_passes_the_layers_at_the_peak_at_most(value, fields, state):
    """Of cores that are overclocked unless their clock is stated."""
    assert compute("prefill-tokens", value, "Llama 3.2 3B", "Raspberry Pi 5", backend="cpu", **fields).state == state


@pytest.mark.parametrize(
    ("value", "fields", "state"),
    [
        # 8.7 Gop x 2,900 = 25.2 of 26 Top/s; x 5,000 = 43.5, below 26 x 2.25 = 58.5; x 7,000 = 60.9.
        (2900.0, {"input_size": "640"}, "plausible"),
        (5000.5, {"input_size": "640"}, "unclear"),
        (7000.5, {"input_size": "640"}, "impossible"),
        (7000.5, {}, "unclear"),
        (7000.5, {"input_size": "320x320"}, "plausible"),
        (700_000.5, {}, "impossible"),
        (7000.5, {"gop": 2.2}, "plausible"),
        (7000.5, {"gop": 8.7}, "impossible"),
    ],
)
def test_inferences_have_their_operations(value, fields, state):
    """By the size of the input; where it is not stated a smaller one could explain it."""
    assert compute("throughput", value, "YOLOv8n", "Hailo-8", precision="int8", **fields).state == state


def test_a_latency_is_one_inference_whatever_the_batch():
    """Per image or per batch is not known, and the least counts."""
    assert compute("latency", 1.0, "YOLOv8n", "Coral Edge TPU", precision="int8", batch=8, input_size="640").state == "unclear"
    assert compute("latency", 0.5, "YOLOv8n", "Coral Edge TPU", precision="int8", input_size="640").state == "impossible"


def test_a_language_model_has_no_operations_an_inference():
    """Its requests have any length."""
    row = published_row("throughput", 3.0, "Llama 3.2 3B", "Raspberry Pi 5", unit="requests/s")
    assert evidence_of(row, ()) == ()
