"""Facts about the energy of prefill and decode apart: right where a sensor can see them, and no figure where it cannot."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from edgemeter.agent.contract import samples
from edgemeter.agent.contract.record_conditions import RuntimeInfo
from edgemeter.agent.contract.record_figures import Energy
from edgemeter.agent.energy.generation_energy import (
    DECODE,
    PREFILL,
    GenerationWindows,
    generation_energy,
    generation_windows,
    served_elsewhere,
)
from edgemeter.agent.energy.queries import Queries
from edgemeter.agent.energy.sampler import SensorTrace
from edgemeter.agent.energy.sensor_run import EnergyRun
from edgemeter.agent.energy.window import Window
from edgemeter.agent.power.values import Averaging
from tests.fixtures.power_traces import S, make_trace
from tests.fixtures.record_factory import make_energy, make_generation
from tests.fixtures.rows import table_row

# A query: 1 s of prefill at 10 W for 100 tokens, 3 s of decode at 6 W for 30 more; 4 W are idle.
QUERIES, PREFILL_S, DECODE_S = 20, 1.0, 3.0
PREFILL_W, DECODE_W, IDLE_W = 10.0, 6.0, 4.0
WHOLE_S = PREFILL_S + DECODE_S
PER_QUERY_MJ = (PREFILL_W * PREFILL_S + DECODE_W * DECODE_S) * 1000


def windows(queries: int = QUERIES, prefill_s: float = PREFILL_S, output_tokens: int = 31) -> GenerationWindows:
    """Return the windows of queries one after the other, from 5 s on."""
    starts = (5 + WHOLE_S * np.arange(queries)) * S
    return GenerationWindows(
        starts.astype(np.int64),
        (starts + prefill_s * S).astype(np.int64),
        (starts + WHOLE_S * S).astype(np.int64),
        100,
        np.full(queries, output_tokens),
    )


def run(*, idle_after: bool = True) -> EnergyRun:
    """Return the run that these queries make, with idle power before and after them."""
    starts_ns = (np.arange(5, 5 + QUERIES * WHOLE_S, WHOLE_S) * S).astype(np.int64)
    end_ns = int((5 + QUERIES * WHOLE_S) * S)
    queries = Queries(starts_ns, np.full(QUERIES, int(WHOLE_S * S)), end_ns)
    after = Window(end_ns, end_ns + 20 * S) if idle_after else None
    return EnergyRun(Window(5 * S, end_ns), Window(0, 5 * S), after, QUERIES, queries, counts_inferences=False)


def power(at_s: float) -> float:
    """Return the power of the machine."""
    if not 5 <= at_s < 5 + QUERIES * WHOLE_S:
        return IDLE_W
    return PREFILL_W if (at_s - 5) % WHOLE_S < PREFILL_S else DECODE_W


def trace(period_ms: float = 20.0, **changes: Any) -> SensorTrace:
    """Return what a sensor reads of it at jittered moments."""
    return make_trace(power, 25 + QUERIES * WHOLE_S, seed=1, period_ms=period_ms, **changes)


def energy(**changes: Any) -> Energy:
    """Return the energy of the whole run."""
    sound = {
        "sensor": "bench",
        "gross_mj": PER_QUERY_MJ,
        "gross_u_mj": 100.0,
        "net_mj": PER_QUERY_MJ - IDLE_W * WHOLE_S * 1000,
        "net_u_mj": 150.0,
        "idle_before_w": IDLE_W,
        "idle_after_w": IDLE_W,
        "window_ms": QUERIES * WHOLE_S * 1000,
    }
    return make_energy(**(sound | changes))


def test_a_sensor_that_is_fast_enough_gives_both_parts():
    """Prefill is 100 mJ a prompt token and decode 600 mJ a further one, within the stated uncertainty."""
    tokens, reasons = generation_energy(energy(), [trace()], windows(), run())
    assert reasons == {}
    assert tokens.output_token_gross_mj == pytest.approx(PER_QUERY_MJ / 31)
    for token_mj, u_mj, gross_mj in (
        (tokens.prefill_token_gross_mj, tokens.prefill_token_gross_u_mj, 100.0),
        (tokens.decode_token_gross_mj, tokens.decode_token_gross_u_mj, 600.0),
    ):
        assert abs(token_mj - gross_mj) <= u_mj <= 0.05 * gross_mj


def test_a_part_needs_windows_of_ten_periods_of_the_sensor():
    """What a slow sensor cannot cut out has no figure but a reason, with what to do."""
    for changes, parts in [
        ({"period_ms": 100.0}, (True, True)),
        ({"period_ms": 101.0}, (False, True)),
        ({"period_ms": 20.0, "averaging": Averaging(window_s=0.2)}, (False, True)),
        ({"period_ms": 20.0, "averaging": Averaging(update_interval_s=0.31)}, (False, False)),
    ]:
        with table_row(changes):
            tokens, reasons = generation_energy(energy(), [trace(**changes)], windows(), run())
            assert (tokens.prefill_token_gross_mj is not None, tokens.decode_token_gross_mj is not None) == parts
            if not parts[0]:
                assert "--output-tokens 1" in reasons[PREFILL]


def test_a_run_of_one_token_is_all_prefill_whatever_the_sensor():
    """Its whole energy by its prompt tokens, and nothing was decoded."""
    tokens, reasons = generation_energy(energy(), [trace(period_ms=1000.0)], windows(prefill_s=WHOLE_S, output_tokens=1), run())
    assert tokens.prefill_token_gross_mj == pytest.approx(PER_QUERY_MJ / 100)
    assert tokens.prefill_token_gross_u_mj == pytest.approx(1.0)
    assert tokens.decode_token_gross_mj is None
    assert reasons[DECODE] == "queries of one token decode nothing"


def test_users_that_overlap_and_answers_in_one_piece_have_energy_by_the_request_only():
    """No reading is of one user's prefill or decode; the first moment of such an answer is none of a token."""
    for changes, words in (
        ({"overlap": True}, ("overlap", "single_stream")),
        ({"unstreamed_reason": "the server does not stream"}, ("the server does not stream",) * 2),
    ):
        tokens, reasons = generation_energy(energy(), [trace()], replace(windows(), **changes), run())
        assert tokens.output_token_gross_mj == pytest.approx(PER_QUERY_MJ / 31)
        assert tokens.prefill_token_gross_mj is tokens.decode_token_gross_mj is None
        assert words[0] in reasons[PREFILL]
        assert words[1] in reasons[DECODE]


def test_what_is_unknown_stays_unknown():
    """An unknown gain leaves no uncertainty, and few queries no part at all."""
    tokens, _ = generation_energy(energy(), [trace(gain_u_ratio=None)], windows(), run())
    assert tokens.decode_token_gross_mj is not None
    assert tokens.decode_token_gross_u_mj is None
    few, reasons = generation_energy(energy(), [trace()], windows(queries=4), run())
    assert few.decode_token_gross_mj is None
    assert reasons[DECODE].startswith("4 queries")


def test_without_idle_after_it_the_delay_is_as_stated_or_the_parts_are_refused():
    """A sensor that nobody describes may be late; one that looks at moments is late by no more than its spacing."""
    tokens, reasons = generation_energy(energy(), [trace()], windows(), run(idle_after=False))
    assert tokens.prefill_token_gross_mj is tokens.decode_token_gross_mj is None
    assert "(idle_seconds)" in reasons[PREFILL]
    described = trace(averaging=Averaging(window_s=0.0, update_interval_s=0.0))
    tokens, _ = generation_energy(energy(), [described], windows(), run(idle_after=False))
    assert abs(tokens.prefill_token_gross_mj - 100.0) <= tokens.prefill_token_gross_u_mj


def test_without_an_energy_there_is_a_reason():
    """No energy, or readings that are gone."""
    assert generation_energy(None, [], windows(), run()) == (None, {"generation_energy": "the run has no energy"})
    assert generation_energy(energy(), [], windows(), run())[1] == {"generation_energy": "the readings of bench are not there"}


def test_a_server_on_another_machine_has_no_energy_here():
    """Its joules are drawn elsewhere."""
    for url, is_seen in [("http://127.0.0.1:8080", True), ("http://localhost/v1", True), ("http://10.0.0.7:80", False)]:
        with table_row(url):
            runtime = RuntimeInfo(name="server", package="-", version="1", backend="openai", threads=1, facts={"server_url": url})
            assert (served_elsewhere(make_generation(is_local=False), runtime) is None) == is_seen
            on_this = msgspec.structs.replace(runtime, facts=runtime.facts | {"server_machine": "this"})
            assert served_elsewhere(make_generation(is_local=False), on_this) is None
            assert served_elsewhere(make_generation(), runtime) is None
            assert served_elsewhere(None, runtime) is None


def test_the_energy_of_decoding_is_by_the_tokens_that_came_in_it():
    """Of 31 tokens 16 came with the first moment: 15 share the 18,000 mJ of the rest; who decoded nothing has no window."""
    tokens, _ = generation_energy(energy(), [trace()], replace(windows(), decoded_tokens=np.full(QUERIES, 15)), run())
    assert tokens.decode_token_gross_mj == pytest.approx(1200.0, rel=0.02)
    at_once = replace(windows(prefill_s=WHOLE_S), decoded_tokens=np.zeros(QUERIES, np.int64))
    tokens, reasons = generation_energy(energy(), [trace()], at_once, run())
    assert (tokens.decode_token_gross_mj, reasons[DECODE]) == (None, "queries of one token decode nothing")


def test_a_prompt_from_a_cache_or_with_reasoning_behind_it_has_no_energy_per_token():
    """Of a template's cached tokens the others would seem to take a third less; hidden thoughts would count as the prompt's."""
    series = [
        samples.pack("query_start", "ns", np.arange(QUERIES) * int(WHOLE_S * S)),
        samples.pack("latency", "ns", np.full(QUERIES, int(WHOLE_S * S))),
        samples.pack("first_token", "ns", np.full(QUERIES, int(PREFILL_S * S))),
        samples.pack("output_tokens", "tokens", np.full(QUERIES, 31)),
    ]
    for cached, hidden, word in ((0, None, ""), (1, None, ""), (20, None, "cache"), (None, None, ""), (0, 256, "reasoning")):
        generation = make_generation(cached_tokens=cached, template_tokens=20, hidden_reasoning_tokens=hidden)
        reason = generation_windows(series, 0, generation).prefill_reason
        assert word in (reason or "")
        assert bool(reason) == bool(word)
