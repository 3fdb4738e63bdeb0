import json
import stat
import time
import urllib.parse

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx.influx_config import parse_influx
from edgemeter.collector.influx.points import point_line
from tests.fixtures.record_factory import make_record


@pytest.fixture
def init(influx2_server, tmp_path):
    """Return a function that runs the command for a bucket of the test's own.

    The function returns the result of the command.
    """
    (tmp_path / "admin").write_text(influx2_server.token)
    files = [f"--{name}-token-to={tmp_path / name}" for name in ("write", "read")]

    def run(*options):
        url = f"{influx2_server.url}?bucket={tmp_path.name}"
        command = [
            "init-influx",
            "--influx",
            url,
            "--influx-token-file",
            str(tmp_path / "admin"),
            *files,
            *options,
        ]
        return CliRunner().invoke(collector, command)

    return run


@pytest.mark.influx
def test_the_two_tokens_may_do_one_thing_each_at_the_url_that_is_printed(
    init, influx2_server, tmp_path, bucket_of
):
    """The collector writes and cannot read; Grafana reads by InfluxQL and cannot write.

    Nobody else may read their files.
    """
    result = init("--keep-days", "400")
    assert result.exit_code == 0, result.exception
    # The token that may only write sees no organisation: the URL has to name it.
    printed_url = result.stdout.splitlines()[0].rpartition("--influx ")[2].strip("'")
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("write", "read")] == [
        0o600,
        0o600,
    ]
    writes, reads = (
        parse_influx(printed_url, token_file=tmp_path / name, environ={})
        for name in ("write", "read")
    )
    record = make_record(session=5, seq=1, started_at_ns=time.time_ns())
    assert bucket_of(writes).write([point_line(record)]) == {}
    path = "/query?" + urllib.parse.urlencode({"db": tmp_path.name, "q": "SHOW MEASUREMENTS"})
    answers = [
        influx2_server.ask(path, token=config.token)["results"][0] for config in (reads, writes)
    ]
    assert [[series["values"] for series in answer.get("series", [])] for answer in answers] == [
        [[["run"]]],
        [],
    ]
    with pytest.raises(ConfigError):
        bucket_of(reads).write([point_line(record)])


@pytest.mark.influx
def test_it_may_be_done_again_and_changes_what_differs(init, influx2_server, tmp_path):
    """Another retention is set again; existing tokens stay."""
    assert init().exception is None
    before = (tmp_path / "write").read_text()
    result = init("--keep-days", "5", "--format", "json")
    assert result.exit_code == 0, result.exception
    assert "write" in json.loads(result.stdout)["token_files"]
    assert (tmp_path / "write").read_text() == before
    (bucket,) = influx2_server.ask(f"/api/v2/buckets?name={tmp_path.name}")["buckets"]
    assert [rule["everySeconds"] for rule in bucket["retentionRules"]] == [5 * 24 * 3600]


@pytest.mark.influx
def test_a_refused_user_leaves_no_token_file_and_a_file_that_cannot_be_written_no_token(
    init, tmp_path
):
    """A token file is made with its token or not at all."""
    (tmp_path / "file").write_text("")
    assert isinstance(
        init("--write-token-to", str(tmp_path / "file" / "below")).exception, ConfigError
    )
    (tmp_path / "admin").write_text("no:body")
    assert isinstance(init().exception, ConfigError)
    assert not (tmp_path / "write").exists()
