"""Which disks are written, and every reason why one is not."""

from itertools import product

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.write import target_disk as disks
from tests.fixtures.rows import in_folders, table_row
from tests.provisioning.write.world import MMC, SATA, Bench

GB = 10**9


def objections(bench, path, image_bytes=1 << 20, large="refused"):
    """Return what speaks against writing."""
    world = bench.world
    return disks.objections(disks.read_disk(path, world), world, image_bytes, large)


def test_a_card_is_written_whatever_its_reader_calls_itself(tmp_path):
    """Built-in MMC readers and many USB ones do not say `removable`; a card reader on PCI does."""
    for folder, where, removable in in_folders(tmp_path, ((MMC, 0), ("pci0000:00/usb1/1-1", 0), (SATA, 1))):
        with table_row(where):
            bench = Bench(folder)
            assert objections(bench, bench.disk(where=where, removable=removable)) == []


def test_a_disk_with_a_mount_is_refused(tmp_path):
    """The disk itself or any partition; the message names the place."""
    bench = Bench(tmp_path)
    card = bench.disk(parts=("sdx1", "sdx2"))
    for (part, number), mount in product({"sdx": "8:16", "sdx2": "8:18"}.items(), ("/", "/boot/firmware", "/media/user/some\\040card")):
        with table_row(part, mount):
            bench.mounts[:] = [f"30 1 {number} / {mount} rw,relatime shared:1 - ext4 /dev/root rw"]
            (why,) = objections(bench, card)
            assert mount.replace("\\040", " ") in why
            assert part in why


def test_a_disk_that_the_system_uses_by_name_is_refused(tmp_path):
    """A btrfs, whose mounts have a number of their own (0:N), and swap space, which is in no list of mounts."""
    bench = Bench(tmp_path)
    card = bench.disk(parts=("sdx1",))
    bench.mounts.append(f"30 1 0:31 /@ / rw - btrfs {tmp_path}/dev/sdx1 rw")
    assert "this system runs from it" in objections(bench, card)[0]
    bench.mounts.clear()
    bench.swaps.append(f"{tmp_path}/dev/sdx1")
    assert "swap" in objections(bench, card)[0]


def test_what_lvm_or_a_raid_holds_is_refused(tmp_path):
    """A mounted logical volume is a mount of another device."""
    for folder, name in in_folders(tmp_path, ("sdx", "sdx1")):
        with table_row(name):
            bench = Bench(folder)
            card = bench.disk(parts=("sdx1",))
            bench.hold(name)
            assert "dm-0" in objections(bench, card)[0]


def test_a_part_of_something_larger_is_refused_though_it_is_idle(tmp_path):
    """LVM, both ends of Linux RAID, ZFS: by what stands on the disk."""
    for folder, offset, magic, owner in in_folders(
        tmp_path,
        (
            (512, b"LABELONE", "LVM"),
            (4096, b"\xfc\x4e\x2b\xa9", "RAID"),
            (-0x10000, b"\xfc\x4e\x2b\xa9", "RAID"),
            (-0x2000, b"\xfc\x4e\x2b\xa9", "RAID"),
            ((128 << 10) + 4096, (0x00BAB10C).to_bytes(8, "little"), "ZFS"),
        ),
    ):
        with table_row(offset, magic, owner):
            bench = Bench(folder)
            card = bench.disk(parts=("sdx1",))
            part = card.with_name("sdx1")
            with part.open("r+b") as file:
                file.seek(offset, 0 if offset >= 0 else 2)
                file.write(magic)
            (why,) = objections(bench, card)
            assert owner in why


def test_an_unfit_disk_is_refused(tmp_path):
    """Built in, locked, empty, too small, too large."""
    for folder, changed, reason in in_folders(
        tmp_path,
        (
            ({"where": SATA, "removable": 0}, "built in"),
            ({"ro": 1}, "read-only"),
            ({"size_bytes": 0}, "no size"),
            ({"size_bytes": 1 << 19}, "smaller than the image"),
            ({"size_bytes": 2000 * GB}, "--force-large"),
        ),
    ):
        with table_row(changed):
            bench = Bench(folder)
            (why,) = objections(bench, bench.disk(**changed))
            assert reason in why


def test_a_large_disk_is_written_when_that_is_allowed(tmp_path):
    """And exactly 512 GB is no large disk."""
    bench = Bench(tmp_path)
    assert objections(bench, bench.disk(size_bytes=2000 * GB), large="allowed") == []
    assert objections(bench, bench.disk(name="sdy", where="usb3/a", size_bytes=512 * GB, number="8:32")) == []


def test_a_partition_is_refused_with_the_name_of_its_disk(tmp_path):
    """Half of those who type sdx1 mean sdx."""
    bench = Bench(tmp_path)
    bench.disk(parts=("sdx1",))
    with pytest.raises(ConfigError, match=r"partition.*dev/sdx'"):
        disks.read_disk(tmp_path / "dev/sdx1", bench.world)


def test_what_is_no_disk_is_refused(tmp_path):
    """Nothing there, another file, a plain file elsewhere."""
    bench = Bench(tmp_path)
    bench.disk()
    (tmp_path / "dev/null").touch()
    (tmp_path / "elsewhere.img").touch()
    for name in ("sdy", "null", "../elsewhere.img"):
        with table_row(name), pytest.raises(ConfigError, match="not a disk of this machine"):
            disks.read_disk(tmp_path / "dev" / name, bench.world)


def test_a_link_leads_to_its_disk_whose_words_can_be_typed(tmp_path):
    """A link as in /dev/disk/by-id; vendor and model without the spaces that pad them, the size in GB as it is printed on the card."""
    bench = Bench(tmp_path)
    (tmp_path / "by-id").symlink_to(bench.disk(size_bytes=31_914_983_424))
    disk = disks.read_disk(tmp_path / "by-id", bench.world)
    assert (disk.name, disk.words) == ("sdx", "Generic SD Card Reader 31.9 GB")


def test_without_a_list_of_mounts_nothing_is_written(tmp_path):
    """What cannot be found out is not taken for a yes."""
    bench = Bench(tmp_path)
    card = bench.disk()
    world = bench.world
    (tmp_path / "proc/self/mountinfo").unlink()
    with pytest.raises(ConfigError, match="mountinfo"):
        disks.objections(disks.read_disk(card, world), world, 1, "refused")


def test_this_machines_own_disk_is_refused():
    """The real thing: whatever / stands on here is never offered."""
    world = disks.KernelTrees()
    numbers = [line.split()[2] for line in (world.proc / "self/mountinfo").read_text().splitlines() if line.split()[4] == "/"]
    of_root = [
        disk
        for disk in disks.all_disks(world)
        for name in (disk.name, *disk.parts)
        if (world.sysfs / "class/block" / name / "dev").read_text().strip() in numbers
    ]
    if not of_root:
        pytest.skip("/ stands on no disk of its own here")
    for disk in of_root:
        assert any("this system runs from it" in why for why in disks.objections(disk, world, None, "allowed"))
