"""The board's serial number, from recorded trees."""

import os

from edgemeter.agent.identity import identity
from edgemeter.agent.identity.identity import BoardSerial
from edgemeter.agent.machine.machine import recorded
from tests.fixtures.rows import in_folders, table_row


def tree(folder, files):
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content if isinstance(content, bytes) else content.encode())
    folder.mkdir(exist_ok=True)
    return recorded(folder)


PI = {"proc/device-tree/serial-number": b"10000000abcdef01\0", "etc/machine-id": "0123\n"}
EMMC = {
    "sys/block/mmcblk0/device/type": "MMC\n",
    "sys/block/mmcblk0/device/cid": "150100424a544434520787a6\n",
}
SD = {
    "sys/block/mmcblk1/device/type": "SD\n",
    "sys/block/mmcblk1/device/cid": "035344534c31364780\n",
}


def test_the_surest_number_is_taken(tmp_path):
    """A soldered number is preferred to an installed one; a card's number never counts.

    Numbers that are placeholders do not count either.
    """
    for folder, files, expected in in_folders(
        tmp_path,
        [
            (PI, ("10000000abcdef01", "device-tree")),
            ({**SD, **EMMC, "etc/machine-id": "0123"}, ("150100424a544434520787a6", "emmc")),
            ({**SD, "etc/machine-id": "0123"}, ("0123", "installation")),
            (
                {"proc/device-tree/serial-number": b"0000000000000000\0", **EMMC},
                ("150100424a544434520787a6", "emmc"),
            ),
            (
                {"sys/class/dmi/id/product_uuid": "03000200-0400-0500-0006-000700080009\n"},
                ("03000200-0400-0500-0006-000700080009", "dmi"),
            ),
            (
                {
                    "sys/class/dmi/id/board_serial": "To be filled by O.E.M.\n",
                    "sys/class/dmi/id/product_serial": "Ab 12/3",
                },
                ("ab-12-3", "dmi"),
            ),
            (
                {
                    "sys/class/dmi/id/product_uuid": "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF",
                    "etc/machine-id": "77",
                },
                ("77", "installation"),
            ),
            ({"proc/device-tree/serial-number": b"\xff\xfe\0\0", "etc/machine-id": ""}, None),
            ({}, None),
        ],
    ):
        with table_row(files):
            board_serial = identity.read_board_serial(tree(folder / "tree", files))
            if expected is None:
                assert (board_serial.source, board_serial.path) == ("made", None)
            else:
                assert (board_serial.serial, board_serial.source) == expected


def test_another_board_is_recognised_by_the_source_of_the_number(tmp_path):
    """The same number from the same source is the same board.

    Another number is another board, and so is a board without such a source.
    """
    board_serial = identity.read_board_serial(tree(tmp_path / "a", PI))
    assert not identity.differs_from_board(board_serial, tree(tmp_path / "a", {}))
    assert identity.differs_from_board(
        board_serial,
        tree(tmp_path / "b", {**PI, "proc/device-tree/serial-number": b"10000000abcdef02\0"}),
    )
    assert identity.differs_from_board(board_serial, tree(tmp_path / "c", EMMC))


def test_an_unreadable_or_a_drawn_number_proves_nothing(tmp_path):
    """If root joined by a number that the agent's user may not read, the card is not copied."""
    board_serial = BoardSerial("03000200", "dmi", "sys/class/dmi/id/product_uuid")
    unreadable = tree(tmp_path / "a", {"sys/class/dmi/id/product_uuid": "", "etc/machine-id": "1"})
    assert not identity.differs_from_board(board_serial, unreadable)
    if os.geteuid() != 0:
        (tmp_path / "a/sys/class/dmi/id/product_uuid").chmod(0)
        assert not identity.differs_from_board(board_serial, unreadable)
    assert not identity.differs_from_board(
        BoardSerial("made-1", "made", None), tree(tmp_path / "a", PI)
    )
