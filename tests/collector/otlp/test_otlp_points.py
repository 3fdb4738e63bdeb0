"""Facts about `edgemeter.collector.otlp.otlp_points`: every figure of a record, read back by the official messages, against its JSON."""

import json
import re

import pytest

from edgemeter.agent.contract import record
from edgemeter.agent.contract.figures import FIGURES
from edgemeter.agent.contract.health import Disk, Health, RecentRuns
from edgemeter.agent.contract.record_conditions import Verdict
from edgemeter.agent.contract.record_figures import Windows
from edgemeter.agent.ledger.presence import DevicePresence
from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.influx.point_schema import CASE_TAGS
from edgemeter.collector.influx.points import tags_of
from edgemeter.collector.otlp.otlp_points import UCUM, OtlpPoints, names_of
from edgemeter.collector.receive.monitor import Histogram, MonitorMetric, as_text
from tests.fixtures.exposition import read_metrics
from tests.fixtures.ledgers import fill
from tests.fixtures.otlp_server import prometheus_name, read_request, request_in
from tests.fixtures.record_factory import make_accuracy, make_energy, make_generation, make_latency, make_record
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs(module="opentelemetry")

# By metric: its unit, where its value stands in the record's JSON, and the name that Prometheus gives it.
FIGURES_OF_A_RUN = {
    "latency.p50": ("ms", "latency.p50_ms", "latency_p50_milliseconds"),
    "latency.p50_low": ("ms", "latency.p50_low_ms", "latency_p50_low_milliseconds"),
    "latency.p50_high": ("ms", "latency.p50_high_ms", "latency_p50_high_milliseconds"),
    "latency.p90": ("ms", "latency.p90_ms", "latency_p90_milliseconds"),
    "latency.p90_low": ("ms", "latency.p90_low_ms", "latency_p90_low_milliseconds"),
    "latency.p90_high": ("ms", "latency.p90_high_ms", "latency_p90_high_milliseconds"),
    "latency.p99": ("ms", "latency.p99_ms", "latency_p99_milliseconds"),
    "throughput": ("{sample}/s", "throughput_per_s", "throughput_per_second"),
    "generation.ttft.p50": ("ms", "generation.ttft.p50_ms", "generation_ttft_p50_milliseconds"),
    "generation.tpot.p50": ("ms", "generation.tpot.p50_ms", "generation_tpot_p50_milliseconds"),
    "generation.prefill_tokens": ("{token}/s", "generation.prefill_tokens_per_s", "generation_prefill_tokens_per_second"),
    "generation.decode_tokens": ("{token}/s", "generation.decode_tokens_per_s", "generation_decode_tokens_per_second"),
    "cold_start.load": ("ms", "cold_start.load_ms", "cold_start_load_milliseconds"),
    "cold_start.first": ("ms", "cold_start.first_ms", "cold_start_first_milliseconds"),
    "memory.peak": ("MBy", "memory.peak_mb", "memory_peak_megabytes"),
    "accuracy.value": ("{score}", "accuracy.value", "accuracy_value"),
    "accuracy.value_low": ("{score}", "accuracy.low", "accuracy_value_low"),
    "accuracy.value_high": ("{score}", "accuracy.high", "accuracy_value_high"),
    "energy.gross": ("mJ", "energy.gross_mj", "energy_gross_mJ"),
    "energy.net": ("mJ", "energy.net_mj", "energy_net_mJ"),
    "energy.mean_power": ("W", "energy.mean_power_w", "energy_mean_power_watts"),
}
# Worked out here: 64 queries of 12.5 ms in a second; the value and its expanded uncertainty.
WORKED_OUT = {
    "duty_cycle": ("1", 64 * 12.5 / 1000, "duty_cycle_ratio"),
    "energy.gross_low": ("mJ", 62.5 - 1.25, "energy_gross_low_mJ"),
    "energy.gross_high": ("mJ", 62.5 + 1.25, "energy_gross_high_mJ"),
    "energy.net_low": ("mJ", 30.0 - 2.0, "energy_net_low_mJ"),
    "energy.net_high": ("mJ", 30.0 + 2.0, "energy_net_high_mJ"),
}


def samples(encoded):
    """Return what a request holds, by metric."""
    return {sample.metric: sample for sample in read_request(request_in(encoded))}


def of_run(run):
    """Return the samples of a run by metric, without the prefix."""
    return {name.removeprefix("edgemeter."): sample for name, sample in samples(points().of_record(run)).items()}


def points(*metrics):
    """Return what makes metrics of records, of a collector with these of its own."""
    return OtlpPoints(lambda: iter(metrics), lambda: "collector-1", None, begun_ns=5)


def full_run(**changes):
    """Return a run with every figure, all different."""
    parts = {
        "windows": Windows(timed_start_ns=4_300_000_000_000, timed_end_ns=1_000_000_000),
        "generation": make_generation(),
        "accuracy": make_accuracy(low=0.5, high=0.75),
        "latency": make_latency(p99_ms=18.5, p99_low_ms=17.0, p99_high_ms=19.0),
        "energy": make_energy(),
    }
    return make_record(**(parts | changes))


def at(document, path):
    """Return the value at a path of a JSON document."""
    for name in path.split("."):
        document = document[name]
    return document


def test_every_figure_of_a_record_has_its_value_unit_and_time():
    """Each against the record's own JSON; what is not in these lists is a bound or an energy of the same figures."""
    run = full_run()
    document = json.loads(record.encode(run))
    exported = of_run(run)
    for metric, (unit, path, prometheus) in FIGURES_OF_A_RUN.items():
        with table_row(metric):
            sample = exported[metric]
            assert (sample.unit, sample.value, sample.kind) == (unit, at(document, path), "gauge")
            assert sample.at_ns // 1_000_000 == document["started_at_ns"] // 1_000_000
            assert prometheus_name(sample.metric, unit, "gauge") == f"edgemeter_{prometheus}"
    for metric, (unit, value, prometheus) in WORKED_OUT.items():
        with table_row(metric):
            assert (exported[metric].unit, exported[metric].value) == (unit, pytest.approx(value))
            assert prometheus_name(exported[metric].metric, unit, "gauge") == f"edgemeter_{prometheus}"
    not_listed = exported.keys() - FIGURES_OF_A_RUN.keys() - WORKED_OUT.keys()
    pattern = r"run\.verdict|latency\.p99_(low|high)|generation\.(ttft|tpot)\.p50_(low|high)|generation\.energy\.\w+(\.gross\w*)?"
    assert [name for name in not_listed if not re.fullmatch(pattern, name)] == []


def test_a_run_names_its_device_and_case():
    """The resource is the device; the case has the words and the hash that it has in InfluxDB."""
    run = full_run()
    sample = of_run(run)["latency.p50"]
    assert sample.resource == {
        "service.name": "edgemeter", "service.namespace": run.fleet, "service.instance.id": run.device, "device.id": run.device,
        "device.model.name": "Raspberry Pi 5 Model B Rev 1.0", "host.name": run.device, "host.arch": "aarch64", "os.type": "linux",
        "os.description": "Debian GNU/Linux 13 (trixie)",
    }  # fmt: skip
    tags = {name: value for name, value in tags_of(run)[0].items() if value}
    assert set(CASE_TAGS) < set(tags)
    expected = {name: value for name, value in tags.items() if name not in ("board", "device", "fleet", "energy_source")}
    assert sample.attributes == expected | {"verdict": "valid", "provenance": "measured"}
    assert sample.attributes["case_hash"] != of_run(full_run(precision="int8"))["latency.p50"].attributes["case_hash"]


def test_energies_and_accuracies_of_other_kinds_are_other_series():
    """Who measured what of the energy, and by which metric the accuracy is; neither on a latency, which a new sensor would cut in two."""
    exported = of_run(full_run())
    assert exported["energy.gross"].attributes["energy_source"] == "board-input, ina219, measured"
    assert exported["accuracy.value"].attributes["accuracy_metric"] == "coco_ap"
    assert not {"energy_source", "accuracy_metric"} & exported["latency.p50"].attributes.keys()


def test_every_figure_states_where_it_comes_from():
    """An estimate, a replay and a published figure are never in one series with a measurement."""
    provenance = {"latency": "measured", "energy": "measured", "accuracy": "published"}
    exported = of_run(full_run(provenance=provenance, energy=make_energy(sensor="estimate")))
    origins = {name: exported[name].attributes["provenance"] for name in ("latency.p50", "memory.peak", "energy.gross", "accuracy.value")}
    assert origins == {"latency.p50": "measured", "memory.peak": "measured", "energy.gross": "estimated", "accuracy.value": "published"}
    assert of_run(full_run(provenance={}))["latency.p50"].attributes["provenance"] == "not stated"


def test_an_invalid_run_has_its_verdict_and_no_figure():
    """A suspect one has its figures, marked."""
    invalid = of_run(full_run(verdict=Verdict(state="invalid", reasons=("throttled: it was",))))
    assert {name: (sample.value, sample.attributes["verdict"]) for name, sample in invalid.items()} == {"run.verdict": (1.0, "invalid")}
    suspect = of_run(full_run(verdict=Verdict(state="suspect", reasons=("throttled: it was",))))
    assert {sample.attributes["verdict"] for sample in suspect.values()} == {"suspect"}
    assert suspect.keys() == of_run(full_run()).keys()


def test_what_a_run_does_not_have_is_absent():
    """No zero where nothing was measured; an energy of less than nothing, of a reversed clamp, is none."""
    exported = of_run(make_record(energy=None, energy_reason="no sensor", accuracy=None, generation=None, windows=None))
    assert not [name for name in exported if name.startswith(("energy", "accuracy", "generation", "duty"))]
    assert not [name for name in of_run(full_run(energy=make_energy(gross_mj=-3.0))) if name.startswith("energy")]
    assert not [name for name in of_run(full_run(energy=make_energy(net_state="not_resolvable"))) if name.startswith("energy.net")]


def test_every_unit_of_the_table_of_figures_is_one_of_ucum():
    """A figure with a new unit gets it here, or would go out under an annotation."""
    assert {entry.unit for entry in FIGURES if "influx" in entry.views} - {""} <= UCUM.keys()
    names = [name.name for entry in FIGURES for name in names_of(entry)]
    assert len(set(names)) == len(names)


def test_a_run_of_an_impossible_clock_is_at_the_time_of_its_receipt(tmp_path):
    """As in InfluxDB; records that were removed and those still to be checked are left out."""
    path = fill(tmp_path / "ledger", [make_record(started_at_ns=2 * 10**18), make_record()])
    with SqliteLedger(path, "read") as ledger:
        (first, second) = [(chunk, row, lines) for chunk in ledger.chunks() for row, lines in points().of_chunk(chunk)]
    chunk, _, (line,) = first
    assert abs(samples(line)["edgemeter.latency.p50"].at_ns - chunk.received_ns) < 86_400 * 10**9
    assert [row for _, row, _ in (first, second)] == [1, 2]


HEALTH = Health(
    device="pi-1", fleet="lab", session=5, told_ns=1_760_000_000_000_000_000, agent="0.1.0", board="Pi", os="Debian", arch="aarch64",
    waiting_records=3, dropped_records=1, disk=Disk(free_bytes=10, size_bytes=40, wear_ratio=0.25), temperatures_c={"a": 40.0, "b": 61.5},
    runs=RecentRuns(last_ns=1_750_000_000_000_000_000), is_throttled_since_boot=True, uptime_s=77.5,
)  # fmt: skip
OF_A_DEVICE = {
    "is_online": ("", 1.0), "waiting_records": ("{record}", 3.0), "dropped_records": ("{record}", 1.0), "disk_free": ("By", 10.0),
    "disk_size": ("By", 40.0), "disk_wear": ("1", 0.25), "temperature_max": ("Cel", 61.5), "uptime": ("s", 77.5),
    "is_throttled_since_boot": ("", 1.0), "last_run_timestamp": ("s", 1.75e9), "changed_timestamp": ("s", 6e-9), "issues": ("{issue}", 2.0),
    "reported_timestamp": ("s", 1.76e9),
}  # fmt: skip


def test_a_device_reports_its_health_while_it_is_online():
    """At the time of asking, in UCUM; of one that is lost only the presence is known, and one that was retired is not expected."""
    device = DevicePresence("lab", "pi-1", "online", 5, None, 6, HEALTH)
    exported = samples(points().of_device(device, 9))
    assert {sample.at_ns for sample in exported.values()} == {9}
    assert {name.removeprefix("edgemeter.device."): (sample.unit, sample.value) for name, sample in exported.items()} == OF_A_DEVICE
    assert exported["edgemeter.device.uptime"].resource["service.instance.id"] == "pi-1"
    lost = samples(points().of_device(_with(device, "lost"), 9))
    assert {name: sample.value for name, sample in lost.items()} == {
        "edgemeter.device.is_online": 0.0, "edgemeter.device.changed_timestamp": 6e-9,
    }  # fmt: skip
    assert points().of_device(_with(device, "revoked"), 9) == b""


def _with(device, state):
    return DevicePresence(device.fleet, device.device, state, device.session, device.birth, device.changed_ns, device.health)


def test_the_collectors_metrics_have_the_names_and_values_of_its_metrics_page():
    """By Prometheus' translation of names, so that one dashboard serves both; a histogram's buckets are not cumulative here."""
    histogram = Histogram((0.1, 1.0))
    for value in (0.05, 0.5, 0.6, 7.0):
        histogram.observe(value)
    monitored = [
        MonitorMetric("messages_total", "counter", "Messages.", 7),
        MonitorMetric("ledger_bytes", "gauge", "Size.", 4096),
        MonitorMetric("sink_lag_seconds", "gauge", "Lag.", {"otlp a": 1.5, "influx b": 0.0}, "sink"),
        MonitorMetric("devices", "gauge", "Devices, of which there are none.", {}, "state"),
        MonitorMetric("receipt_seconds", "histogram", "Receipts.", histogram),
        MonitorMetric("cpu_seconds_total", "counter", "CPU.", 1.25, prefix="process_"),
        MonitorMetric("resident_memory_bytes", "gauge", "Memory.", 9.0, prefix="process_"),
    ]
    encoded = points(*monitored).of_collector(99)
    request = request_in(encoded)
    exported = {
        (prometheus_name(sample.metric, sample.unit, sample.kind), *sample.attributes.values()): sample for sample in read_request(request)
    }
    page = {key if isinstance(key, tuple) else (key,): value for key, value in read_metrics(as_text(iter(monitored))).items()}
    simple = {key: value for key, value in page.items() if "receipt" not in key[0]}
    assert {key: sample.value for key, sample in exported.items() if sample.kind != "histogram"} == simple
    assert exported["edgemeter_collector_receipt_seconds",].value == page["edgemeter_collector_receipt_seconds_count",] == 4
    (metric,) = [metric for metric in request.resource_metrics[0].scope_metrics[0].metrics if metric.HasField("histogram")]
    (point,) = metric.histogram.data_points
    assert (list(point.bucket_counts), list(point.explicit_bounds), point.sum) == ([1, 2, 1], [0.1, 1.0], pytest.approx(8.15))
    assert (point.start_time_unix_nano, point.time_unix_nano, metric.histogram.aggregation_temporality) == (5, 99, 2)
    (counter,) = [
        metric for metric in request.resource_metrics[0].scope_metrics[0].metrics if metric.name == "edgemeter.collector.messages"
    ]
    assert (counter.sum.is_monotonic, counter.sum.aggregation_temporality) == (True, 2)
    assert request.resource_metrics[0].scope_metrics[0].scope.name == "edgemeter"
