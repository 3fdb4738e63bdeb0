"""Facts about the store of published figures."""

from msgspec.structs import replace

from edgemeter.collector.published import table_file
from edgemeter.collector.published.shipped_rows import shipped_rows
from edgemeter.collector.reference.imported import ReferenceStore
from tests.fixtures.published_factory import make_published


def test_a_row_that_ships_and_is_kept_is_there_once(tmp_path):
    """The kept one takes its place, as a release may ship what somebody has added before."""
    shipped = shipped_rows()[3]
    added_row = replace(shipped, licence="as it was added")
    rows = [added_row, make_published()]
    (tmp_path / "published.toml").write_text("\n".join(map(table_file.to_toml, rows)), encoding="utf-8")
    published = ReferenceStore(tmp_path).published()
    assert published[3] == added_row
    assert (len(published), len({row.id for row in published})) == (len(shipped_rows()) + 1, len(published))
