"""Facts about `edgemeter.agent.contract.slo`."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.slo import parse_duration_ms, parse_slo, slo_text
from tests.fixtures.rows import table_row


def test_limits_are_read_with_their_units():
    """In ms, whatever the unit; a number without a unit could be seconds or milliseconds."""
    limits_ms = parse_slo("ttft=500ms, TPOT=0.05s,latency=4s")
    assert limits_ms == {"ttft": 500.0, "tpot": 50.0, "latency": 4000.0}
    assert slo_text(limits_ms) == "TTFT 500 ms, TPOT 50 ms, latency 4000 ms"
    for text in [
        *("", "ttft", "ttft=500", "ttft=-5ms", "ttft=0ms", "ttft=1e3ms", "itl=5ms", "ttft=5ms,ttft=6ms", "ttft=5ms,", "ttft=ms", "ttft=2h"),
    ]:
        with table_row(text), pytest.raises(ConfigError, match="ttft=500ms"):
            parse_slo(text)


def test_a_deadline_lies_between_a_microsecond_and_an_hour():
    """In us, ms or s; what lies outside is a slip of the pen, and the refusal fits on one line."""
    assert [parse_duration_ms(text, "deadline") for text in ("1us", "60ms", "0.001 ms", "3600s")] == [0.001, 60.0, 0.001, 3_600_000.0]
    for text in ["0.9us", "0.0000001ms", "3601s", f"{'9' * 400}ms", "0s", "60", "1h", "1ns"]:
        with table_row(text), pytest.raises(ConfigError, match="500us") as refusal:
            parse_duration_ms(text, "deadline")
        assert len(str(refusal.value)) < 120, text
    with pytest.raises(ConfigError, match="ttft=500ms"):
        parse_slo(f"ttft={'9' * 400}ms")
