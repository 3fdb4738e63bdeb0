"""A board from its card to its place in the fleet: what tests of emulated boards do alike."""

import json
import time
from collections.abc import Callable
from pathlib import Path

from tools.arm64 import emulation
from tools.arm64.board import Board
from tools.fleet.fleet_server import FleetServer

# A board takes three minutes to join on an idle machine; on a busy one all takes longer.
PATIENCE_S = 3000.0


def prepared(
    board_files: Path,
    server: FleetServer,
    device: str,
    folder: Path,
    change: Callable[[Path], None] = lambda _: None,
) -> Board:
    """Return a board with a card that `fleet card` prepared for `device`.

    Before, `change` has made another system's of its image.
    """
    image = folder / f"{device}.img"
    emulation.run("cp", "--sparse=always", board_files / "blank.img", image)
    change(image)
    server.command(
        "card",
        image,
        "--release",
        server.folder.parent / "pi4.tar",
        "--join",
        server.join_file(device),
    )
    return Board(image, board_files / "initrd", folder / f"{device}.console")


def presence(server: FleetServer, device: str) -> str | None:
    try:
        return str(json.loads(server.command("show", device, "--format", "json"))["presence"])
    except AssertionError:
        return None


def awaited(board: Board, is_so: Callable[[], object]) -> bool:
    """Wait until `is_so`, as long as the board is on and patience lasts.

    Returns: whether it came so.
    """
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline and board.is_on():
        if is_so():
            return True
        time.sleep(2)
    return False
