"""Facts about an address of PostgreSQL.

It is never shown with its password, and its connection is encrypted and verified unless the address
says otherwise.
"""

import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.base.postgres_address import PostgresAddress
from edgemeter.agent.base.variables import set_variables
from edgemeter.agent.cli.main import cli
from edgemeter.collector.ledgers.place import ledger_place
from tests.fixtures.rows import table_row

SECRET = "s3cr3t"


def test_an_address_is_shown_without_its_password():
    """The password is in neither its text, its representation nor the names of files."""
    for text, printed in (
        (f"postgresql://ada:{SECRET}@db.example/lab", "postgresql://ada@db.example/lab"),
        (f"postgresql://ada:a@{SECRET}@db.example/lab", "postgresql://ada@db.example/lab"),
        (
            (
                "postgresql://ada@a.example,b.example:5433/lab"
                f"?password={SECRET}&target_session_attrs=read-write"
            ),
            "postgresql://ada@a.example,b.example:5433/lab?target_session_attrs=read-write",
        ),
        (
            f"postgresql:///lab?host=/run/postgresql&sslpassword={SECRET}",
            "postgresql:///lab?host=/run/postgresql",
        ),
    ):
        with table_row(printed):
            address = PostgresAddress(text)
            assert str(address) == printed
            assert SECRET not in f"{address} {address!r} {address.name}"


def test_a_password_that_breaks_the_address_is_not_shown_either():
    """The error explains how to write a letter that an address cannot hold as it is."""
    for letter in ("/", "?", "#"):
        with table_row(letter):
            with pytest.raises(
                ConfigError, match="the given address is not the address of a database"
            ) as raised:
                PostgresAddress(f"postgresql://ada:a{letter}{SECRET}@db.example:5433/lab")
            assert SECRET not in str(raised.value)


def test_this_machine_needs_no_certificate():
    """A connection over the loopback or a socket never leaves the machine."""
    for host in (
        "localhost",
        "127.0.0.1:5433",
        "[::1]:5433",
        "",
        "127.0.0.1,localhost",
        "%2Frun%2Fpostgresql",
    ):
        assert "sslmode" not in PostgresAddress(f"postgresql://{host}/lab").connection, host


def test_any_other_host_is_verified():
    """The server's certificate is verified unless the address itself sets `sslmode`."""
    for host in ("db.example", "10.0.0.1", "127.0.0.1,db.example", "db.example:5433/lab?x"):
        with table_row(host):
            text = (
                f"postgresql://{host}/lab"
                if "?" not in host
                else "postgresql://db.example/lab?application_name=x"
            )
            assert PostgresAddress(text).connection.endswith(
                ("?sslmode=verify-full", "&sslmode=verify-full")
            )
            encrypted = f"{text}{'&' if '?' in text else '?'}sslmode=require"
            assert PostgresAddress(encrypted).connection == encrypted


def test_two_ways_to_write_one_ledger_share_their_caches():
    """Another user, password or encryption still means the same ledger and the same index."""
    first, other = (
        "postgresql://ada:x@db.example/lab",
        "postgresql://bob@db.example/lab?sslmode=require",
    )
    assert PostgresAddress(first).name == PostgresAddress(other).name
    assert PostgresAddress(first).name != PostgresAddress("postgresql://ada@db.example/other").name


def test_an_address_that_is_no_ledger_is_refused():
    """A broker's address is refused, but a path with a doubled slash is still a file."""
    with pytest.raises(ConfigError, match="mqtt://"):
        ledger_place("mqtt://host")
    with pytest.raises(ConfigError, match="not the address of a database"):
        ledger_place("postgresql://host")
    assert str(ledger_place("a//b.sqlite")) == "a/b.sqlite"


def test_the_environment_names_it_too(monkeypatch):
    """The ledger can be set by a variable, which is shown without the password."""
    monkeypatch.setenv("EDGEMETER_LEDGER", f"postgresql://ada:{SECRET}@127.0.0.1:1/lab")
    result = CliRunner().invoke(cli, ["collector", "backup", "x"])
    assert "postgresql://ada@127.0.0.1:1/lab is a database" in str(
        result.exception or result.output
    )
    assert set_variables()["EDGEMETER_LEDGER"] == "postgresql://ada:(secret)@127.0.0.1:1/lab"
    monkeypatch.setenv("EDGEMETER_LEDGER", f"postgresql://127.0.0.1/lab?user=ada&password={SECRET}")
    assert (
        set_variables()["EDGEMETER_LEDGER"]
        == "postgresql://127.0.0.1/lab?user=ada&password=(secret)"
    )
