import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.influx.influx_config import InfluxConfig
from tests.fixtures.point_lines import point_line
from tests.fixtures.record_factory import make_environment, make_record
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.influx


@pytest.fixture
def server(influx2_server):
    """Return a running InfluxDB 2."""
    return influx2_server


def config_of(server, **changes):
    """Return the configuration of a server, with changes."""
    return InfluxConfig(**({"url": server.url, "token": server.token, "org": server.org, "bucket": server.bucket} | changes))


NASTY = [
    "a b",
    "a,b",
    "a=b",
    'a"b',
    "a\\",
    'a\\"b',
    "a\\\\",
    "new\nline",
    "tab\t",
    "grün \N{GRINNING FACE}",
    "' OR 1=1",
    "\x01\x7f",
    "#",
    " ",
]


def test_any_text_comes_back_exactly_from_a_field_and_stays_one_tag(server, sink_of):
    """Line ends, quotes, backslashes, commas, blanks, equals signs, Unicode: a real server reads what was meant."""
    for text in NASTY:
        with table_row(text):
            device = f"nasty-{NASTY.index(text)}"
            environment = make_environment(board=text)
            record = make_record(device=device, session=5, seq=1, case=text, precision=text, environment=environment, suite=text)
            assert sink_of(config_of(server)).write([point_line(record)]) == []
            (point,) = server.query(f"SELECT * FROM run WHERE device = '{device}'")  # noqa: S608 - a name of ours
            assert (point["case"], point["environment_board"]) == (text, text)
            plain = "".join(" " if ord(character) < 32 or ord(character) == 127 else character for character in text).replace("\\", "/")
            assert (point["precision"], point["board"], point["suite"]) == (plain, plain, plain)
            assert point["latency_p50_ms"] == 12.25


def limited_token(server, action="write"):
    """Return a token that may only write (or read) the bucket of the tests."""
    org = server.ask("/api/v2/orgs")["orgs"][0]["id"]
    bucket = server.ask(f"/api/v2/buckets?name={server.bucket}")["buckets"][0]["id"]
    permissions = [{"action": action, "resource": {"type": "buckets", "id": bucket, "orgID": org}}]
    return server.ask("/api/v2/authorizations", {"orgID": org, "permissions": permissions})["token"]


def test_a_wrong_token_organisation_or_bucket_is_one_clear_line(server, sink_of):
    """What was tried, on what, and what to do."""
    for changes, message in (
        ({"token": "wrong"}, "does not accept the token"),
        ({"org": "nobody"}, 'organization name "nobody" not found'),
        ({"org": None, "token": "write-only"}, r"\?org=ORG"),
        ({"bucket": "absent", "token": "write-only"}, 'bucket "absent" not found'),
        ({"token": "read-only"}, "does not accept the token"),
    ):
        with table_row(changes):
            token = changes.get("token", "")
            changed_token = {"token": limited_token(server, token.removesuffix("-only"))} if token.endswith("-only") else {}
            with pytest.raises(ConfigError, match=message) as raised:
                sink_of(config_of(server, **changes | changed_token)).prepare()
            assert "\n" not in str(raised.value)
