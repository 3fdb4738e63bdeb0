"""Facts about FAT: mtools reads what was written, fsck.fat finds nothing wrong, and a write cut off at any sector breaks nothing."""

import contextlib
import random
from bisect import bisect
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.provisioning.fat import directory, disk_image, geometry
from edgemeter.provisioning.fat.volume import FileContent, PutFile, RemovePath, of_bytes
from edgemeter.provisioning.image import boot_partition
from tests.fixtures.rows import table_row
from tests.provisioning.image import cards

WHEEL = "ai_edge_litert-2.3.{}-cp313-cp313-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl"
ENDLESS = 10**9
# Bits, sectors a cluster, MiB, and what mkfs.vfat is told beside; FAT32 of few clusters too, which mtools refuses and Linux mounts.
GEOMETRIES = {
    "fat16": (16, 4, 32, ()),
    "fat16, large clusters": (16, 32, 128, ("-r", "512")),
    "fat16, one sector, a single table": (16, 1, 16, ("-f", "1")),
    "fat32": (32, 1, 64, ()),
    "fat32, 4 KiB clusters": (32, 8, 300, ()),
    "fat32 of few clusters": (32, 8, 64, ()),
    "fat32, sectors of 1,024": (32, 1, 96, ("-S", "1024")),
}


def random_files(seed: int, count: int) -> dict[str, bytes]:
    """Return files of many sizes, with long names, in folders."""
    numbers = random.Random(seed)  # noqa: S311 - sizes and bytes, no secrets
    sizes = [0, 1, 511, 512, 513, 4096, 70_000]
    return {
        f"edgemeter/{'wheels' if number % 2 else 'units/deeper'}/{WHEEL.format(number)}": numbers.randbytes(sizes[number % 7] + seed)
        for number in range(count)
    }


def put(files: dict[str, bytes]) -> list[PutFile]:
    """Return changes that put these files."""
    return [PutFile(path, of_bytes(data)) for path, data in files.items()]


def apply(image, changes):
    """Carry out changes on an image."""
    with boot_partition.open_boot_partition(image, "write") as boot:
        boot.apply(changes, lambda _: None)


def read_all(image) -> dict[str, bytes]:
    """Return every file by our own reader."""
    with boot_partition.open_boot_partition(image, "read") as boot:
        return {path: b"".join(boot.content(path)) for path in boot.files()}


@cards.on_disk
@pytest.mark.parametrize("geometry", GEOMETRIES)
def test_mtools_and_fsck_agree_on_what_was_written(tmp_path, geometry):
    """Made by mkfs.vfat, filled by mtools, then files added, replaced by larger and smaller ones, and removed by us."""
    bits, sectors, size_mb, mkfs_options = GEOMETRIES[geometry]
    first = {} if "few" in geometry else {"cmdline.txt": "console=tty1\n", "config.txt": "arm_64bit=1\n" * 2000}
    image = cards.disk(tmp_path / "card.img", first, bits=bits, sectors=sectors, size_mb=size_mb, table="", mkfs_options=mkfs_options)
    expected = {name: text.encode() for name, text in first.items()} | random_files(1, 60)
    apply(image, put(random_files(1, 60)))
    assert read_all(image) == expected
    gone = [path for number, path in enumerate(random_files(1, 60)) if number % 3 == 0]
    grown = {path: data * 3 + b"more" for number, (path, data) in enumerate(random_files(1, 60).items()) if number % 3 == 1}
    apply(image, [*(RemovePath(path) for path in gone), *put(grown), *put({"CMDLINE.TXT": b"quiet\n", "new folder/ünï.txt": b"x"})])
    expected = {path: data for path, data in (expected | grown).items() if path not in gone}
    expected = {path: data for path, data in expected.items() if path != "cmdline.txt"}
    expected |= {"cmdline.txt" if first else "CMDLINE.TXT": b"quiet\n", "new folder/ünï.txt": b"x"}
    assert read_all(image) == expected
    assert cards.fsck(image, 0).returncode == 0
    if "few" not in geometry:
        tree = cards.mtools_tree(image, tmp_path / "out", 0)
        del tree[next(name for name in tree if name.startswith("new folder"))], expected["new folder/ünï.txt"]
        assert tree == expected


class Cut(Exception):  # noqa: N818 - a power cut, not a mistake
    """The power is gone."""


@pytest.fixture
def power(monkeypatch):
    """Return how many writes are left until the power is gone, which a test sets: `power.writes`."""
    supply, write = SimpleNamespace(writes=ENDLESS), disk_image.DiskImage.write

    def counted(self, offset, data):
        supply.writes -= 1
        if supply.writes < 0:
            raise Cut
        write(self, offset, data)

    monkeypatch.setattr(disk_image.DiskImage, "write", counted)
    return supply


@pytest.mark.services
@cards.on_disk
def test_cut_off_at_any_write_every_file_is_the_old_or_the_new(tmp_path, power):
    """Each write in turn is the last: fsck.fat finds at worst unused clusters and a stale count, and every file reads whole."""
    image = cards.disk(tmp_path / "card.img", {"cmdline.txt": "old\n", "user-data": "old" * 300}, size_mb=8, bits=16, sectors=1, table="")
    apply(image, put({f"edgemeter/{WHEEL.format(number)}": b"old" * number for number in range(8)}))
    before = read_all(image)
    changes = put({"user-data": b"new" * 900, "cmdline.txt": b"", "edgemeter/extra/file": b"new"})
    changes += [
        RemovePath(f"edgemeter/{WHEEL.format(3)}"),
        *put({f"edgemeter/{WHEEL.format(number)}": b"new" * 700 for number in range(20, 40)}),
    ]
    original, power.writes = image.read_bytes(), ENDLESS
    apply(image, changes)
    writes, after = ENDLESS - power.writes, read_all(image)
    assert writes >= 40
    for last in range(writes):
        image.write_bytes(original)
        power.writes = last
        with pytest.raises(Cut):
            apply(image, changes)
        for path, data in read_all(image).items():
            short = path.rsplit("/", 1)[-1].startswith("AI_EDG")
            assert data in (before.get(path), after.get(path)) or short, (last, path)
        lines = cards.fsck(image, 0).stdout.splitlines()
        serious = [
            line for line in lines if any(word in line for word in ("shares clusters", "Bad ", "beyond", "Cluster chain", "bigger than"))
        ]
        assert not serious, (last, lines)
    # Whoever was cut off completes it by doing it again.
    power.writes = ENDLESS
    apply(image, changes)
    assert read_all(image) == after


@pytest.mark.services
@cards.on_disk
def test_an_interrupted_preparation_that_is_repeated_leaves_nothing_to_repair(tmp_path, power):
    """FAT32, cut off at any write: after the same change again fsck.fat finds both tables equal, the count right and nothing unused."""
    image = cards.disk(tmp_path / "card.img", {"cmdline.txt": "old\n", "user-data": "old" * 300}, size_mb=36, bits=32, sectors=1, table="")
    changes = [RemovePath("user-data"), *put({f"edgemeter/{number}": b"new" * 700 for number in range(6)})]
    original, power.writes = image.read_bytes(), ENDLESS
    apply(image, changes)
    writes, after = ENDLESS - power.writes, read_all(image)
    for last in range(writes):
        image.write_bytes(original)
        power.writes = last
        with pytest.raises(Cut):
            apply(image, changes)
        power.writes = ENDLESS
        apply(image, changes)
        checked = cards.fsck(image, 0)
        assert checked.returncode == 0, (last, checked.stdout)
        assert read_all(image) == after


@cards.on_disk
def test_what_does_not_fit_is_refused_before_anything_is_written(tmp_path):
    """The image keeps every byte; the message says how much is missing."""
    image = cards.disk(tmp_path / "card.img", {}, size_mb=16, bits=16, sectors=1, table="")
    before = image.read_bytes()
    with pytest.raises(UnavailableError, match=r"MB are free, 3\.9 MB more are needed"):
        apply(image, put({"a/large.bin": bytes(20_500_000)}))
    assert image.read_bytes() == before
    apply(image, put({"full.bin": bytes(largest_that_fits(image))}))
    assert cards.fsck(image, 0).returncode == 0


def largest_that_fits(image) -> int:
    """Return the size of the largest file that fits, in bytes: found by asking."""
    with boot_partition.open_boot_partition(image, "read") as boot:
        sizes = range(0, 1 << 30, 512)
        return sizes[bisect(sizes, 0, key=lambda size: boot.missing_bytes([PutFile("x", FileContent(size, lambda: None))])) - 1]


@cards.on_disk
def test_a_full_root_of_fat16_is_refused(tmp_path):
    """It holds as many names as it was made for; folders below it grow."""
    image = cards.disk(tmp_path / "card.img", {}, size_mb=16, bits=16, sectors=1, table="", mkfs_options=("-r", "16"))
    before = image.read_bytes()
    with pytest.raises(UnavailableError, match="root folder"):
        apply(image, put({f"a long name, number {number}.text": b"" for number in range(16)}))
    assert image.read_bytes() == before
    apply(image, put({f"folder/a long name, number {number}.text": b"" for number in range(100)}))
    assert len(read_all(image)) == 100
    assert cards.fsck(image, 0).returncode == 0


@cards.on_disk
def test_damage_is_reported_and_not_written_into(tmp_path):
    """A chain that runs in a circle, and a folder of no clusters."""
    image = cards.disk(tmp_path / "card.img", {"cmdline.txt": "x" * 5000}, size_mb=16, bits=16, sectors=1, table="")
    data = bytearray(image.read_bytes())
    fat = 512 * int.from_bytes(data[14:16], "little")
    data[fat + 2 * 3 : fat + 2 * 4] = (2).to_bytes(2, "little")
    data[fat + 2 * 2 : fat + 2 * 3] = (3).to_bytes(2, "little")
    image.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match=r"damaged .*fsck\.fat"):
        apply(image, put({"cmdline.txt": b"quiet"}))
    assert image.read_bytes() == bytes(data)


@cards.on_disk
def test_garbled_file_systems_end_in_one_line(tmp_path):
    """Bytes changed at random in boot sector, tables and folders: it works, or says what is wrong."""
    original = cards.disk(
        tmp_path / "card.img", {"user-data": "x" * 3000, "cmdline.txt": "a b\n"}, size_mb=4, bits=16, sectors=1, table=""
    ).read_bytes()
    numbers, image, worked = random.Random(4), tmp_path / "garbled.img", 0  # noqa: S311 - places and bytes, no secrets
    for _ in range(60):
        data = bytearray(original)
        for _ in range(numbers.choice([1, 2, 10])):
            data[numbers.randrange(*numbers.choice([(0, 64), (0, 100 * 512)]))] = numbers.choice([0, 1, 0xE5, 0xFF, numbers.randrange(256)])
        image.write_bytes(bytes(data))
        with contextlib.suppress(EdgemeterError):
            apply(image, [*put({"edgemeter/x/y.whl": b"1" * 5000, "user-data": b"2"}), RemovePath("cmdline.txt")])
            read_all(image)
            worked += 1
    assert 20 < worked < 60


def test_a_name_that_fat_does_not_have_is_refused():
    """So that nothing is written that Windows cannot read."""
    for name in ("", "a:b", "what?", "dot.", "space ", "x" * 256, "tab\t"):
        with table_row(name), pytest.raises(ConfigError, match="FAT does not allow"):
            directory.check_name(name)


@cards.on_disk
def test_short_names_differ(tmp_path):
    """Two hundred names with the same beginning, in one folder, each with a short name of its own."""
    image = cards.disk(tmp_path / "card.img", {}, size_mb=16, bits=16, sectors=1, table="")
    files = {f"folder/same beginning {number}.tar.gz": str(number).encode() for number in range(200)} | {
        "folder/PLAIN.TXT": b"p",
        "folder/plain2.Txt": b"q",
        "folder/.hidden": b"h",
    }
    apply(image, put(files))
    assert read_all(image) == files
    assert cards.mtools_tree(image, tmp_path / "out", 0) == files


@pytest.mark.services
@cards.on_disk
@pytest.mark.needs("blkid")
def test_a_stick_is_a_file_system_to_everybody(tmp_path):
    """fsck.fat and mtools read it, its label is CIDATA, and what we put there is there."""
    image = tmp_path / "stick.img"
    for size_mb in (4, 5, 16, 32, 64, 128, 300, 511, 512, 513, 600, 1024, 2048, 4096):
        with table_row(size_mb):
            image.unlink(missing_ok=True)
            geometry.make_stick(image, size_mb << 20, "CIDATA")
            apply(image, put({"user-data": b"#cloud-config\n", "edgemeter/wheels/" + WHEEL.format(1): bytes(70_000)}))
            checked = cards.fsck(image, 0)
            assert checked.returncode == 0, checked.stdout
            assert cards.mtype(image, "user-data", 0) == "#cloud-config\n"
            assert "CIDATA" in cards.run("mdir", "-i", image, "::")
            properties = cards.run("blkid", "-p", "-o", "export", image).splitlines()
            assert {"LABEL=CIDATA", "TYPE=vfat", f"VERSION={'FAT32' if size_mb > 512 else 'FAT16'}"} <= set(properties)
            with boot_partition.open_boot_partition(image, "read") as boot:
                assert boot.label == "CIDATA"
