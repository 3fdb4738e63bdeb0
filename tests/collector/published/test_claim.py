import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.published.claim import EXAMPLE, parse_claim, quantity
from tests.fixtures.rows import table_row

FACTS = {"date": "2026-11-20"}


def test_a_claim_is_a_model_a_device_and_a_figure():
    """Of a range the end that is easier to reach counts; the unit says what it is, unless options name another figure of it."""
    for text, *fields in (
        (EXAMPLE, "Llama 3.2 3B Q4", "Raspberry Pi AI HAT+ 2", "generation_decode_tokens_per_s", 18.0),
        ("YOLOv8n INT8 on Jetson Orin Nano (25W): 3-4 ms", "YOLOv8n INT8", "Jetson Orin Nano (25W)", "latency_p50_ms", 4.0),
        ("m on RK3588: 0.25 J/token", "m", "RK3588", "generation_energy_output_token_gross_mj", 250.0),
        ("m on RK3588: 286 FPS", "m", "RK3588", "throughput_per_s", 286.0),
        ("m on RK3588: 12 W", "m", "RK3588", "energy_mean_power_w", 12.0),
    ):
        with table_row(text):
            row = parse_claim(text, FACTS)
            assert [row.model, row.device, row.figure, row.canonical] == fields
    row = parse_claim("m on RK3588: 378 ms", {**FACTS, "figure": "generation_ttft_p50_ms", "prompt_tokens": "128"})
    assert (row.figure, row.prompt_tokens) == ("generation_ttft_p50_ms", 128)


def test_what_is_not_understood_refuses_a_claim():
    """With an example."""
    for text in ("m: 20 tokens/s", "m on RK3588: 20", "m on RK3588: 20 apples", "m on RK3588: 1,234 ms", "m on RK3588: fast"):
        with table_row(text), pytest.raises(ConfigError, match=r"such as 'Llama|Write for example"):
            parse_claim(text, FACTS)


def test_a_number_is_read_with_its_unit():
    """A comma is a thousand only where nothing else can be meant; what may mean two things is no number."""
    cells = {"1,234.5": (1234.5, ""), "12,345,678": (12345678.0, ""), "3.3 ms": (3.3, "ms"), "1e3W": (1e3, "W")}
    assert {cell: quantity(cell) for cell in cells} == cells
    for cell in ("1,234", "fast", "", "3.2.1"):
        with table_row(cell), pytest.raises(ValueError, match=r"not a number|decimal"):
            quantity(cell)
