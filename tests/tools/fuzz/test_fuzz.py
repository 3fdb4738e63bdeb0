"""Tests of the fuzzer itself.

A little of it runs always, a minute of it in CI, and ten million inputs by `make fuzz`.
"""

import os
import time

import pytest

from tools.fuzz import decoder
from tools.fuzz.decoder import FlawError, Fuzzer


def test_what_comes_from_a_broker_breaks_nothing():
    """Hundreds of inputs and streams of a fixed seed break nothing."""
    fuzzer = Fuzzer(20)
    for _ in range(60):
        fuzzer.run(10)
        fuzzer.try_stream()
    assert fuzzer.counts["inputs"] == 600
    # It reaches both sides: what is taken, and what is refused.
    assert fuzzer.counts["admitted"] > 40
    assert fuzzer.counts["refused"] > 200


@pytest.mark.nightly
def test_a_minute_of_a_new_seed_breaks_nothing():
    """A minute of inputs by a new seed breaks nothing.

    The message of a failure holds the seed and the input.
    """
    seconds = float(os.environ.get("EDGEMETER_FUZZ_SECONDS", "60"))
    counts = decoder.work(int(time.time()), 10**9, time.monotonic() + seconds)
    assert not isinstance(counts, str), counts
    assert counts["inputs"] > 1000


def test_the_fuzzer_finds_a_decoder_that_breaks(monkeypatch):
    """A flaw in a decoder is found and reported with its input.

    A fuzzer that cannot fail would be worth nothing.
    """

    def broken(_text):
        raise KeyError("schema")

    monkeypatch.setattr("edgemeter.collector.receive.admission.decode_head", broken)
    with pytest.raises(FlawError, match=r"seed 3, input \d+: KeyError\('schema'\)"):
        Fuzzer(3).run(1000)
