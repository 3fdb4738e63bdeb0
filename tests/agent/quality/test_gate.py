"""The quality gate."""

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.quality.gate import quality_gate
from edgemeter.agent.quality.perplexity import Perplexity
from tests.fixtures.rows import table_row

PERPLEXITY = Perplexity(
    value=10.0,
    standard_error=0.1,
    bits_per_byte=1.0,
    rule="llama-perplexity",
    context_tokens=512,
    bos_token=1,
    chunks=9,
    counted_tokens=2295,
    text_tokens=5000,
    text_sha256="0" * 64,
)


def of(value):
    """Return such a perplexity."""
    return msgspec.structs.replace(PERPLEXITY, value=value)


def test_five_percent_more_perplexity_passes_and_more_fails():
    """The limit itself passes."""
    assert quality_gate(of(10.5), of(10.0)).passed
    assert quality_gate(of(9.0), of(10.0)).passed
    failed = quality_gate(of(10.51), of(10.0))
    assert not failed.passed
    assert failed.sentence() == "perplexity 10.51 is 1.0510 of the source's 10: fails (at most 1.05)"


def test_figures_of_other_rules_or_texts_do_not_compare():
    """The error names what differs."""
    for change in [{"context_tokens": 256}, {"text_sha256": "1" * 64}, {"rule": "other"}, {"text_tokens": 5001}]:
        with table_row(change), pytest.raises(ConfigError, match=f"different {next(iter(change))}"):
            quality_gate(msgspec.structs.replace(PERPLEXITY, **change), of(10.0))
