"""Content on its way to a device is continued after a cut and refused with a reason.

It is continued after a restart too, and never fetched twice at once.
"""

import os

import pytest

from edgemeter.agent.base import config
from edgemeter.agent.contract.orders import Content
from edgemeter.agent.jobs import jobs_handler
from edgemeter.agent.jobs.content import CONTENT_FOLDER, FIRST_PAUSE_S, DeviceContent
from tests.agent.jobs.driver import suite

BIG = ("m.replay.json", bytes(600_000))


@pytest.fixture
def part(device):
    content = device.hold(BIG[1], BIG[0])
    return device.home / CONTENT_FOLDER / f"{content.sha256}.part"


def ask(device):
    device.order(device.measure(suite(), (BIG,)))


def offsets(device, part):
    return [offset for sha256, offset in device.downloads if sha256 == part.stem]


def test_a_cut_download_is_continued_after_a_pause_that_doubles(device, part):
    """The bytes that arrived are kept, and a server that is down is asked less and less often."""
    device.change = lambda data: (
        data[:100_000] if len(data) > 500_000 else b"" if len(data) == 500_000 else data
    )
    ask(device)
    device.go_on()
    assert offsets(device, part) == [0]
    for seconds, count in (
        (FIRST_PAUSE_S - 0.1, 1),
        (0.1, 2),
        (2 * FIRST_PAUSE_S - 0.1, 2),
        (0.1, 3),
    ):
        device.now_s += seconds
        device.go_on(3)
        assert offsets(device, part) == [0, 100_000, 100_000][:count]
    assert part.stat().st_size == 100_000
    device.change = lambda data: data
    assert device.final().state == "done"
    assert offsets(device, part)[-1] == 100_000


def test_the_server_hears_how_far_it_is_what_hinders_it_and_when_all_is_here(device):
    """The report names the content and its size, and the last one says that nothing is missing."""
    device.order(device.measure())
    assert device.final().state == "done"
    assert (device.doings[0], device.doings[-1]) == (
        "fetching suite.toml, 0.0 of 0.0 MB",
        jobs_handler.GATHERED,
    )
    device.change = lambda _data: b""
    device.doings.clear()
    device.order(device.measure(suite(), (("late.replay.json", bytes(700_000)),)), job="job-2")
    device.go_on()
    device.now_s += jobs_handler.FETCHING_REPORT_S
    device.go_on(1)
    text = "fetching late.replay.json, 0.0 of 0.7 MB"
    assert device.doings == [
        text,
        f"{text} (cannot fetch 'late.replay.json': the connection was cut)",
    ]


def test_what_came_survives_a_restart(device, part):
    """The next start asks for the remaining bytes only."""
    device.change = lambda data: data[:200_000]
    ask(device)
    device.go_on()
    device.stop()
    assert part.stat().st_size == 200_000
    device.downloads.clear()
    device.change = lambda data: data
    device.start()
    assert device.final().state == "done"
    assert offsets(device, part) == [200_000]


def test_a_wrong_hash_rejects_the_job_at_the_second_time(device, part):
    """Wrong content is never stored or measured.

    The first mismatch may come from a part that a power cut damaged.
    """
    device.change = lambda data: data[:-1] + bytes([data[-1] ^ 1])
    ask(device)
    final = device.final()
    assert final.state == "rejected"
    assert "the server's file does not have the hash" in final.reason
    assert len(offsets(device, part)) in {0, 2}
    assert [
        path.name for path in (device.home / CONTENT_FOLDER).iterdir() if len(path.name) == 64
    ] == []


def test_a_device_that_knows_no_address_refuses(device):
    """The reason names the key that holds the address."""
    device.stop()
    device.settings = config.Config()
    device.start()
    ask(device)
    final = device.final()
    assert final.state == "rejected"
    assert "content_url" in final.reason


def test_a_fetch_that_is_no_longer_needed_is_stopped(device):
    """A cancelled order leaves no process behind."""
    ended = []

    class Endless:
        """A download that hangs."""

        def poll(self):
            """It runs on."""

        def kill(self):
            ended.append("killed")

        def communicate(self):
            ended.append("waited for")
            return "", None

    device.stop()
    device.means = lambda: {
        "clock_s": lambda: device.now_s,
        "execute": None,
        "begin_fetch": lambda _task: Endless(),
    }
    device.start()
    ask(device)
    device.go_on()
    assert ended == []
    device.handler.close()
    assert ended == ["killed", "waited for"]


def test_what_is_used_least_goes_first_and_never_what_is_in_use(tmp_path):
    """The least recently used content makes room for new, except what a job still needs."""
    store = DeviceContent(tmp_path, 350)
    folder = tmp_path / CONTENT_FOLDER
    folder.mkdir()
    contents = [Content(sha256=f"{number:064x}", size_bytes=100, name="m") for number in range(4)]
    for number, content in enumerate(contents[:3]):
        (folder / content.sha256).write_bytes(b"x" * 100)
        os.utime(folder / content.sha256, (number, number))
    store.used(contents[1])
    store.make_room(contents[3], {contents[0].sha256})
    assert sorted(path.name for path in folder.iterdir()) == [
        contents[0].sha256,
        contents[1].sha256,
        f"{contents[3].sha256}.part",
    ]
