"""Facts about content that comes over MQTT: in order, gone on with after a restart, checked, and no more than was asked for."""

import os

import pytest

from edgemeter.agent.contract import orders
from edgemeter.agent.contract.orders import Chunk, Content
from edgemeter.agent.jobs import fetching, jobs_handler
from edgemeter.agent.jobs.content import CONTENT_FOLDER, DeviceContent
from tests.agent.jobs.driver import suite

BIG = ("m.replay.json", bytes(600_000))


@pytest.fixture
def part(device):
    """Return where the big model stands while it comes."""
    content = device.hold(BIG[1], BIG[0])
    return device.home / CONTENT_FOLDER / f"{content.sha256}.part"


def ask(device):
    """Order what needs the big model."""
    device.order(device.measure(suite(), (BIG,)))


def offsets_of_wants(device, part):
    """Return where the pieces of the big model begin that were asked for."""
    return [want.offset for want in device.wants if want.sha256 == part.stem]


def test_few_pieces_are_outstanding_and_a_lost_one_is_asked_for_again(device, part):
    """However large the content is; all that is missing, after a pause that doubles while nothing comes."""
    pieces = [number * fetching.PIECE_BYTES for number in range(5)]
    device.change = lambda payload: None if orders.split_chunk(payload)[0].size_bytes == len(BIG[1]) else payload
    ask(device)
    device.go_on()
    assert offsets_of_wants(device, part) == pieces[: fetching.OUTSTANDING]
    for seconds, times in ((fetching.TIMEOUT_S, 1), (0.1, 2), (2 * fetching.TIMEOUT_S, 2), (0.1, 3)):
        device.now_s += seconds
        device.go_on(2)
        assert offsets_of_wants(device, part) == pieces[: fetching.OUTSTANDING] * times
    device.change = lambda payload: payload
    device.handler.connected()
    assert device.final().state == "done"
    assert offsets_of_wants(device, part)[-5:] == pieces


def test_the_server_hears_how_far_it_is_and_when_all_is_here(device):
    """Name and size of what is fetched; the last word on it is not that something is missing."""
    device.order(device.measure())
    assert device.final().state == "done"
    assert (device.doings[0], device.doings[-1]) == ("fetching suite.toml, 0.0 of 0.0 MB", jobs_handler.GATHERED)
    device.change = lambda _payload: None
    device.doings.clear()
    device.order(device.measure(suite(), (("late.replay.json", bytes(700_000)),)), job="job-2")
    device.go_on()
    device.now_s += jobs_handler.FETCHING_REPORT_S
    device.go_on(1)
    assert device.doings == ["fetching late.replay.json, 0.0 of 0.7 MB"] * 2


def test_what_came_survives_a_restart(device, part):
    """The next start asks for the rest."""
    payloads = []

    def drop_some(payload):
        payloads.append(payload)
        return payload if len(payloads) <= 3 else None

    device.change = drop_some
    ask(device)
    device.go_on()
    device.stop()
    size = part.stat().st_size
    assert size == 2 * fetching.PIECE_BYTES
    device.wants.clear()
    device.change = lambda payload: payload
    device.start()
    assert device.final().state == "done"
    assert min(offsets_of_wants(device, part)) == size


def test_a_piece_that_was_not_requested_is_rejected(device):
    """Of another content, at another place, beyond the end, of nothing: not a byte of it is kept."""
    changes = iter(
        (
            lambda head, data: (Chunk(sha256="b" * 64, offset=head.offset, size_bytes=head.size_bytes), data),
            lambda head, data: (Chunk(sha256=head.sha256, offset=head.offset + 1, size_bytes=head.size_bytes), data),
            lambda head, data: (Chunk(sha256=head.sha256, offset=2**52, size_bytes=head.size_bytes), data),
            lambda head, data: (head, data + b"x" * (head.size_bytes or 0)),
            lambda head, _piece: (head, b""),
        )
    )
    device.change = lambda payload: orders.join_chunk(*next(changes)(*orders.split_chunk(payload)))
    ask(device)
    for count in range(1, 6):
        device.turn()
        assert [path.stat().st_size for path in (device.home / CONTENT_FOLDER).iterdir()] == [0]
        assert len(device.wants) == count
        device.handler.connected()


def test_content_of_another_size_than_ordered_is_refused(device):
    """The order says how large it is."""
    device.change = lambda payload: orders.join_chunk(Chunk(sha256=orders.split_chunk(payload)[0].sha256, offset=0, size_bytes=5), b"12345")
    ask(device)
    assert "has 5 bytes instead of" in device.final().reason


def test_a_wrong_hash_fails_the_job_at_the_second_time(device):
    """Nothing wrong is ever put in place; once may be the line."""
    device.change = lambda payload: payload[:-1] + bytes([payload[-1] ^ 1])
    ask(device)
    final = device.final()
    assert final.state == "failed"
    assert "has not the hash" in final.reason
    assert [path.name for path in (device.home / CONTENT_FOLDER).iterdir() if len(path.name) == 64] == []


def test_what_is_used_least_goes_first_and_never_what_is_in_use(tmp_path):
    """Room for new content is made by removing what was used longest ago, except what a job still needs."""
    store = DeviceContent(tmp_path, 350)
    folder = tmp_path / CONTENT_FOLDER
    folder.mkdir()
    contents = [Content(sha256=f"{number:064x}", size_bytes=100, name="m") for number in range(4)]
    for number, content in enumerate(contents[:3]):
        (folder / content.sha256).write_bytes(b"x" * 100)
        os.utime(folder / content.sha256, (number, number))
    store.used(contents[1])
    store.make_room(contents[3], {contents[0].sha256})
    assert sorted(path.name for path in folder.iterdir()) == [contents[0].sha256, contents[1].sha256, f"{contents[3].sha256}.part"]
