"""Facts about the file of results."""

import pytest

from edgemeter.agent.cli.run_session import write_document
from tests.fixtures.small_disk import fill, small_disk


@pytest.mark.needs("mount")
def test_results_that_find_no_room_leave_the_file_as_it_was(tmp_path):
    """No part of a document is read as the whole by the next program; the error says what to do."""
    errors = []
    with small_disk(tmp_path / "disk", 1) as disk:
        (disk / "runs.json").write_text("earlier")
        fill(disk / "filler")
        write_document(disk / "runs.json", bytes(100_000), errors)
        assert (disk / "runs.json").read_text() == "earlier"
        assert {path.name for path in disk.iterdir()} == {"runs.json", "filler"}
    (error,) = errors
    assert "--output" in str(error)


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_results_replace_a_file_and_follow_a_link(tmp_path, mode):
    """With its permissions; /dev/stdout is a link, which stays."""
    path, link = tmp_path / "runs.json", tmp_path / "link.json"
    path.touch(mode)
    link.symlink_to(path)
    for written_path, document in ((path, b"{}"), (link, b"[]")):
        write_document(written_path, document, errors := [])
        assert (errors, path.read_bytes(), path.stat().st_mode & 0o777) == ([], document + b"\n", mode)
    assert link.is_symlink()
