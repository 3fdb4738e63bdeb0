import os
from pathlib import Path

from edgemeter.agent.machine.machine import Machine, recorded
from tests.fixtures.machine_trees import write


def test_text_comes_without_its_nul_and_new_line(tmp_path):
    """Device-tree strings end with a NUL, and sysfs attributes with a newline."""
    machine = recorded(write(tmp_path, {"a": b"Raspberry Pi\0", "b": "12\n"}))
    assert machine.text("a") == "Raspberry Pi"
    assert machine.number("b") == 12


def test_what_cannot_be_read_is_none(tmp_path):
    """A path that cannot be read as asked gives None and never raises.

    Such are a missing or empty file, a folder, a dangling link, a pipe without a writer and what is
    not a number.
    """
    machine = recorded(write(tmp_path, {"empty": "", "folder/file": "1", "words": "many words"}))
    (tmp_path / "dangling").symlink_to("nowhere")
    os.mkfifo(tmp_path / "pipe")
    assert [
        machine.text(name) for name in ("absent", "empty", "folder", "dangling", "pipe", "a\0b")
    ] == [None] * 6
    assert machine.number("words") is None


def test_a_driver_that_would_block_gives_none():
    """A read that would block (EAGAIN), as of a part that is switched off, gives None."""
    reader, writer = os.pipe()
    try:
        assert Machine(Path("/proc/self/fd")).text(str(reader)) is None
    finally:
        os.close(reader)
        os.close(writer)
