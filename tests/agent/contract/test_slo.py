"""Facts about `edgemeter.agent.contract.slo`."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract.slo import parse_slo, slo_text
from tests.fixtures.rows import table_row


def test_limits_are_read_with_their_units():
    """In ms, whatever the unit; in words they are what was meant."""
    limits_ms = parse_slo("ttft=500ms, TPOT=0.05s,latency=4s")
    assert limits_ms == {"ttft": 500.0, "tpot": 50.0, "latency": 4000.0}
    assert slo_text(limits_ms) == "TTFT 500 ms, TPOT 50 ms, latency 4000 ms"


def test_what_is_no_limit_is_refused_with_an_example():
    """A number without a unit could be seconds or milliseconds."""
    for text in ["", "ttft", "ttft=500", "ttft=-5ms", "ttft=0ms", "ttft=1e3ms", "itl=5ms", "ttft=5ms,ttft=6ms", "ttft=5ms,", "ttft=ms"]:
        with table_row(text), pytest.raises(ConfigError, match="ttft=500ms"):
            parse_slo(text)
