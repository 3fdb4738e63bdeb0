"""The PostgreSQL of the tests does what its fixtures promise."""

import pytest

from tests.fixtures.postgresql import Postgresql

pytestmark = pytest.mark.postgresql


@pytest.fixture
def server():
    """Return a server of the test's own that holds one committed row."""
    server = Postgresql()
    server.start()
    server.sql("CREATE TABLE kept (n int); INSERT INTO kept VALUES (1)")
    yield server
    server.close()


def test_each_test_has_an_empty_database(postgresql, postgresql_server):
    """A second one knows nothing of the first."""
    first, second = postgresql.rpartition("/")[2], postgresql_server.new_database().rpartition("/")[2]
    postgresql_server.sql("CREATE TABLE one (n int)", first)
    assert postgresql_server.sql("SELECT count(*) FROM pg_tables WHERE tablename = 'one'", second) == "0"


@pytest.mark.slow
def test_a_killed_server_starts_again_with_what_was_committed(server):
    """Without a chance to save anything."""
    server.kill()
    assert not server.is_up()
    server.start()
    assert server.sql("SELECT n FROM kept") == "1"
    server.restart()
    assert server.sql("SELECT n FROM kept") == "1"


@pytest.mark.slow
def test_a_standby_follows_and_takes_over(server):
    """By its name it can be synchronous; promoted, it takes writes."""
    copy = server.standby("second")
    try:
        copy.start()
        server.sql("ALTER SYSTEM SET synchronous_standby_names = 'second'")
        server.sql("SELECT pg_reload_conf()")
        server.sql("INSERT INTO kept VALUES (2)")
        server.kill()
        assert copy.sql("SELECT pg_is_in_recovery(), count(*) FROM kept") == "t|2"
        copy.promote()
        copy.sql("INSERT INTO kept VALUES (3)")
        assert copy.sql("SELECT count(*) FROM kept") == "3"
    finally:
        copy.close()
