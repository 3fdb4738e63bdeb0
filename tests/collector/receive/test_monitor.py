import urllib.error
import urllib.request
from unittest.mock import Mock

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.collector.receive.monitor import Histogram, Monitor, MonitorMetric, as_text
from tests.fixtures.exposition import read_metrics


def metrics():
    """Yield one of each kind."""
    yield MonitorMetric("records_total", "counter", "Records.", 12_345_678_901)
    latency_s = Histogram((0.1, 1.0))
    for value_s in (0.1, 0.25, 7.5):
        latency_s.observe(value_s)
    yield MonitorMetric("receipt_seconds", "histogram", "Latency.", latency_s)
    yield MonitorMetric("sink_row", "gauge", "Rows.", {'a "b"\n\\': 3, "c": 0.5}, "sink")


@pytest.fixture
def monitor():
    """Return a monitor that answers."""
    monitor = Monitor(metrics, lambda: None)
    monitor.start()
    yield monitor
    monitor.stop()
    monitor.stop()


def get(monitor, path):
    """Return status and text of an answer."""
    try:
        with urllib.request.urlopen(f"http://{monitor.host}:{monitor.port}{path}", timeout=150) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def test_metrics_are_what_prometheus_reads():
    """Every line of the text format; labels are escaped; a bound belongs to its bucket; those of the process come after ours."""
    read = read_metrics(as_text(metrics()))
    process = {name: value for name, value in read.items() if isinstance(name, str) and name.startswith("process_")}
    assert process["process_max_fds"] > process["process_open_fds"] > 0
    assert {name: value for name, value in read.items() if name not in process} == {
        "edgemeter_collector_records_total": 12_345_678_901,
        ("edgemeter_collector_receipt_seconds_bucket", "0.1"): 1,
        ("edgemeter_collector_receipt_seconds_bucket", "1.0"): 2,
        ("edgemeter_collector_receipt_seconds_bucket", "+Inf"): 3,
        "edgemeter_collector_receipt_seconds_sum": 7.85,
        "edgemeter_collector_receipt_seconds_count": 3,
        ("edgemeter_collector_sink_row", 'a "b"\n\\'): 3,
        ("edgemeter_collector_sink_row", "c"): 0.5,
    }


@pytest.mark.services
def test_metrics_and_health_are_served_and_what_cannot_be_is_reported(monitor):
    """200 while results are received, 503 with the reason while not, or while the ledger is busy; 404; a taken port."""
    status, text = get(monitor, "/metrics")
    assert (status, read_metrics(text)["edgemeter_collector_records_total"]) == (200, 12_345_678_901)
    assert get(monitor, "/healthz") == (200, "ok\n")
    monitor.unwell = lambda: "no connection to the broker"
    assert get(monitor, "/healthz") == (503, "no connection to the broker\n")
    monitor.metrics = Mock(side_effect=TransientError("the ledger is held"))
    assert get(monitor, "/metrics") == (503, "the ledger is held\n")
    assert get(monitor, "/else")[0] == 404
    with pytest.raises(UnavailableError, match="--metrics"):
        Monitor(metrics, lambda: None, port=monitor.port).start()
