import json
import stat
import time

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx import influx_config
from edgemeter.collector.influx.influx_config import InfluxConfig
from edgemeter.collector.runs.store import InfluxStore
from tests.fixtures.influx1 import Influx1
from tests.fixtures.point_lines import point_line
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.servers import running


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.influx), pytest.param(1, marks=pytest.mark.influx1)], ids=["influx2", "influx1"])
def fresh(request, tmp_path):
    """Return an InfluxDB of each version, its URL for a bucket or database `fleet`, and the options of its administrator."""
    if request.param == 2:
        server = request.getfixturevalue("influx2_server")
        (tmp_path / "admin").write_text(server.token)
        yield server, f"{server.url}?org={server.org}&bucket=fleet", tmp_path
        return
    (tmp_path / "admin").write_text("admin:secret")
    with running(Influx1(request.getfixturevalue("influxd1"), tmp_path, "admin:secret")) as server:
        yield server, f"{server.url}?db=fleet", tmp_path


def init(url, folder, *options):
    """Run the command; return what came of it."""
    files = ["--write-token-to", str(folder / "write"), "--read-token-to", str(folder / "read")]
    return CliRunner().invoke(collector, ["init-influx", "--influx", url, "--influx-token-file", str(folder / "admin"), *files, *options])


def test_the_two_tokens_may_do_one_thing_each(fresh, sink_of):
    """The collector writes and cannot read, compare reads and cannot write; nobody else may read their files."""
    _, url, folder = fresh
    result = init(url, folder, "--keep-days", "400")
    assert result.exit_code == 0, result.exception
    assert "kept 400 days" in result.stdout
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in ("write", "read")] == [0o600, 0o600]
    writes, reads = (influx_config.parse_influx(url, token_file=folder / name, environ={}) for name in ("write", "read"))
    record = make_record(session=5, seq=1, started_at_ns=recent_ns())
    assert sink_of(writes).write([point_line(record)]) == []
    (run,) = InfluxStore(reads).contents().runs
    assert run.id == record.id
    with pytest.raises(ConfigError, match=r"does not accept the token|not authorized|not found"):
        InfluxStore(writes).contents()
    with pytest.raises(ConfigError, match=r"does not accept the token|not authorized"):
        sink_of(reads).write([point_line(record)])


def test_it_may_be_done_again_and_changes_what_differs(fresh):
    """Another retention is brought in line; tokens that are there stay."""
    server, url, folder = fresh
    assert init(url, folder).exception is None
    before = (folder / "write").read_text()
    result = init(url, folder, "--keep-days", "5", "--json")
    assert result.exit_code == 0, result.exception
    assert json.loads(result.stdout)["said"][-1].endswith("kept (for compare: read permission only)")
    assert (folder / "write").read_text() == before
    if isinstance(server, Influx1):
        (policy,) = [row for row in server.query("SHOW RETENTION POLICIES ON fleet", "fleet") if row["default"]]
        assert policy["duration"] == "120h0m0s"
    else:
        (bucket,) = server.ask("/api/v2/buckets?name=fleet")["buckets"]
        assert [rule["everySeconds"] for rule in bucket["retentionRules"]] == [5 * 24 * 3600]
        mappings = server.ask(f"/api/v2/dbrps?org={server.org}&bucketID={bucket['id']}")["content"]
        assert [(mapping["database"], mapping["retention_policy"]) for mapping in mappings if not mapping.get("virtual")] == [
            ("fleet", "autogen")
        ]


@pytest.mark.influx1
def test_a_retention_policy_of_ones_own_becomes_the_default(influxd1, tmp_path, sink_of):
    """`rp=` names it, for writing as well."""
    (tmp_path / "admin").write_text("admin:secret")
    with running(Influx1(influxd1, tmp_path, "admin:secret")) as server:
        for days in ("20", "90"):
            result = init(f"{server.url}?db=fleet&rp=seasons", tmp_path, "--keep-days", days)
            assert result.exit_code == 0, result.exception
        policies = {row["name"]: (row["duration"], row["default"]) for row in server.query("SHOW RETENTION POLICIES ON fleet", "fleet")}
        assert policies["seasons"] == ("2160h0m0s", True)
        config = InfluxConfig(server.url, (tmp_path / "write").read_text().strip(), database="fleet", policy="seasons")
        record = make_record(session=5, seq=1, started_at_ns=recent_ns())
        assert sink_of(config).write([point_line(record)]) == []
        reads = InfluxConfig(server.url, (tmp_path / "read").read_text().strip(), database="fleet", policy="seasons")
        assert [run.id for run in InfluxStore(reads).contents().runs] == [record.id]


def test_a_refused_user_is_reported_and_no_token_file_is_left(fresh):
    """A token file is made with its token or not at all."""
    _, url, folder = fresh
    (folder / "admin").write_text("no:body")
    result = init(url, folder)
    assert isinstance(result.exception, ConfigError)
    assert "does not accept the token" in str(result.exception)
    assert not (folder / "write").exists()


def test_a_token_file_that_cannot_be_written_is_reported(fresh):
    """Before a token is made for it."""
    _, url, folder = fresh
    (folder / "file").write_text("")
    result = init(url, folder, "--write-token-to", str(folder / "file" / "below"))
    assert isinstance(result.exception, ConfigError)
    assert "cannot write a token to" in str(result.exception)


@pytest.mark.influx1
def test_an_influxdb_1_that_is_taken_for_a_2_is_recognised(influxd1, tmp_path, sink_of):
    """The first mistake with version 1: the remedy is another URL, and neither an organisation nor a bucket."""
    (tmp_path / "admin").write_text("token")
    with running(Influx1(influxd1, tmp_path)) as server:
        assert "for InfluxDB 1 append ?db=DATABASE to the URL" in str(init(server.url, tmp_path).exception)
        with pytest.raises(ConfigError, match="for InfluxDB 1 append"):
            sink_of(InfluxConfig(server.url, "token")).prepare()


@pytest.mark.influx
def test_an_influxdb_2_that_is_taken_for_a_1_is_recognised(influx2_server, sink_of):
    """The opposite mistake, with whatever token: not the token is wrong, but `?db=`."""
    for token in ("a-token-for-tests", "", "user:password", "x:a-token-for-tests"):
        with (
            table_row(token),
            pytest.raises(ConfigError, match=r"is an InfluxDB 2, and \?db= is of version 1: write \?org=ORG&bucket=BUCKET"),
        ):
            sink_of(InfluxConfig(influx2_server.url, token, database="nothing")).prepare()


def recent_ns():
    """Return a time that no retention has passed."""
    return time.time_ns()


def test_what_is_printed_is_what_the_collector_takes(fresh, sink_of):
    """The token that may only write sees no organisation: the URL has to name it, and the command says that URL."""
    server, url, folder = fresh
    plain = url.replace(f"org={server.org}&", "") if not isinstance(server, Influx1) else url
    result = init(plain, folder)
    assert result.exit_code == 0, result.exception
    printed_url = result.stdout.splitlines()[0].rpartition("--influx ")[2].strip("'")
    config = influx_config.parse_influx(printed_url, token_file=folder / "write", environ={})
    assert sink_of(config).write([point_line(make_record(session=5, seq=1, started_at_ns=recent_ns()))]) == []


def test_a_token_of_another_place_is_not_taken_for_one_of_this(fresh):
    """The files of one bucket named for a second: nothing is called good that the server refuses."""
    _, url, folder = fresh
    assert init(url, folder).exception is None
    result = init(url.replace("fleet", "other"), folder)
    assert isinstance(result.exception, ConfigError)
    assert f"the token in {str(folder / 'write')!r} has no permission to write at" in str(result.exception)
    assert "name another file (--write-token-to)" in str(result.exception)
    result = init(url.replace("fleet", "other"), folder, "--write-token-to", str(folder / "write-2"))
    assert f"the token in {str(folder / 'read')!r} has no permission to read at" in str(result.exception)
