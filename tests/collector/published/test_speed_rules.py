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
        "20 tokens/s x 1.606 GB of weights per token (3.213 x 10^9 weights x 4 bits / 8) = 32.1 GB/s, and the memory of Raspberry Pi 5 gives at most "
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
