"""Writing an image: what is on the card at each end of it, and what is read back."""

import contextlib
import gzip
import hashlib
import lzma
import os
import subprocess
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.write import target_disk as disks
from edgemeter.provisioning.write import writing
from edgemeter.provisioning.write.target_disk import KernelTrees
from edgemeter.provisioning.write.writing import CHUNK_BYTES
from tests.fixtures.rows import table_row
from tests.provisioning.write.world import USB, Bench

# Two and a half chunks: a first, a middle and a last that is not full.
CONTENT = hashlib.shake_256(b"image").digest(CHUNK_BYTES * 2 + CHUNK_BYTES // 2 + 512)


def quick_gzip(content):
    """Pack without trying hard."""
    return gzip.compress(content, 1)


def quick_xz(content):
    """Pack without trying hard."""
    return lzma.compress(content, preset=0)


def quiet(*_what):
    """Hear nothing."""


def make_image(folder, content=CONTENT, name="os.img"):
    """Write an image and read it as the command does."""
    path = folder / name
    path.write_bytes(content)
    return writing.read_image(path, quiet)


def make_card(folder, size_bytes=24 << 20):
    """Plug a card in that is full of old data."""
    bench = Bench(folder)
    path = bench.disk(size_bytes=size_bytes)
    path.write_bytes(b"\xaa" * size_bytes)
    return disks.read_disk(path, bench.world)


@pytest.mark.slow
@pytest.mark.parametrize("pack", [bytes, quick_gzip, quick_xz], ids=["raw", "gz", "xz"])
def test_the_card_holds_the_image_and_it_is_known_by_its_content(tmp_path, pack):
    """Raw, gzip and xz, whatever the file is called."""
    content = CONTENT[: CHUNK_BYTES + 4096]
    image, card = make_image(tmp_path, pack(content)), make_card(tmp_path)
    written_image = writing.write_image(image, card, quiet)
    assert card.path.read_bytes()[: len(content)] == content
    assert (written_image.size_bytes, written_image.sha256) == (len(content), hashlib.sha256(content).hexdigest())


def test_an_old_spare_partition_table_is_gone_and_the_rest_stays(tmp_path):
    """A GPT's copy at the end would lead back to what was there."""
    card = make_card(tmp_path)
    writing.write_image(make_image(tmp_path), card, quiet)
    after = card.path.read_bytes()[len(CONTENT) :]
    assert after[-writing.TAIL_BYTES :] == bytes(writing.TAIL_BYTES)
    assert set(after[: -writing.TAIL_BYTES]) == {0xAA}


def test_an_image_that_fills_the_card_keeps_its_own_end(tmp_path):
    """Its spare partition table is its own."""
    content = hashlib.shake_256(b"full").digest(CHUNK_BYTES + (1 << 20))
    card = make_card(tmp_path, len(content))
    writing.write_image(make_image(tmp_path, content), card, quiet)
    assert card.path.read_bytes() == content


@pytest.mark.parametrize("calls", [0, 1, 2])
def test_an_interrupted_write_leaves_no_card_that_boots(tmp_path, calls):
    """Whenever it ends: neither the old first block nor the new one is there, and a second write makes it whole."""
    image, card = make_image(tmp_path), make_card(tmp_path)
    first_blocks = []

    def interrupt(phase, _done, _total):
        if phase == "writing":
            first_blocks.append(card.path.read_bytes()[:CHUNK_BYTES])
        if len(first_blocks) > calls and phase == ("writing" if calls < 2 else "verifying"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writing.write_image(image, card, interrupt)
    assert card.path.read_bytes()[:CHUNK_BYTES] == bytes(CHUNK_BYTES)
    writing.write_image(image, card, quiet)
    assert card.path.read_bytes()[: len(CONTENT)] == CONTENT


def test_the_first_block_is_written_after_everything_else(tmp_path):
    """All the time before it holds zeros."""
    image, card = make_image(tmp_path), make_card(tmp_path)
    reports = []
    writing.write_image(
        image, card, lambda phase, written, total: reports.append((phase, written == total, card.path.read_bytes()[:CHUNK_BYTES]))
    )
    during = [first for phase, is_end, first in reports if phase == "writing" and not is_end]
    assert during
    assert all(first == bytes(CHUNK_BYTES) for first in during)


@pytest.mark.parametrize("at", [0, CHUNK_BYTES, len(CONTENT) - 1])
def test_a_card_that_forgets_a_byte_is_found_and_does_not_boot(tmp_path, at):
    """One byte, anywhere: cards acknowledge what they never keep."""
    image, card = make_image(tmp_path), make_card(tmp_path)

    def forget_byte(phase, written, total):
        if phase == "writing" and written == total:
            with card.path.open("r+b") as file:
                file.seek(at)
                file.write(bytes([CONTENT[at] ^ 1]))

    with pytest.raises(UnavailableError, match=f"from byte {at // CHUNK_BYTES * CHUNK_BYTES} on"):
        writing.write_image(image, card, forget_byte)
    assert card.path.read_bytes()[:CHUNK_BYTES] == bytes(CHUNK_BYTES)


def test_an_image_that_changes_while_it_is_written_is_found(tmp_path):
    """The card holds no mixture that boots."""
    image, card = make_image(tmp_path), make_card(tmp_path)
    image.path.write_bytes(CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]))
    with pytest.raises(UnavailableError, match="changed"):
        writing.write_image(image, card, quiet)
    assert card.path.read_bytes()[:CHUNK_BYTES] == bytes(CHUNK_BYTES)


@pytest.mark.parametrize("pack", [quick_gzip, quick_xz], ids=["gz", "xz"])
@pytest.mark.parametrize(
    "spoil", [lambda data: data[:-20], lambda data: data[:100] + bytes([data[100] ^ 1]) + data[101:]], ids=["cut", "garbled"]
)
def test_a_damaged_image_is_refused_before_anything_is_erased(tmp_path, pack, spoil):
    """It is unpacked whole once before."""
    with pytest.raises(ConfigError, match="damaged"):
        make_image(tmp_path, spoil(pack(CONTENT[: CHUNK_BYTES // 8])))


def test_what_is_no_image_is_refused(tmp_path):
    """An empty file and a text by their size, a zip with the advice to unpack it."""
    for content, message in ((b"", "0 bytes"), (b"x" * 100, "100 bytes"), (b"PK\x03\x04" + b"x" * 999, "unpack it")):
        with table_row(message), pytest.raises(ConfigError, match=message):
            make_image(tmp_path, content)


def test_an_absent_image_is_one_line(tmp_path):
    """A path that leads to nothing is refused by name, without a traceback."""
    with pytest.raises(ConfigError, match="cannot read the image"):
        writing.read_image(tmp_path / "absent.img", quiet)


def test_a_hash_beside_the_image_is_compared(tmp_path):
    """Of the file as it lies there, in the ways that sha256sum writes it."""
    for line in ("{hash}", "{hash}  os.img", "{hash} *./os.img\n" + "0" * 64 + "  other.img"):
        with table_row(line):
            (tmp_path / "os.img.sha256").write_text(line.format(hash=hashlib.sha256(CONTENT).hexdigest().upper()) + "\n")
            assert make_image(tmp_path).compared_with == tmp_path / "os.img.sha256"
            with pytest.raises(ConfigError, match="download it again"):
                make_image(tmp_path, CONTENT[:-1])


def test_a_hash_that_does_not_cover_the_image_is_refused(tmp_path):
    """A check that was wanted and cannot be made is not left out without a word."""
    for text in ("", "no hash\n", "0" * 64 + "  a.img\n" + "0" * 64 + "  b.img\n"):
        with table_row(text):
            (tmp_path / "os.img.sha256").write_text(text)
            with pytest.raises(ConfigError, match="has no sha256"):
                make_image(tmp_path)


@contextlib.contextmanager
def loop_disk(folder, size_bytes):
    """Attach a loop device for the block, or skip where we may not."""
    backing = folder / "backing"
    backing.write_bytes(b"\xaa" * size_bytes)
    completed = subprocess.run(["losetup", "--find", "--show", str(backing)], capture_output=True, text=True, check=False, timeout=100)
    if completed.returncode:
        pytest.skip(f"no loop device can be made here: {completed.stderr.strip()}")
    device = Path(completed.stdout.strip())
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=True, timeout=100)


def as_card(folder, device, size_bytes):
    """Return a world in which the loop device is a card on USB; the device itself is the real one."""
    entry = folder / "sys/devices" / USB / "block" / device.name
    entry.mkdir(parents=True)
    number = f"{os.major(device.stat().st_rdev)}:{os.minor(device.stat().st_rdev)}"
    for key, value in {"size": size_bytes // 512, "removable": 1, "ro": 0, "dev": number}.items():
        (entry / key).write_text(f"{value}\n")
    (folder / "sys/class/block").mkdir(parents=True)
    (folder / "sys/class/block" / device.name).symlink_to(entry)
    return KernelTrees(sysfs=folder / "sys")


@pytest.mark.needs("losetup")
def test_a_real_block_device_is_written_and_read_past_the_cache(tmp_path):
    """A loop device: O_EXCL, BLKFLSBUF, O_DIRECT and the partition table as a card has them."""
    with loop_disk(tmp_path, 24 << 20) as device:
        world = as_card(tmp_path, device, 24 << 20)
        card = disks.read_disk(device, world)
        assert disks.objections(card, world, len(CONTENT), "refused") == []
        written_image = writing.write_image(make_image(tmp_path), card, quiet)
        assert written_image.past_cache == "O_DIRECT"
    assert (tmp_path / "backing").read_bytes()[: len(CONTENT)] == CONTENT


@pytest.mark.needs("losetup")
def test_a_mounted_block_device_is_refused_by_us_and_by_the_kernel(tmp_path):
    """By what /proc says; and O_EXCL, should that have been overlooked."""
    with loop_disk(tmp_path, 24 << 20) as device:
        subprocess.run(["mkfs.ext4", "-q", "-F", device], check=True, timeout=300)
        (tmp_path / "mounted").mkdir()
        if subprocess.run(["mount", device, tmp_path / "mounted"], capture_output=True, check=False, timeout=100).returncode:
            pytest.skip("a loop device cannot be mounted here")
        try:
            world = as_card(tmp_path, device, 24 << 20)
            card = disks.read_disk(device, world)
            assert str(tmp_path / "mounted") in disks.objections(card, world, None, "refused")[0]
            with pytest.raises(UnavailableError, match="unmount it"):
                writing.write_image(make_image(tmp_path), card, quiet)
        finally:
            subprocess.run(["umount", tmp_path / "mounted"], check=True, timeout=100)


def test_a_real_loop_device_is_no_card():
    """In the real sysfs it is virtual, and not offered."""
    assert not [disk.name for disk in disks.all_disks(KernelTrees()) if disk.name.startswith(("loop", "ram", "zram", "dm-"))]
