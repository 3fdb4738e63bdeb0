import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.influx.influx_config import parse_influx
from tests.fixtures.rows import table_row

TOKEN = {"EDGEMETER_INFLUX_TOKEN": "t0ken"}


def test_the_url_goes_before_the_environment():
    """The environment in turn precedes the default."""
    environ = {**TOKEN, "EDGEMETER_INFLUX_ORG": "env-org", "EDGEMETER_INFLUX_BUCKET": "env-bucket"}
    assert parse_influx("http://h:8086/", environ=TOKEN).url == "http://h:8086"
    plain = parse_influx("http://h:8086", environ=environ)
    in_url = parse_influx("https://h/influx?org=o%20rg&bucket=b", environ=environ)
    assert (plain.org, plain.bucket) == ("env-org", "env-bucket")
    assert (in_url.url, in_url.org, in_url.bucket) == ("https://h/influx", "o rg", "b")
    assert (
        parse_influx("http://h", environ=TOKEN).org,
        parse_influx("http://h", environ=TOKEN).bucket,
    ) == (None, "edgemeter")


def test_what_is_no_url_is_refused():
    """A credential in the URL would end in logs, and is not repeated in the error.

    A typing error in a setting would have no visible effect.
    """
    for url, words in (
        *(
            (url, "is not an InfluxDB URL")
            for url in (
                "h:8086",
                "ftp://h",
                "http://",
                "http://h:99999",
                "http://[::1",
                "",
                "http://h#x",
            )
        ),
        ("http://user:hunter2@h", "EDGEMETER_INFLUX_TOKEN"),
        ("http://h?buckets=b", "'buckets' is unknown"),
    ):
        with table_row(url):
            with pytest.raises(ConfigError, match=words) as raised:
                parse_influx(url, environ=TOKEN)
            assert "hunter2" not in str(raised.value)


def test_the_token_comes_from_a_file_or_the_environment_and_is_never_shown(tmp_path):
    """A token file precedes our variable, which precedes InfluxDB's own.

    A token that is absent, or that no header can hold, is refused by its place.
    """
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert parse_influx("http://h", token_file=file, environ=TOKEN).token == "from-file"
    assert parse_influx("http://h", environ={**TOKEN, "INFLUX_TOKEN": "other"}).token == "t0ken"
    config = parse_influx("http://h", environ={"INFLUX_TOKEN": "other"})
    assert config.token == "other"
    assert "other" not in f"{config} {config!r}"
    with pytest.raises(ConfigError, match="set EDGEMETER_INFLUX_TOKEN"):
        parse_influx("http://h", environ={})
    for text in ("\n", "two\nlines", "gr\u00fcn", "\x00", "tab\there"):
        with table_row(text):
            file.write_text(text, encoding="utf-8")
            with pytest.raises(ConfigError, match=str(file)) as raised:
                parse_influx("http://h", token_file=file, environ={})
            assert text not in str(raised.value)
    with pytest.raises(ConfigError, match=r"cannot read the token file .* of InfluxDB"):
        parse_influx("http://h", token_file=tmp_path / "absent", environ=TOKEN)
