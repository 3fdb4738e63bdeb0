"""Facts about FAT: mtools reads what was written, fsck.fat finds nothing wrong, and a write cut off at any sector breaks nothing."""

import contextlib
import random
from types import SimpleNamespace

import pytest

from edgemeter.agent.base.errors import ConfigError, EdgemeterError, UnavailableError
from edgemeter.provisioning.fat import directory, disk_image, geometry
from edgemeter.provisioning.fat.volume import PutFile, RemovePath, of_bytes
from edgemeter.provisioning.image import boot_partition
from tests.fixtures.rows import table_row
from tests.provisioning.image import cards

WHEEL = "ai_edge_litert-2.3.{}-cp313-cp313-manylinux_2_27_aarch64.manylinux_2_28_aarch64.whl"
ENDLESS = 10**9
# Bits, sectors a cluster, MiB, and what mkfs.vfat is told beside; FAT32 of few clusters too, which mtools refuses and Linux mounts.
GEOMETRIES = {
    "fat16": (16, 4, 32, ()),
    "fat16, one sector, a single table": (16, 1, 16, ("-f", "1")),
    "fat32": (32, 1, 64, ()),
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


@pytest.fixture
def stick(tmp_path):
    """Return a file system of 4 MiB that we made, with two files."""
    image = tmp_path / "stick.img"
    geometry.make_stick(image, 4 << 20, "CIDATA")
    apply(image, put({"cmdline.txt": b"old\n", "user-data": b"old" * 1000}))
    return image


def test_files_are_put_replaced_and_removed(stick):
    """With long names, in folders, larger and smaller than before; a name is the same in capitals."""
    files = random_files(1, 30)
    apply(stick, put(files))
    assert read_all(stick) == {"cmdline.txt": b"old\n", "user-data": b"old" * 1000, **files}
    gone = list(files)[::3]
    grown = {path: files[path] * 3 + b"more" for path in list(files)[1::3]}
    apply(stick, [*(RemovePath(path) for path in gone), *put(grown), *put({"CMDLINE.TXT": b"quiet\n", "new folder/ünï.txt": b"x"})])
    expected = {path: data for path, data in (files | grown).items() if path not in gone}
    assert read_all(stick) == {"cmdline.txt": b"quiet\n", "user-data": b"old" * 1000, "new folder/ünï.txt": b"x", **expected}


@cards.on_disk
def test_mtools_and_fsck_agree_on_what_was_written(tmp_path):
    """Made by mkfs.vfat, filled by mtools, then files added, replaced by larger and smaller ones, and removed by us."""
    for name, (bits, sectors, size_mb, mkfs_options) in GEOMETRIES.items():
        with table_row(name):
            first = {} if "few" in name else {"cmdline.txt": "console=tty1\n", "config.txt": "arm_64bit=1\n" * 2000}
            options = {"bits": bits, "sectors": sectors, "size_mb": size_mb, "mkfs_options": mkfs_options}
            image = cards.disk(tmp_path / "card.img", first, table="", **options)
            files = random_files(1, 60)
            apply(image, put(files))
            grown = {path: data * 3 + b"more" for path, data in list(files.items())[1::3]}
            apply(image, [*(RemovePath(path) for path in list(files)[::3]), *put(grown), *put({"CMDLINE.TXT": b"quiet\n"})])
            expected = {path: data for path, data in (files | grown).items() if path not in list(files)[::3]}
            expected |= {"cmdline.txt" if first else "CMDLINE.TXT": b"quiet\n"}
            expected |= {"config.txt": first["config.txt"].encode()} if first else {}
            assert read_all(image) == expected
            assert cards.fsck(image, 0).returncode == 0
            if "few" not in name:
                assert cards.mtools_tree(image, tmp_path / f"out of {name}", 0) == expected


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


def cuts(image, power, changes):
    """Yield after each cut: the number of the last write, and every file as it was before and as it is to be."""
    before, original = read_all(image), image.read_bytes()
    power.writes = ENDLESS
    apply(image, changes)
    writes, after = ENDLESS - power.writes, read_all(image)
    assert writes > 10
    for last in range(writes):
        image.write_bytes(original)
        power.writes = last
        with pytest.raises(Cut):
            apply(image, changes)
        power.writes = ENDLESS
        yield last, before, after


def test_cut_off_at_any_write_every_file_is_the_old_or_the_new(stick, power):
    """Each write in turn is the last; whoever was cut off completes it by doing it again."""
    changes = [*put({"user-data": b"new" * 900, "cmdline.txt": b"", "edgemeter/extra/file": b"new"})]
    changes += put({f"edgemeter/{WHEEL.format(number)}": b"new" * 700 for number in range(3)})
    for last, before, after in cuts(stick, power, changes):
        for path, data in read_all(stick).items():
            is_short = path.rsplit("/", 1)[-1].startswith("AI_EDG")
            assert data in (before.get(path), after.get(path)) or is_short, (last, path)
        apply(stick, changes)
        assert read_all(stick) == after


@pytest.mark.nightly
@cards.on_disk
def test_cut_off_at_any_write_fsck_finds_nothing_serious(tmp_path, power):
    """At worst unused clusters and a stale count; after the same change again both tables of a FAT32 are equal, and nothing is unused."""
    files = {"cmdline.txt": "old\n", "user-data": "old" * 300}
    image = cards.disk(tmp_path / "fat16.img", files, size_mb=8, bits=16, sectors=1, table="")
    apply(image, put({f"edgemeter/{WHEEL.format(number)}": b"old" * number for number in range(8)}))
    changes = [RemovePath(f"edgemeter/{WHEEL.format(3)}"), *put({"user-data": b"new" * 900, "cmdline.txt": b""})]
    changes += put({f"edgemeter/{WHEEL.format(number)}": b"new" * 700 for number in range(20, 40)})
    for last, _, _ in cuts(image, power, changes):
        lines = cards.fsck(image, 0).stdout.splitlines()
        words = ("shares clusters", "Bad ", "beyond", "Cluster chain", "bigger than")
        assert not [line for line in lines if any(word in line for word in words)], (last, lines)
    image = cards.disk(tmp_path / "fat32.img", files, size_mb=36, bits=32, sectors=1, table="")
    changes = [RemovePath("user-data"), *put({f"edgemeter/{number}": b"new" * 700 for number in range(6)})]
    for last, _, after in cuts(image, power, changes):
        apply(image, changes)
        assert cards.fsck(image, 0).returncode == 0, last
        assert read_all(image) == after


def test_what_does_not_fit_is_refused_before_anything_is_written(stick):
    """The image keeps every byte; the message says how much is missing."""
    before = stick.read_bytes()
    with pytest.raises(UnavailableError, match=r"MB are free, .* MB more are needed"):
        apply(stick, put({"a/large.bin": bytes(5_000_000)}))
    assert stick.read_bytes() == before


def test_damage_is_reported_and_not_written_into(stick):
    """A chain that runs in a circle."""
    data = bytearray(stick.read_bytes())
    fat = 512 * int.from_bytes(data[14:16], "little")
    for cluster in range(2, 200):
        data[fat + 2 * cluster : fat + 2 * cluster + 2] = (2 + (cluster - 1) % 198).to_bytes(2, "little")
    stick.write_bytes(bytes(data))
    with pytest.raises(ConfigError, match=r"damaged .*fsck\.fat"):
        apply(stick, put({"cmdline.txt": b"quiet"}))
    assert stick.read_bytes() == bytes(data)


def test_garbled_file_systems_end_in_an_error(stick):
    """Bytes changed at random in boot sector, tables and folders: it works, or says what is wrong."""
    original = stick.read_bytes()
    numbers, worked = random.Random(4), 0  # noqa: S311 - places and bytes, no secrets
    for _ in range(15):
        data = bytearray(original)
        for _ in range(numbers.choice([1, 2, 10])):
            data[numbers.randrange(*numbers.choice([(0, 64), (0, 100 * 512)]))] = numbers.choice([0, 1, 0xE5, 0xFF, numbers.randrange(256)])
        stick.write_bytes(bytes(data))
        with contextlib.suppress(EdgemeterError):
            apply(stick, [*put({"edgemeter/x/y.whl": b"1" * 5000, "user-data": b"2"}), RemovePath("cmdline.txt")])
            read_all(stick)
            worked += 1
    assert 3 < worked < 15


def test_a_name_that_fat_does_not_have_is_refused():
    """So that nothing is written that Windows cannot read."""
    for name in ("", "a:b", "what?", "dot.", "space ", "x" * 256, "tab\t"):
        with table_row(name), pytest.raises(ConfigError, match="FAT does not allow"):
            directory.check_name(name)


@cards.on_disk
@pytest.mark.needs("blkid")
def test_a_stick_is_a_file_system_to_everybody(tmp_path):
    """fsck.fat, mtools and blkid read it, at both ends of FAT16 and FAT32; two hundred names have short names of their own."""
    files = {f"folder/same beginning {number}.tar.gz": str(number).encode() for number in range(200)}
    files |= {"folder/PLAIN.TXT": b"p", "folder/plain2.Txt": b"q", "folder/.hidden": b"h", "user-data": b"#cloud-config\n"}
    for size_mb in (4, 512, 513, 4096):
        with table_row(size_mb):
            image = tmp_path / f"stick-{size_mb}.img"
            geometry.make_stick(image, size_mb << 20, "CIDATA")
            apply(image, put(files))
            checked = cards.fsck(image, 0)
            assert checked.returncode == 0, checked.stdout
            assert cards.mtools_tree(image, tmp_path / f"out of {size_mb}", 0) == files
            properties = cards.run("blkid", "-p", "-o", "export", image).splitlines()
            assert {"LABEL=CIDATA", "TYPE=vfat", f"VERSION={'FAT32' if size_mb > 512 else 'FAT16'}"} <= set(properties)
            image.unlink()
