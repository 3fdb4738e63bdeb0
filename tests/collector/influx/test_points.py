import re

import msgspec
import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import record as contract_record
from edgemeter.agent.contract import record_figures, record_generation, samples
from edgemeter.agent.ledger.chunks import HeldChunk
from edgemeter.collector.influx import points
from edgemeter.collector.influx.points import Points
from tests.fixtures.point_lines import point_line
from tests.fixtures.record_factory import (
    make_energy,
    make_environment,
    make_generation,
    make_model,
    make_power_trace,
    make_record,
    make_runtime,
)
from tests.fixtures.rows import table_row

HISTOGRAM = Points(also=frozenset({"latency_histogram"}))
POWER = Points(also=frozenset({"power_trace"}))


def series(name, unit, values):
    """Return a packed series."""
    return samples.pack(name, unit, np.array(values))


def with_latencies(*values_ns):
    """Return a record with these latencies."""
    return make_record(session=5, seq=1, samples=(series("latency", "ns", values_ns),))


def with_power(*sensors, **changes):
    """Return a record with the readings of `sensors`: name, kind, values, times."""
    traces = tuple(make_power_trace(name) for name, _, _, _ in sensors)
    lines = []
    for name, kind, values, times in sensors:
        lines += [series(f"{kind}.{name}", "W", np.array(values, float)), series(f"power_at.{name}", "ns", times)]
    return make_record(session=5, seq=1, id="r", power_traces=traces, samples=tuple(lines), **changes)


@pytest.mark.parametrize("extent", ["all", "figures"])
def test_a_chunk_gives_what_can_be_read_of_it(extent):
    """A removed record is left out; one that cannot be read has no points, and is named; a text that was cut off is an error."""
    text = contract_record.encode(make_record(session=5, seq=1, id="r-1"))
    with_removed = HeldChunk([(8, 0), (9, 1)], 7, b"[{},%s]" % text)
    assert [row for row, _ in Points(extent).of_chunk(with_removed)] == [9]
    newer = text.replace(b'"schema":1', b'"schema":99')
    for unread, run, reason in ((newer, "r-1", "schema 99.*update"), (b'{"id":1}', None, "not a run record")):
        skipped = []
        chunk = HeldChunk([(8, 0), (9, 1), (10, 2)], 7, b"[%s,%s,%s]" % (text, unread, text))
        assert [(row, len(lines)) for row, lines in Points(extent).of_chunk(chunk, skipped.append)] == [(8, 1), (9, 0), (10, 1)]
        assert [(record.row, record.run) for record in skipped] == [(9, run)]
        assert re.search(reason, skipped[0].reason)
    with pytest.raises(ConfigError, match=r"damaged.*backup"):
        list(Points(extent).of_chunk(HeldChunk([(8, 0), (9, 1)], 7, b"[%s" % text)))


@pytest.mark.parametrize("extent", ["all", "figures"])
def test_a_record_that_differs_in_one_part_has_a_point_of_its_own(extent):
    """What is kept of the records before is used where all of it is the same."""
    points = Points(extent)
    first = make_record(session=5, seq=1, id="r")
    for changes in (
        {"provenance": {"latency": "replayed"}}, {"model": make_model(name="other")}, {"runtime": make_runtime(threads=1)},
        {"inputs": ()}, {"environment": make_environment(board=None)}, {"energy": make_energy(sensor="estimate")}, {"energy": None},
        {"accuracy": None}, {"device": "pi-2"}, {"cpus": (0, 1)}, {"suite": None}, {"precision": "a,b"}, {"batch": 2}, {},
        {"generation": make_generation(model=record_generation.LanguageModel(name="qwen"), is_local=False)},
    ):  # fmt: skip
        with table_row(changes):
            text = contract_record.encode(msgspec.structs.replace(first, **changes))
            assert points.lines(text) == Points(extent).lines(text)
            assert points.lines(contract_record.encode(first)) == [point_line(first, extent)]


def test_the_histogram_counts_every_query_once_in_the_bucket_of_its_bound():
    """A bound belongs to the bucket below it; what no bound reaches is counted above."""
    record = with_latencies(1, 1000, 1001, 1250, 1251, 12_500_000, 12_500_001, 10**12, 10**12 + 1)
    _, line = HISTOGRAM.lines(contract_record.encode(record))
    counts = dict(re.findall(r"((?:to_\d+|above)_ns)=(\d+)i", line))
    assert counts == {
        "to_1000_ns": "2", "to_1250_ns": "2", "to_1600_ns": "1", "to_12500000_ns": "1", "to_16000000_ns": "1",
        "to_1000000000000_ns": "1", "above_ns": "1",
    }  # fmt: skip
    assert line.startswith(f"latency_histogram{points.tags_of(record)[1]} ")
    assert line.endswith(f',run_id="{record.id}" {points.point_ns(record)}')


def test_a_power_trace_is_a_point_a_reading_at_the_time_of_the_reading():
    """Counted from the first timed query, of which the record knows the place on the clock that its start was read from."""
    windows = record_figures.Windows(timed_start_ns=4_300_000_000, timed_end_ns=4_400_000_000)
    record = with_power(("ina", "power", [2.0, 2.5], [-1_000_000, 3_000_000]), windows=windows, monotonic_ns=4_200_000_000)
    _, first, second = POWER.lines(contract_record.encode(record))
    start_us = (record.started_at_ns + 100_000_000) // 1000
    assert first.split(" ")[-2:] == ['sensor="ina",run_id="r",power_w=2.0', str((start_us - 1000) * 1000)]
    assert second.split(" ")[-2:] == ['sensor="ina",run_id="r",power_w=2.5', str((start_us + 3000) * 1000)]


def test_readings_of_two_sensors_at_one_time_are_two_points_of_two_series():
    """One that counts energy says so by the field; scope and sensor are those of the sensor that read, not of the run's energy."""
    traces = (
        make_power_trace("a", sensor="ina219"),
        make_power_trace("b", sensor="replay:demo", scope="wall-ac"),
    )
    record = with_power(("a", "power", [1.0], [500]), ("b", "energy", [7.5], [500]))
    _, first, second = POWER.lines(contract_record.encode(msgspec.structs.replace(record, power_traces=traces)))
    assert "power_w=1.0" in first
    assert "energy_mj=7.5" in second
    assert first.split(" ")[-1] != second.split(" ")[-1]
    assert r",energy_source=board-input\,\ ina219\,\ measured," in first
    assert r",energy_source=wall-ac\,\ replay:demo\,\ replayed," in second


def test_what_is_not_a_number_or_damaged_comes_to_no_point():
    """The record's own point is written all the same."""
    assert len(POWER.lines(contract_record.encode(with_power(("a", "power", [1.0, float("nan")], [1000, 2000]))))) == 2
    for damaged in ("!", "", "AAAA"):
        broken = msgspec.structs.replace(with_latencies(1, 2).samples[0], data=damaged)
        assert len(HISTOGRAM.lines(contract_record.encode(make_record(session=5, seq=1, samples=(broken,))))) == 1
    uneven = with_power(("a", "power", [1.0, 2.0], [1000]))
    assert len(POWER.lines(contract_record.encode(uneven))) == 1
    assert len(HISTOGRAM.lines(contract_record.encode(make_record(session=5, seq=1, samples=())))) == 1
