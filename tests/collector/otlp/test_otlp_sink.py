"""Facts about `edgemeter.collector.otlp.otlp_sink`: what each response means."""

import pytest

from edgemeter.agent.base.errors import ConfigError, TransientError
from edgemeter.collector.influx.sink import RetryAfterError
from edgemeter.collector.otlp import otlp_sink
from edgemeter.collector.otlp.messages import MetricName, MetricsOfResource, attributes_of
from edgemeter.collector.otlp.otlp_config import parse_otlp
from edgemeter.collector.otlp.otlp_sink import OtlpSink
from tests.fixtures.otlp_server import frozen_server, partial_success
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs(module="opentelemetry")
PROTOBUF = "application/x-protobuf"


def sink_to(url, **environ):
    """Return a sink to the endpoint at `url`."""
    return OtlpSink(parse_otlp(url, environ=environ))


def line(value):
    """Return a request with one gauge."""
    metrics = MetricsOfResource(attributes_of({"service.name": "test", "absent": None}))
    metrics.add(MetricName("edgemeter.value", "1", "A value"), 7, [(value, [])])
    return metrics.encoded()


def values(server):
    """Return what a server has accepted."""
    return [sample.value for sample in server.of("edgemeter.value")]


def test_many_requests_are_one_with_the_headers(endpoint):
    """Messages that are concatenated are one: a POST to the path of metrics, compressed, with what authenticates it."""
    assert sink_to(endpoint.url, EDGEMETER_OTLP_HEADERS="api-key=k").write([line(1.0), b"", line(2.0)]) == []
    ((path, headers, request),) = endpoint.requests
    assert (path, headers["Api-Key"], len(request.resource_metrics)) == ("/v1/metrics", "k", 2)
    assert values(endpoint) == [1.0, 2.0]
    assert endpoint.samples[0].resource == {"service.name": "test"}


def test_a_batch_larger_than_an_endpoint_takes_is_several_requests(endpoint, monkeypatch):
    """By its own size, before it is sent; none is lost or sent twice."""
    monkeypatch.setattr(otlp_sink, "LARGEST_REQUEST_BYTES", 3 * len(line(1.0)))
    assert sink_to(endpoint.url).write([line(float(number)) for number in range(10)]) == []
    assert values(endpoint) == [float(number) for number in range(10)]
    assert len(endpoint.requests) == 4


def test_what_a_server_rejects_is_found_among_many(endpoint):
    """One old sample makes Prometheus refuse a whole request: the others are stored, and it is told from what is wrong with itself."""

    def refuses(request):
        numbers = {point.as_double for of in request.resource_metrics for point in of.scope_metrics[0].metrics[0].gauge.data_points}
        return "out of order sample" if 3.0 in numbers else "bad label" if 5.0 in numbers else None

    endpoint.refuses = refuses
    rejected = sink_to(endpoint.url).write([line(float(number)) for number in range(8)])
    assert [(point.index, point.reason, point.is_expired) for point in rejected] == [
        (3, "out of order sample", True),
        (5, "bad label", False),
    ]
    assert sorted(values(endpoint)) == [0.0, 1.0, 2.0, 4.0, 6.0, 7.0]


def test_an_endpoint_that_rejects_everything_is_wrong_and_not_the_records(endpoint):
    """Plain HTTP to a port of HTTPS: 400 to whatever is sent. One line, and nothing is called bad."""
    endpoint.refuses = lambda _: (400, "text/html", {}, b"<h1>The plain HTTP request was sent to HTTPS port</h1>")
    with pytest.raises(ConfigError, match=r"rejects every request.*HTTPS port.*correct --otlp"):
        sink_to(endpoint.url).write([line(1.0)] * 100)
    assert len(endpoint.requests) == 2


def test_a_response_is_an_error_of_its_own_kind(endpoint):
    """Wait for the pause that was asked for; try again; or correct something first."""
    # google.rpc.Status: code 3, message "quota".
    status = b"\x08\x03\x12\x05quota"
    rows = (
        ((429, PROTOBUF, {"Retry-After": "7"}, status), RetryAfterError, r"429 \(quota\)"),
        ((503, "text/plain", {}, b"later"), TransientError, r"503 \(later\)"),
        ((500, "text/plain", {}, b""), TransientError, "500"),
        ((502, "text/plain", {"Retry-After": "soon"}, b""), TransientError, "502"),
        ((401, "text/plain", {}, b""), ConfigError, "EDGEMETER_OTLP_HEADERS or --otlp-headers-file"),
        ((403, "text/plain", {}, b""), ConfigError, "give its headers"),
        ((404, "text/plain", {}, b"otlp write receiver needs to be enabled"), ConfigError, "--web.enable-otlp-receiver"),
        ((302, "text/plain", {"Location": "http://127.0.0.1:1/"}, b""), ConfigError, "302"),
        ((200, "text/html", {}, b"<html>"), ConfigError, "web page"),
    )
    sink = sink_to(endpoint.url)
    for answer, kind, words in rows:
        endpoint.script.append(answer)
        with table_row(answer), pytest.raises(kind, match=words) as raised:
            sink.write([line(1.0)])
        assert type(raised.value) is kind
        if kind is RetryAfterError:
            assert raised.value.after_s == 7.0
    assert len(endpoint.requests) == len(rows)


def test_the_pause_that_a_server_asks_for_is_kept_within_limits(endpoint):
    """None is a second, a week ten minutes; what is no number of seconds is left to our own pauses."""
    sink = sink_to(endpoint.url)
    for text, seconds in (("30", 30), ("0", 1), ("999999", 600), ("Wed, 21 Oct 2015 07:28:00 GMT", None), ("-5", None)):
        endpoint.script.append((503, "text/plain", {"Retry-After": text}, b""))
        with table_row(text), pytest.raises(TransientError) as raised:
            sink.write([line(1.0)])
        assert getattr(raised.value, "after_s", None) == seconds


def test_points_that_a_server_rejects_in_part_are_counted_and_logged(endpoint, caplog):
    """Which they were it does not say, and a request that was accepted is not repeated."""
    endpoint.script.append((200, PROTOBUF, {}, partial_success(3, "label too long")))
    sink = sink_to(endpoint.url)
    assert sink.write([line(1.0), line(2.0)]) == []
    assert sink.write([line(3.0)]) == []
    assert (sink.rejected_points, len(endpoint.requests)) == (3, 2)
    assert "rejected 3 data points of a request: label too long" in caplog.text


def test_a_frozen_server_is_given_up_at_the_deadline(monkeypatch):
    """It accepts the connection and answers nothing."""
    monkeypatch.setattr(otlp_sink, "OTLP_TIMEOUT_S", 0.2)
    with frozen_server() as url, pytest.raises(TransientError, match="no OTLP endpoint responds"):
        sink_to(url).write([line(1.0)])


def test_a_server_that_is_no_http_or_absent_is_named_with_the_port_to_try():
    """A gRPC port is the usual mistake."""
    with pytest.raises(TransientError, match="not gRPC's 4317"):
        sink_to("http://127.0.0.1:1").write([line(1.0)])
