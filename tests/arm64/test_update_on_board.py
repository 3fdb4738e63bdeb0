"""Tests of updates of an emulated board.

The power is cut at random moments, a release does not work, and a certificate is revoked.
"""

import json
import os
import random
import time
from pathlib import Path

import pytest

from tools.arm64.board import Board
from tools.arm64.joining import awaited, prepared
from tools.fleet.fleet_server import FleetServer

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.arm64,
    pytest.mark.emulated_board,
    pytest.mark.mosquitto,
]

DEVICE = "pi4-03"
CUTS = int(os.environ.get("EDGEMETER_POWER_CUTS", "10"))
# Under emulation an update is over by then, from power-on to the new release.
UPDATE_S = 240.0


@pytest.fixture(scope="module")
def board(board_files, server, tmp_path_factory):
    joined = prepared(board_files, server, DEVICE, tmp_path_factory.mktemp("board"))
    joined.power_on()
    assert awaited(joined, lambda: last_report(server).get("release")), joined.said()[-3000:]
    yield joined
    joined.cut()


def device_status(server: FleetServer) -> dict:
    return json.loads(server.command("show", DEVICE, "--format", "json"))


def last_report(server: FleetServer) -> dict:
    """Return what the device last said of itself, nothing before it has joined."""
    try:
        return device_status(server)["said"] or {}
    except AssertionError:
        return {}


def released(server: FleetServer, release: Path) -> str:
    (row,) = json.loads(server.command("release", "add", release, "--format", "json"))
    return str(row["version"])


def works(server: FleetServer) -> bool:
    if device_status(server)["presence"] != "online":
        return False
    server.command("logs", "--on", DEVICE, "--lines", "5")
    return True


def test_power_cut_at_any_moment_of_an_update_leaves_an_agent_that_works(
    board: Board, server: FleetServer
):
    """Power cuts during an update leave an agent that works, of one of the two releases.

    Left alone, the board goes to the new one.
    """
    first = last_report(server)["release"]
    release = server.folder.parent / "second.tar"
    server.command(
        "release",
        "build",
        "--board",
        "pi4",
        "--python",
        "3.13",
        "--extras",
        "litert,serial",
        "--output",
        release,
    )
    version = released(server, release)
    assert version != first
    server.command("update", version, "--on", f"device={DEVICE}", "--detach")
    draw = random.Random(3)  # noqa: S311 - the same moments every time
    for _ in range(CUTS):
        time.sleep(draw.uniform(5.0, UPDATE_S))
        board.cut()
        board.power_on()
    # An installation goes on after each cut; a release that was cut off in two trials is rolled
    # back, and carried out if ordered once more. Where the update had ended before the last cut,
    # the fleet sees the device online for a moment, and then lost until it has started.
    assert awaited(board, lambda: device_status(server)["job"] is None and works(server)), (
        board.said()[-3000:]
    )
    assert last_report(server)["release"] in {first, version}
    server.command("update", version, "--on", f"device={DEVICE}", "--detach")
    assert awaited(board, lambda: last_report(server).get("release") == version), board.said()[
        -3000:
    ]
    assert works(server)
