"""Facts about `edgemeter.collector.otlp.otlp_config`."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.otlp.otlp_config import parse_otlp
from tests.fixtures.rows import table_row


def test_the_path_of_metrics_is_appended_to_the_url():
    """As the specification says of a base URL; a whole one stays."""
    for url, address in (
        ("http://alloy.example:4318", "http://alloy.example:4318/v1/metrics"),
        ("http://alloy.example:4318/", "http://alloy.example:4318/v1/metrics"),
        ("http://prometheus.example:9090/api/v1/otlp", "http://prometheus.example:9090/api/v1/otlp/v1/metrics"),
        ("https://otlp.example/otlp/v1/metrics", "https://otlp.example/otlp/v1/metrics"),
    ):
        with table_row(url):
            assert str(parse_otlp(url, environ={})) == address


def test_headers_come_from_the_file_else_from_the_environment(tmp_path):
    """NAME=VALUE, separated by commas or lines and percent-encoded, as of OpenTelemetry's own variable; ours goes first."""
    environ = {"OTEL_EXPORTER_OTLP_HEADERS": "api-key=a%3Db, x-scope-orgid=lab"}
    assert parse_otlp("http://x:4318", environ=environ).headers == {"api-key": "a=b", "x-scope-orgid": "lab"}
    assert parse_otlp("http://x:4318", environ={**environ, "EDGEMETER_OTLP_HEADERS": "api-key=c"}).headers == {"api-key": "c"}
    file = tmp_path / "headers"
    file.write_text("Authorization=Basic dXNlcjpw==\n\nx-a=1\n")
    config = parse_otlp("http://x:4318", headers_file=file, environ=environ)
    assert config.headers == {"Authorization": "Basic dXNlcjpw==", "x-a": "1"}
    assert "dXNl" not in f"{config!r} {config}"


def test_what_is_wrong_is_one_line_that_shows_no_secret(tmp_path):
    """A URL of another kind, a password in it, headers that are none, a file that cannot be read or is empty."""
    (tmp_path / "empty").touch()
    (tmp_path / "bad").write_text("s3cret")
    rows = (
        ("alloy.example:4318", None, "is not the URL of an OTLP endpoint"),
        ("http://x:4318?token=1", None, "is not the URL of an OTLP endpoint"),
        ("http://x:port", None, "is not the URL of an OTLP endpoint"),
        ("http://user:s3cret@x:4318", None, "contains a user or password"),
        ("http://x:4318", tmp_path / "absent", "cannot read the OTLP headers"),
        ("http://x:4318", tmp_path / "empty", "contains no OTLP header"),
        ("http://x:4318", tmp_path / "bad", "are not NAME=VALUE"),
    )
    for url, file, words in rows:
        with table_row(words), pytest.raises(ConfigError, match=words) as raised:
            parse_otlp(url, headers_file=file, environ={})
        assert "s3cret" not in str(raised.value)
    with pytest.raises(ConfigError, match="in the environment are not NAME=VALUE"):
        parse_otlp("http://x:4318", environ={"EDGEMETER_OTLP_HEADERS": "a=b\r\nc:d"})
