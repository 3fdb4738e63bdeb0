import json
import stat
import time
from contextlib import closing

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.collector import collector
from edgemeter.collector.influx import influx_config
from edgemeter.collector.influx.client import InfluxHttp
from edgemeter.collector.influx.influx_config import InfluxConfig
from tests.fixtures.influx1 import Influx1
from tests.fixtures.point_lines import point_line
from tests.fixtures.record_factory import make_record
from tests.fixtures.rows import table_row
from tests.fixtures.servers import running


@pytest.fixture
def fresh1(influxd1, tmp_path):
    """Return an InfluxDB 1 that knows an administrator, whose credentials are in the file `admin`."""
    (tmp_path / "admin").write_text("admin:secret")
    with running(Influx1(influxd1, tmp_path, "admin:secret")) as server:
        yield server


@pytest.fixture(params=[pytest.param(2, marks=pytest.mark.influx), pytest.param(1, marks=pytest.mark.influx1)], ids=["influx2", "influx1"])
def fresh(request, tmp_path):
    """Return an InfluxDB of each version, its URL for a bucket or database of the test's own, and the folder of the tokens."""
    if request.param == 2:
        server = request.getfixturevalue("influx2_server")
        (tmp_path / "admin").write_text(server.token)
        return server, f"{server.url}?bucket={tmp_path.name}", tmp_path
    server = request.getfixturevalue("fresh1")
    return server, f"{server.url}?db={tmp_path.name}", tmp_path


def init(url, folder, *options):
    """Run the command; return what came of it."""
    files = ["--write-token-to", str(folder / "write"), "--read-token-to", str(folder / "read")]
    return CliRunner().invoke(collector, ["init-influx", "--influx", url, "--influx-token-file", str(folder / "admin"), *files, *options])


def ids_by(config):
    """Return the ids of the runs that its token can read."""
    with closing(InfluxHttp(config)) as connection:
        return [row["id"] for row in connection.rows("SELECT id FROM run")]


def recent_record():
    """Return a record that no retention has passed."""
    return make_record(session=5, seq=1, started_at_ns=time.time_ns())


def test_the_two_tokens_may_do_one_thing_each_at_the_url_that_is_printed(fresh, sink_of):
    """The collector writes and cannot read, compare reads and cannot write; nobody else may read their files."""
    _, url, folder = fresh
    result = init(url, folder, "--keep-days", "400")
    assert result.exit_code == 0, result.exception
    # The token that may only write sees no organisation: the URL has to name it.
    printed_url = result.stdout.splitlines()[0].rpartition("--influx ")[2].strip("'")
    assert [stat.S_IMODE((folder / name).stat().st_mode) for name in ("write", "read")] == [0o600, 0o600]
    writes, reads = (influx_config.parse_influx(printed_url, token_file=folder / name, environ={}) for name in ("write", "read"))
    record = recent_record()
    assert sink_of(writes).write([point_line(record)]) == []
    assert ids_by(reads) == [record.id]
    with pytest.raises(ConfigError):
        ids_by(writes)
    with pytest.raises(ConfigError):
        sink_of(reads).write([point_line(record)])


def test_it_may_be_done_again_and_changes_what_differs(fresh):
    """Another retention is brought in line; tokens that are there stay, and are not taken for ones of another place."""
    server, url, folder = fresh
    assert init(url, folder).exception is None
    before = (folder / "write").read_text()
    result = init(url, folder, "--keep-days", "5", "--format", "json")
    assert result.exit_code == 0, result.exception
    assert "write" in json.loads(result.stdout)["token_files"]
    assert (folder / "write").read_text() == before
    if isinstance(server, Influx1):
        (policy,) = [row for row in server.query(f'SHOW RETENTION POLICIES ON "{folder.name}"', folder.name) if row["default"]]
        assert policy["duration"] == "120h0m0s"
    else:
        (bucket,) = server.ask(f"/api/v2/buckets?name={folder.name}")["buckets"]
        assert [rule["everySeconds"] for rule in bucket["retentionRules"]] == [5 * 24 * 3600]
        mappings = server.ask(f"/api/v2/dbrps?org={server.org}&bucketID={bucket['id']}")["content"]
        names = [(mapping["database"], mapping["retention_policy"]) for mapping in mappings if not mapping.get("virtual")]
        assert names == [(folder.name, "autogen")]
    for options, right in (((), "write"), (("--write-token-to", str(folder / "write-2")), "read")):
        result = init(f"{url}-other", folder, *options)
        assert isinstance(result.exception, ConfigError)
        assert f"the token in {str(folder / right)!r} has no permission to {right} at" in str(result.exception)


@pytest.mark.influx1
def test_a_retention_policy_of_ones_own_becomes_the_default(fresh1, tmp_path, sink_of):
    """`rp=` names it, for writing as well."""
    for days in ("20", "90"):
        result = init(f"{fresh1.url}?db=fleet&rp=seasons", tmp_path, "--keep-days", days)
        assert result.exit_code == 0, result.exception
    policies = {row["name"]: (row["duration"], row["default"]) for row in fresh1.query("SHOW RETENTION POLICIES ON fleet", "fleet")}
    assert policies["seasons"] == ("2160h0m0s", True)
    writes, reads = (
        InfluxConfig(fresh1.url, (tmp_path / name).read_text().strip(), database="fleet", policy="seasons") for name in ("write", "read")
    )
    record = recent_record()
    assert sink_of(writes).write([point_line(record)]) == []
    assert ids_by(reads) == [record.id]


def test_a_refused_user_leaves_no_token_file_and_a_file_that_cannot_be_written_no_token(fresh):
    """A token file is made with its token or not at all."""
    _, url, folder = fresh
    (folder / "file").write_text("")
    assert isinstance(init(url, folder, "--write-token-to", str(folder / "file" / "below")).exception, ConfigError)
    (folder / "admin").write_text("no:body")
    assert isinstance(init(url, folder).exception, ConfigError)
    assert not (folder / "write").exists()


@pytest.mark.influx1
def test_an_influxdb_1_that_is_taken_for_a_2_is_recognised(influx1_server, tmp_path, sink_of):
    """The first mistake with version 1: the remedy is another URL, and neither an organisation nor a bucket."""
    (tmp_path / "admin").write_text("token")
    assert "?db=DATABASE" in str(init(influx1_server.url, tmp_path).exception)
    with pytest.raises(ConfigError, match=r"\?db=DATABASE"):
        sink_of(InfluxConfig(influx1_server.url, "token")).prepare()


@pytest.mark.influx
def test_an_influxdb_2_that_is_taken_for_a_1_is_recognised(influx2_server, sink_of):
    """The opposite mistake, with whatever token: not the token is wrong, but `?db=`."""
    for token in ("a-token-for-tests", "", "user:password", "x:a-token-for-tests"):
        with table_row(token), pytest.raises(ConfigError, match=r"\?org=ORG&bucket=BUCKET"):
            sink_of(InfluxConfig(influx2_server.url, token, database="nothing")).prepare()
