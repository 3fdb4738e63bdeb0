"""Facts about what a terminal shows while work takes long."""

import os
import pty
import select
import sys

import pytest

from edgemeter.agent.base.cli.notes import passing_note
from edgemeter.agent.base.errors import ConfigError


def test_a_passing_note_is_wiped_from_a_terminal_whatever_ends_its_block(monkeypatch):
    """An error that follows has to stand on a line of its own."""
    terminal, other_end = pty.openpty()
    with os.fdopen(other_end, "w") as stream:
        monkeypatch.setattr(sys, "stderr", stream)
        with pytest.raises(ConfigError), passing_note("checking ..."):
            raise ConfigError("wrong")
        written = b""
        while not written.endswith(b"\x1b[K") and select.select([terminal], [], [], 10)[0]:
            written += os.read(terminal, 100)
    assert written == b"checking ...\r\x1b[K"
    os.close(terminal)


def test_a_passing_note_is_for_terminals(capsys):
    """A pipe gets none."""
    with passing_note("checking ..."):
        pass
    assert capsys.readouterr() == ("", "")
