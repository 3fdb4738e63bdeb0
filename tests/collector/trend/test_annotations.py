import pytest
from click.testing import CliRunner

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.trend import annotate
from tests.fixtures.rows import table_row


def test_a_file_that_is_no_store_is_not_annotated(tmp_path):
    """The error is one line, and nothing is made beside the file."""
    for content in (b"some notes", b"", b"SQLite format 3\0 and no more"):
        with table_row(content):
            store = tmp_path / "notes.txt"
            store.write_bytes(content)
            with pytest.raises(ConfigError, match=r"notes\.txt"):
                CliRunner().invoke(
                    annotate, ["moved", "--ledger", str(store)], catch_exceptions=False
                )
            assert list(tmp_path.iterdir()) == [store]
