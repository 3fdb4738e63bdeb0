"""Facts about fetching one content: continued, and never put in place with a wrong hash."""

import fcntl
import hashlib

import msgspec
import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.contract.orders import Content
from edgemeter.agent.jobs import fetch
from edgemeter.agent.jobs.content import HERE, REFUSED, FetchTask, begin_fetch
from tests.fixtures.file_server import ListeningFileServer

DATA = bytes(range(256)) * 5000
SHA256 = hashlib.sha256(DATA).hexdigest()
PATH = f"/content/{SHA256}"


@pytest.fixture
def files():
    """Return a server which has the data at its path."""
    server = ListeningFileServer()
    server.put(PATH, DATA)
    yield server
    server.close()


@pytest.fixture
def task(tmp_path):
    """Return the task of fetching the data, nothing of it here yet, from nowhere."""
    content = Content(sha256=SHA256, size_bytes=len(DATA), name="m.tflite")
    return FetchTask(
        content=content,
        part=str(tmp_path / "x.part"),
        final=str(tmp_path / SHA256),
        url=f"http://127.0.0.1:1{PATH}",
    )


@pytest.mark.services
def test_it_comes_over_http_from_where_it_was_and_from_servers_without_ranges(
    task, tmp_path, files
):
    """A broken download keeps what arrived; a wrong size is not read.

    Content with another hash is not kept.
    """
    part = tmp_path / "x.part"
    served = msgspec.structs.replace(task, url=files.address + PATH)
    files.put(PATH, DATA, cuts=[5000])
    with pytest.raises(TransientError, match="cut after 5000"):
        fetch.fetch(served)
    assert part.read_bytes() == DATA[:5000]
    files.put(PATH, DATA + b"more")
    with pytest.raises(UnavailableError, match="another file"):
        fetch.fetch(served)
    files.put(PATH, DATA)
    fetch.fetch(served)
    assert (tmp_path / SHA256).read_bytes() == DATA
    assert not part.exists()
    assert [headers.get("Range") for headers in files.asked(PATH)] == [
        None,
        "bytes=5000-",
        "bytes=5000-",
    ]
    files.put(PATH, DATA, has_ranges=False)
    part.write_bytes(b"?" * 1000)
    fetch.fetch(served)
    files.put(PATH, b"?" * len(DATA), has_ranges=False)
    with pytest.raises(UnavailableError, match="does not have the hash"):
        fetch.fetch(served)
    assert part.stat().st_size == 0
    with pytest.raises(UnavailableError, match="404"):
        fetch.fetch(msgspec.structs.replace(served, url=served.url.replace("content", "elsewhere")))
    with pytest.raises(TransientError):
        fetch.fetch(task)


@pytest.mark.services
def test_its_process_gives_status_and_reason(task, tmp_path, files):
    """The process reports content as whole, refused or to be tried again."""
    served = msgspec.structs.replace(task, url=files.address + PATH)
    for fetch_task, status, words in (
        (served, HERE, ""),
        (msgspec.structs.replace(served, url="file:///etc"), REFUSED, "file:///etc"),
        (task, fetch.FAILED, "127.0.0.1:1"),
    ):
        child = begin_fetch(fetch_task)
        reason_text, _ = child.communicate(timeout=100)
        assert (child.returncode, words in reason_text) == (status, True)
    assert (tmp_path / SHA256).read_bytes() == DATA


@pytest.mark.parametrize("data", [DATA, DATA[:-1], DATA + b"x", b"?" * len(DATA)])
def test_only_the_right_content_has_its_name(task, tmp_path, data):
    """A wrong or too long part is fetched from its beginning, a short one from its end."""
    offsets = []

    def download(_address, part, *_, **__):
        arrived_bytes = part.stat().st_size
        offsets.append(arrived_bytes)
        with part.open("ab") as file:
            file.write(DATA[arrived_bytes:])

    (tmp_path / "x.part").write_bytes(data)
    fetch.fetch(task, download)
    assert (tmp_path / SHA256).read_bytes() == DATA
    assert not (tmp_path / "x.part").exists()
    assert offsets == ([] if data == DATA else [len(data) if DATA.startswith(data) else 0])


def test_a_content_is_on_the_disk_before_it_has_its_name(task, tmp_path, monkeypatch):
    """A power cut leaves no incomplete file that has the right name and size."""
    (tmp_path / "x.part").write_bytes(DATA)
    synced = []
    monkeypatch.setattr(
        fetch.durable_file,
        "sync",
        lambda path: synced.append((path.name, (tmp_path / SHA256).exists())),
    )
    fetch.fetch(task)
    assert synced == [("x.part", False), (tmp_path.name, True)]


def test_two_processes_do_not_write_one_part(task, tmp_path):
    """A killed agent leaves a child that may still complete the download."""
    with (tmp_path / "x.part").open("ab") as part:
        fcntl.flock(part, fcntl.LOCK_EX)
        with pytest.raises(TransientError, match="another process fetches it"):
            fetch.fetch(task)
    (tmp_path / "x.part").write_bytes(DATA)
    fetch.fetch(task)
    assert (tmp_path / SHA256).exists()


def test_a_folder_that_cannot_be_written_is_tried_again(task, tmp_path):
    """The folder may be mounted later, and the reason names the content."""
    (tmp_path / SHA256).mkdir()
    (tmp_path / SHA256 / "x").touch()
    (tmp_path / "x.part").write_bytes(DATA)
    status, reason_text = fetch.outcome(task)
    assert status not in {HERE, REFUSED}
    assert "m.tflite" in reason_text
