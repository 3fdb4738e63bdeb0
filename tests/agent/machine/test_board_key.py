"""Facts about `edgemeter.agent.machine.board_key`."""

from edgemeter.agent.machine.board_key import board_key
from edgemeter.agent.machine.machine import recorded
from tests.fixtures.machine_trees import write


def test_the_key_is_the_boards_and_not_its_serial_number(tmp_path):
    """The device tree's goes before the installation's; the number itself is not shown."""
    write(tmp_path, {"proc/device-tree/serial-number": b"10000000abcdef01\0", "etc/machine-id": "0123\n"})
    key = board_key(recorded(tmp_path))
    assert len(key) == 16
    assert "abcdef01" not in key
    (tmp_path / "etc/machine-id").write_text("4567\n")
    assert board_key(recorded(tmp_path)) == key
    (tmp_path / "proc/device-tree/serial-number").write_bytes(b"10000000abcdef02\0")
    assert board_key(recorded(tmp_path)) != key


def test_without_a_board_number_the_installation_is_the_key(tmp_path):
    """And without either there is none."""
    assert board_key(recorded(tmp_path)) is None
    write(tmp_path, {"etc/machine-id": "0123\n"})
    assert board_key(recorded(tmp_path)) is not None
