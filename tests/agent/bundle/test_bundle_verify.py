"""Facts about computing a record again from its raw samples."""

import json

import msgspec
import numpy as np
import pytest

from edgemeter.agent.bundle.recompute import are_equal, single_values, timed_of_record
from edgemeter.agent.bundle.verify import verify
from edgemeter.agent.contract import record_figures, samples
from edgemeter.agent.energy.sampler import unpack_trace
from edgemeter.agent.energy.window import absolute_windows
from edgemeter.agent.engine.scenarios import scenario
from edgemeter.agent.session import sustained
from tests.fixtures.bundle_factory import make_sound_record, rezip, write_bundle
from tests.fixtures.rows import in_folders, table_row


def test_a_sound_record_comes_out_as_stated(tmp_path):
    """Every figure is recomputed, and none differs from the stated one.

    The energy is right and not only the same: 5 W for 12 s over 2,000 inferences, 3 W above idle.
    """
    record = make_sound_record()
    assert record.energy is not None
    assert record.energy.net_state == "resolved"
    verification = verify(write_bundle(tmp_path, record))
    assert (verification.differences, verification.state, verification.holds) == ((), "same", True)
    assert {"latency", "throughput_per_s", "preprocess", "energy", "windows"} <= set(
        verification.checked
    )
    assert sum(verification.checked.values()) > 20
    assert (verification.record, verification.written_by) == (record.id, "0.1.0")
    energy = make_sound_record().energy
    assert energy.gross_mj == pytest.approx(5 * energy.window_ms / 2000, rel=0.02)
    assert energy.net_mj == pytest.approx(3 * energy.window_ms / 2000, rel=0.02)


def test_a_figure_changed_by_a_millionth_is_named(tmp_path):
    """A number that was improved is reported with both values, even with a new manifest."""
    for folder, path in in_folders(
        tmp_path,
        [
            *(
                "latency.p50_ms",
                "latency.early_stopping_ms.p90",
                "throughput_per_s",
                "preprocess.p90_ms",
                "windows.timed_end_ns",
            ),
            *("energy.gross_mj", "energy.net_mj", "energy.window_ms"),
        ],
    ):
        with table_row(path):
            before = {}

            def better(files, path=path, before=before):
                record = json.loads(files["record.json"])
                *way, last = path.split(".")
                part = record
                for key in way:
                    part = part[key]
                before["was"] = part[last]
                part[last] = (
                    part[last] * (1 - 1e-6) if isinstance(part[last], float) else part[last] - 1
                )
                files["record.json"] = json.dumps(record).encode()

            verification = verify(rezip(write_bundle(folder), better))
            assert verification.state == "differs"
            assert not verification.holds
            difference = next(
                difference for difference in verification.differences if difference.field == path
            )
            # A changed end of the timed part moves the energy window too: what comes out is the
            # last query's end all the same.
            assert difference.recomputed == pytest.approx(before["was"], rel=1e-12)
            assert difference.stated != before["was"]


def test_an_energy_without_support_is_named(tmp_path):
    """A record that states an energy which its readings do not support differs.

    So does one that states the energy of another sensor.
    """
    record = make_sound_record()
    short = msgspec.structs.replace(
        record,
        samples=tuple(sample for sample in record.samples if not sample.name.startswith("power")),
    )
    other = msgspec.structs.replace(
        record, energy=msgspec.structs.replace(record.energy, sensor="another")
    )
    for forged in (short, other):
        (difference,) = verify(write_bundle(tmp_path, forged)).differences
        assert (difference.field, difference.stated, difference.recomputed) == (
            "energy.gross_mj",
            record.energy.gross_mj,
            None,
        )


def test_queries_that_overlap_are_named(tmp_path):
    """Queries that follow each other cannot have latencies longer than the gaps of their starts."""
    record = make_sound_record()
    starts = next(sample for sample in record.samples if sample.name == "query_start")
    squeezed = samples.pack("query_start", "ns", (samples.unpack(starts) * 0.9).astype(np.int64))
    changed = msgspec.structs.replace(
        record, samples=tuple(squeezed if sample is starts else sample for sample in record.samples)
    )
    verification = verify(write_bundle(tmp_path, changed))
    assert any(
        difference.field.startswith("samples.query_start") and difference.recomputed > 1000
        for difference in verification.differences
    )


def test_the_curve_of_a_long_run_is_computed_again(tmp_path):
    """Its medians and powers follow from the samples; clock and temperature are taken as stated."""
    record = make_sound_record()
    series, (timed, _, _) = (
        {sample.name: sample for sample in record.samples},
        absolute_windows(record.windows),
    )
    traces = [unpack_trace(trace, series, timed.start_ns) for trace in record.power_traces]
    curve = sustained.sustained_of(record, timed, (), traces)
    points = tuple(
        msgspec.structs.replace(point, clock_hz=1.5e9, temperature_c=60.0) for point in curve.points
    )
    curve = sustained.judged(points, curve.interval_s)
    assert len(points) > 10
    assert points[3].power_w == pytest.approx(5, rel=0.02)
    verification = verify(write_bundle(tmp_path, msgspec.structs.replace(record, sustained=curve)))
    assert verification.differences == ()
    assert verification.checked["sustained"] > 30
    worse = (msgspec.structs.replace(points[0], p50_ms=points[0].p50_ms * 0.9), *points[1:])
    verification = verify(
        write_bundle(
            tmp_path,
            msgspec.structs.replace(record, sustained=msgspec.structs.replace(curve, points=worse)),
        )
    )
    assert "sustained.points[0].p50_ms" in {
        difference.field for difference in verification.differences
    }
    shorter = msgspec.structs.replace(curve, points=points[:-1])
    assert (
        verify(write_bundle(tmp_path, msgspec.structs.replace(record, sustained=shorter))).state
        == "differs"
    )


def test_an_open_loop_is_recomputed(tmp_path):
    """Rates and utilisation follow from arrivals, starts and latencies, and a change is named."""
    record = make_sound_record()
    raw = {sample.name: samples.unpack(sample) for sample in record.samples}
    arrivals_ns = raw["query_start"] - 100_000
    latency_ns = raw["latency"] + 100_000
    series = {"latency": latency_ns, "arrival": arrivals_ns}
    other_series = [sample for sample in record.samples if sample.name != "latency"]
    packed = (*(samples.pack(name, "ns", values) for name, values in series.items()), *other_series)
    part = record_figures.Load(samples=2000, target_per_s=150.0)
    record = msgspec.structs.replace(record, scenario="poisson", samples=packed, load=part)
    load = scenario.load_of_timed(timed_of_record(record, raw | series), 1, 150.0)
    differing = {
        difference.field
        for difference in verify(
            write_bundle(tmp_path, msgspec.structs.replace(record, load=load))
        ).differences
    }
    assert not any(field.startswith("load") for field in differing)
    assert not any("queries that began" in field for field in differing)
    better = msgspec.structs.replace(load, utilisation_ratio=0.5)
    differing = {
        difference.field
        for difference in verify(
            write_bundle(tmp_path, msgspec.structs.replace(record, load=better))
        ).differences
    }
    assert "load.utilisation_ratio" in differing


def test_nothing_is_recomputed_without_samples(tmp_path):
    """A record whose samples were left out, or without the times of its parts, proves nothing."""
    for bare in (make_sound_record(samples=(), power_traces=()), make_sound_record(windows=None)):
        verification = verify(write_bundle(tmp_path, bare))
        assert (verification.state, verification.checked, verification.differences) == (
            "same",
            {},
            (),
        )


def test_comparing_names_each_value_that_differs():
    """Numbers agree to 1e-9, absent is not zero, and true is not 1.

    A list of another length differs as a whole.
    """
    for stated_value, recomputed, differing in [
        ({"a": 1.0}, {"a": 1.0 + 1e-12}, []),
        ({"a": 1.0}, {"a": 1.0 + 1e-8}, ["x.a"]),
        ({"a": 1}, {"a": 1, "b": 2.0}, ["x.b"]),
        ({"a": None}, {"a": 0.0}, ["x.a"]),
        ([1, 2], [1, 3], ["x[1]"]),
        ([1, 2], [1], ["x"]),
        (True, 1, ["x"]),
        ("1", 1, ["x"]),
        ({"a": 1}, None, ["x"]),
        (2, 2.0, []),
        ({"reason": "5 ms"}, {"reason": "6 ms"}, []),
        ({"gross_u_mj": 1.0}, {"gross_u_mj": None}, []),
    ]:
        pairs = single_values("x", stated_value, recomputed)
        assert [
            name for name, first, second in pairs if not are_equal(first, second)
        ] == differing, f"{stated_value!r}, {recomputed!r}"
