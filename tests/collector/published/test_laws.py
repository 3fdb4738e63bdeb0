import pytest

from edgemeter.collector.published.laws import judge
from edgemeter.collector.published.readers import shipped_rows
from tests.fixtures.published_rows import published_row
from tests.fixtures.rows import table_row

LLAMA, ORIN, WITH_CARD = "Llama 3.2 3B", "Jetson Orin Nano", "RK3588 + RTX 4050"
ON_CPU = {"precision": "FP32", "backend": "cpu"}


def finding_of(law, row, *companions):
    judged = judge([row, *companions])[0]
    return next((finding for finding in judged.findings if finding.law == law), None)


def state_of(law, row, *companions):
    finding = finding_of(law, row, *companions)
    return finding and finding.state


# 3.2127 x 10^9 weights x 4 bits = 1.606 GB; LPDDR4X-4267 of 32 bit gives 17.1 GB/s: at most 10.6
# tokens/s.
MEMORY = [
    ("within the bandwidth", published_row("tg", 10.5, LLAMA, precision="INT4"), "plausible"),
    ("above it", published_row("tg", 11.5, LLAMA, precision="INT4"), "impossible"),
    ("an unknown precision may be ternary", published_row("tg", 11.5, LLAMA), "unclear"),
    ("no precision explains it", published_row("tg", 40.0, LLAMA), "impossible"),
    ("several answers share a reading",
     published_row("tg", 40.0, LLAMA, precision="INT4", batch=4), "plausible"),
    ("but not that many",
     published_row("tg", 80.0, LLAMA, precision="INT4", batch=4), "impossible"),
    ("the sum over users whose number is not stated",
     published_row("output", 40.0, LLAMA, precision="INT4"), "unclear"),
    ("speculation",
     published_row("tg", 20.0, LLAMA, precision="INT4", speculative="draft model"), "unclear"),
    ("no speculation",
     published_row("tg", 20.0, LLAMA, precision="INT4", speculative="off"), "impossible"),
    ("a time per token", published_row("TPOT", 50.0, LLAMA, precision="INT4"), "impossible"),
    ("rounded to 10", published_row("tg", 11.0, LLAMA, precision="INT4", low=10.0), "plausible"),
    ("caches of 4 MB hold a part", published_row("tg", 235.0, "m", weights_mb=74.0), "unclear"),
    ("caches may hold all", published_row("tg", 2000.0, "m", weights_mb=40.0), None),
    ("weights as stated", published_row("tg", 30.0, "not named", weights_mb=339.0), "plausible"),
    ("an unknown model", published_row("tg", 500.0, "SomeNet 3B"), "unclear"),
    ("an unknown device",
     published_row("tg", 500.0, LLAMA, "PC with RTX 4070", precision="INT4"), "unclear"),
    ("a part of the weights was taken out",
     published_row("tg", 20.0, f"{LLAMA} pruned", precision="INT4"), "unclear"),
    ("the larger memory where the backend is open",
     published_row("tg", 60.0, LLAMA, WITH_CARD, precision="INT4"), "plausible"),
    ("the board's where it is the CPU",
     published_row("tg", 60.0, LLAMA, WITH_CARD, precision="INT4", backend="cpu"), "impossible"),
    ("no rate of tokens", published_row("latency_p50_ms", 1.0, LLAMA), None),
]  # fmt: skip


# YOLOv8n has 8.7 Gop at 640 x 640; four Cortex-A76 at 2.4 GHz x 1.35 do 207 Gop/s in 32 bit, an
# Orin Nano 67 TOPS in 8 bit.
OPERATIONS = [
    ("within the peak", published_row("latency_p50_ms", 100.0, "YOLOv8n", **ON_CPU), "plausible"),
    ("Winograd's algorithm", published_row("latency_p50_ms", 20.0, "YOLOv8n", **ON_CPU), "unclear"),
    ("a smaller input", published_row("latency_p50_ms", 2.0, "YOLOv8n", **ON_CPU), "unclear"),
    ("above it",
     published_row("latency_p50_ms", 2.0, "YOLOv8n", **ON_CPU, input_size="640x640"), "impossible"),
    ("at a quarter of the pixels",
     published_row("latency_p50_ms", 25.0, "YOLOv8n", **ON_CPU, input_size="320"), "plausible"),
    ("a rate",
     published_row(
         "throughput_per_s", 100_000.0, "YOLOv8n", ORIN, precision="INT8", input_size="640"
     ),
     "impossible"),
    ("operations as stated",
     published_row("throughput_per_s", 10.0, "m", gop=5.0, **ON_CPU), "plausible"),
    ("unknown operations", published_row("throughput_per_s", 10.0, "m"), "unclear"),
    ("a clock as stated",
     published_row("latency_p50_ms", 45.0, "YOLOv8n", **ON_CPU, clock_hz=2.4e9), "unclear"),
    ("an unknown number of weights",
     published_row("pp", 200.0, "SomeNet 3B", backend="cpu"), "unclear"),
    ("the first of a prompt's",
     published_row("TTFT", 100.0, LLAMA, ORIN, precision="INT8", prompt_tokens=128), "plausible"),
    ("a cached prompt",
     published_row("TTFT", 1.0, LLAMA, ORIN, precision="INT8", prompt_tokens=128), "unclear"),
    ("whatever the batch",
     published_row("tg", 1e6, LLAMA, ORIN, precision="INT8", batch=9000), "impossible"),
    ("within the batch", published_row("tg", 100.0, LLAMA, ORIN, precision="INT8"), None),
    ("an engine that is not on record",
     published_row("latency_p50_ms", 1.0, "YOLOv8n", precision="FP16", backend="gpu"), "unclear"),
]  # fmt: skip


def test_prompts_are_multiplied_by_the_weights_without_the_head():
    """The work of 2 x 2.8187 x 10^9 x 200 tokens/s is 1,127 Gop/s, above the Pi's 829."""
    finding = finding_of(
        "operations", published_row("pp", 200.0, LLAMA, precision="INT8", backend="cpu")
    )
    assert (finding.state, finding.limit) == ("impossible", pytest.approx(829.44))
    assert finding.value == pytest.approx(1127.5, rel=1e-4)


# A Raspberry Pi 5 draws 1 to 40 W at its input; at the wall 1.4 times as much, at a peak 3 times.
POWER = [
    (
        "what the board draws",
        published_row("energy_mean_power_w", 39.0, scope="board-input"),
        "plausible",
    ),
    ("more", published_row("energy_mean_power_w", 45.0, scope="board-input"), "impossible"),
    ("at the wall, perhaps", published_row("energy_mean_power_w", 45.0), "plausible"),
    ("at a peak", published_row("energy_mean_power_w", 150.0, statistic="max"), "plausible"),
    ("less than idle", published_row("energy_mean_power_w", 0.1, scope="board-input"), "unclear"),
    (
        "a part may be off",
        published_row("energy_mean_power_w", 0.1, scope="soc-rails"),
        "plausible",
    ),
    (
        "a card has its own supply",
        published_row("energy_mean_power_w", 300.0, device="RK3588 + RTX 4090"),
        "unclear",
    ),
    ("energy without a rate", published_row("energy_gross_mj", 1.0), None),
]


@pytest.mark.parametrize(
    ("law", "cases"), [("memory", MEMORY), ("operations", OPERATIONS), ("power", POWER)]
)
def test_a_law_judges_a_figure(law, cases):
    """A step reads all weights, and a board draws the power that its supply gives.

    Work is two operations a weight and token, or those of an inference.
    """
    for why, row, state in cases:
        with table_row(why):
            assert state_of(law, row) == state


def test_energy_and_rate_of_one_case_give_a_power():
    """1,000 mJ x 30 /s is 30 W; with a rate of other conditions nothing is said."""
    rate = published_row("throughput_per_s", 30.0)
    assert finding_of(
        "power", published_row("energy_gross_mj", 1000.0), rate
    ).value == pytest.approx(30.0)
    assert state_of("power", published_row("energy_gross_mj", 10_000.0), rate) == "impossible"
    assert (
        state_of("power", published_row("energy per token", 2000.0), published_row("tg", 5.0))
        == "plausible"
    )
    assert (
        state_of("power", published_row("energy_gross_mj", 1000.0, precision="int8"), rate) is None
    )


def test_what_no_bound_excludes_is_said_with_its_share_of_the_bound():
    """A figure within the bounds may be unlikely: few models reach 87% of a peak.

    A rounded figure may be above the bound.
    """
    coral = published_row("throughput_per_s", 400.0, "YOLOv8n", "Coral USB Accelerator")
    finding = finding_of("operations", coral)
    assert (finding.state, finding.sentence.rpartition("): ")[2]) == (
        "plausible",
        "87% of this bound, so it is possible",
    )
    assert " = 3,480 Gop/s" in finding.sentence
    rounded = finding_of("memory", published_row("tg", 11.0, LLAMA, precision="INT4", low=10.0))
    assert rounded.sentence.endswith("% of this bound, which rounding may explain")


def test_the_verdicts_of_the_shipped_figures_are_those_of_the_laws():
    """The memory bounds 27 of 83, the compute units 25 and the supply 20; none is impossible."""
    judged = judge(shipped_rows())
    counts = {}
    for figure in judged:
        for finding in figure.findings:
            counts[finding.law, finding.state] = counts.get((finding.law, finding.state), 0) + 1
    assert counts == {
        ("memory", "plausible"): 16, ("memory", "unclear"): 11, ("operations", "plausible"): 9,
        ("operations", "unclear"): 16,
        ("power", "plausible"): 18, ("power", "unclear"): 2,
    }  # fmt: skip
    by_name = {(figure.row.model, figure.row.device, figure.row.value): figure for figure in judged}
    thor = "NVIDIA Jetson AGX Thor Developer Kit"
    nemotron, qwen = by_name["Nemotron-3-Nano-4B", thor, 65.4], by_name["Qwen3-1.7B", thor, 170.4]
    assert (nemotron.state, qwen.state) == ("unclear", "plausible")
    assert (qwen.deciding.value, qwen.deciding.limit) == (pytest.approx(146.593, rel=1e-5), 273)


def test_a_doubt_goes_before_a_bound_that_holds():
    """An impossibility precedes both, and a missing fact counts only where nothing else is said."""
    power = published_row("energy_mean_power_w", 5.0)
    for row, companion, state in (
        (published_row("tg", 11.5, LLAMA), power, "unclear"),
        (published_row("tg", 40.0, LLAMA), power, "impossible"),
        (published_row("memory_peak_mb", 11.5, LLAMA), power, "unclear"),
    ):
        with table_row(row.figure, row.value):
            assert judge([row, companion])[0].state == state
