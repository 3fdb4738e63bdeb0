"""Facts about checkpoints beside the commits."""

import pytest

from edgemeter.agent.ledger.sqlite_ledger import SqliteLedger
from edgemeter.collector.receive.checkpoints import RECORDS, Checkpoints
from tests.fixtures.ledgers import arrival
from tests.fixtures.mqtt_peer import wait_until
from tests.fixtures.record_factory import make_record


@pytest.mark.services
def test_what_was_committed_comes_into_the_file_before_a_commit_has_to_bring_it(tmp_path):
    """A few pages, of the thousand that SQLite waits for; a file that is closed has no log."""
    path = tmp_path / "ledger.sqlite"
    with SqliteLedger(path) as ledger:
        size_bytes = path.stat().st_size
        checkpoints = Checkpoints(path)
        ledger.commit([arrival(make_record(session=1, seq=seq)) for seq in range(1, 101)])
        assert path.stat().st_size == size_bytes
        checkpoints.note(RECORDS)
        assert wait_until(lambda: path.stat().st_size > size_bytes)
        checkpoints.stop()
        checkpoints.stop()
    assert [file.name for file in tmp_path.iterdir()] == [path.name]
