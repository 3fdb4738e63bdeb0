"""Facts about `edgemeter fleet image`: what it puts onto cards, sticks and folders, and what it refuses without touching anything."""

import gzip
import json
import lzma
import os
import struct
import zlib
from pathlib import Path

import pytest

from edgemeter.provisioning.fat import disk_image as disks
from edgemeter.provisioning.image import boot_partition, detect
from tests.fixtures import small_release
from tests.fixtures.rows import table_row
from tests.provisioning.image import cards

pytestmark = pytest.mark.needs("openssl")

TRIXIE = {
    "cmdline.txt": "console=tty1 root=PARTUUID=4e639091-02 rootwait resize\n",
    "config.txt": "arm_64bit=1\n",
    "user-data": "#cloud-config\n# nothing yet\n",
    "meta-data": "dsmode: local\ninstance_id: rpios-image\n",
}
BOOKWORM = {"cmdline.txt": "console=tty1 rootwait quiet init=/usr/lib/raspberrypi-sys-mods/firstboot\n", "config.txt": ""}
PRESEED = {"cmdline.txt": "console=tty1 rootwait\n", "rpi-preseed.toml": 'config_version = "1.1"\n'}
OUTSIDE = {"cloudinit": {"cmdline.txt", "config.txt", "user-data", "meta-data"}, "firstrun": {"cmdline.txt", "config.txt", "firstrun.sh"}}


def payload(files: dict[str, bytes]) -> dict[str, bytes]:
    """Return what is in the payload's folder."""
    return {name.removeprefix("edgemeter/"): data for name, data in files.items() if name.startswith("edgemeter/")}


@pytest.mark.slow
@cards.on_disk
@pytest.mark.parametrize(
    ("files", "form", "geometry"),
    [
        (TRIXIE, "cloudinit", {}),
        (TRIXIE, "cloudinit", {"table": "gpt"}),
        (BOOKWORM, "firstrun", {"bits": 16, "sectors": 4}),
        (PRESEED, "preseed", {"bits": 32, "sectors": 1, "size_mb": 100}),
    ],
)
def test_a_card_is_prepared_for_what_it_is(tmp_path, release_folder, needed, files, form, geometry):
    """MBR and GPT, FAT16 and FAT32: the payload is the release's files and ours, and all else of the image keeps every byte."""
    image = cards.disk(tmp_path / "card.img", files, **geometry)
    end = cards.OFFSET + (geometry.get("size_mb", 64) << 20)
    before = image.read_bytes()
    said = cards.done(image, *needed)
    assert (said["format"], said["verified"]) == (form, True)
    after = image.read_bytes()
    assert after[: cards.OFFSET] + after[end:] == before[: cards.OFFSET] + before[end:]
    assert cards.fsck(image, size_bytes=end - cards.OFFSET).returncode == 0
    found = cards.mtools_tree(image, tmp_path / "out")
    release = release_folder / "release-0.0.1"
    own = {"firstboot.sh", "edgemeter-firstboot.service", "join.toml", "release.pub", "status.txt"}
    expected = {path.relative_to(release).as_posix(): path.read_bytes() for path in release.rglob("*") if path.is_file()}
    assert {name: data for name, data in payload(found).items() if name not in own} == expected
    assert set(payload(found)) == set(expected) | own
    assert {name for name in found if "/" not in name} == OUTSIDE.get(form, set(files))


@cards.on_disk
def test_doing_it_twice_changes_nothing(tmp_path, needed):
    """Idempotent to the byte: the second call finds everything as it should be."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    cards.done(image, *needed)
    before = image.read_bytes()
    again = cards.done(image, *needed)
    assert (again["written"], again["removed"]) == ([], [])
    assert image.read_bytes() == before


@cards.on_disk
def test_another_release_takes_the_place_of_the_old(tmp_path, release_folder, needed):
    """What it does not have any more goes, what is the same stays, and nothing is lost of the file system."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    cards.done(image, *needed)
    other = cards.release(tmp_path, release_folder / "release.key", "0.0.2")
    said = cards.done(image, "--release", small_release.tar(other), *needed[2:])
    assert said["removed"] == ["edgemeter/wheels/edgemeter-0.0.1-py3-none-any.whl"]
    written = {file["path"] for file in said["written"]}
    assert "edgemeter/wheels/edgemeter-0.0.2-py3-none-any.whl" in written
    assert not [path for path in written if "pip-" in path]
    checked = cards.fsck(image, size_bytes=64 << 20)
    assert checked.returncode == 0, checked.stdout


def test_a_mounted_boot_partition_works_by_plain_files(tmp_path, needed):
    """A card in a reader whose boot partition the desktop has mounted."""
    for name, text in TRIXIE.items():
        (tmp_path / name).write_text(text)
    said = cards.done(tmp_path, *needed)
    assert said["format"] == "cloudinit"
    assert (tmp_path / "edgemeter/firstboot.sh").is_file()
    assert not list(tmp_path.rglob("*.new"))
    assert cards.done(tmp_path, *needed)["written"] == []


@cards.on_disk
def test_a_dry_run_lists_all_and_writes_nothing(tmp_path, needed):
    """The image may even be read-only."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    before = image.read_bytes()
    said = cards.done(image, *needed, "--dry-run")
    assert {"edgemeter/firstboot.sh", "user-data", "cmdline.txt"} <= {file["path"] for file in said["written"]}
    assert not said["verified"]
    assert image.read_bytes() == before
    shown = cards.edgemeter("fleet", "image", image, *needed, "--dry-run")
    assert "write " in shown.stdout
    assert "nothing was written" in shown.stdout
    assert "cloudinit, because it has user-data and meta-data" in shown.stderr


@cards.on_disk
def test_a_stick_is_made_for_any_system_with_cloud_init(tmp_path, needed):
    """CIDATA, no partition table; what starts us mounts the stick, for nothing else does."""
    stick = tmp_path / "stick.img"
    said = cards.done("--make-stick", stick, *needed)
    assert said["format"] == "cidata"
    assert cards.fsck(stick, 0).returncode == 0
    assert "mount LABEL=CIDATA /run/edgemeter/seed" in cards.mtype(stick, "user-data", 0)
    assert "instance-id: edgemeter-" in cards.mtype(stick, "meta-data", 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stick.img"]
    # It can be prepared again like any card, and is recognised by its label.
    assert cards.done(stick, *needed)["written"] == []
    again = cards.edgemeter("fleet", "image", "--make-stick", stick, *needed)
    assert again.returncode == 2
    assert "exists already" in again.stderr
    small = cards.edgemeter("fleet", "image", "--make-stick", tmp_path / "small.img", "--size", "1M", *needed)
    assert small.returncode == 2
    assert "give a --size from 4M" in small.stderr
    assert not (tmp_path / "small.img").exists()
    assert not list(tmp_path.glob(".edgemeter-stick*"))


@cards.on_disk
def test_what_else_would_fire_is_warned_of(tmp_path, needed):
    """Left over from another tool on a card of cloud-init."""
    image = cards.disk(tmp_path / "card.img", {**TRIXIE, "firstrun.sh": "#!/bin/sh\n", "custom.toml": ""})
    shown = cards.edgemeter("fleet", "image", image, *needed)
    assert shown.returncode == 0, shown.stderr
    assert "warning: custom.toml" in shown.stderr
    assert "warning: firstrun.sh" in shown.stderr


@cards.on_disk
def test_secrets_are_never_printed(tmp_path, needed):
    """Not the token, not the passphrase, not the key made of it, whatever is asked for."""
    image = cards.disk(tmp_path / "card.img", BOOKWORM)
    (tmp_path / "psk").write_text("correct horse battery\n")
    wifi = ["--wifi-ssid", "Garden", "--wifi-psk-file", tmp_path / "psk"]
    for more in ([], ["--dry-run"], ["--json"], ["--format", "preseed"]):
        shown = cards.edgemeter("fleet", "image", image, *needed, *wifi, *more)
        assert shown.returncode == 0, shown.stderr
        for secret in (cards.TOKEN, "correct horse", "psk_hex"):
            assert secret not in shown.stdout + shown.stderr


def refused(image: Path, needed: list[str], text: str, *more: str | Path, status: int = 2):
    """Look that a card is refused in one line and keeps every byte."""
    before = image.read_bytes() if image.is_file() else None
    shown = cards.edgemeter("fleet", "image", image, *needed, *more)
    assert shown.returncode == status, shown.stderr
    errors = [line for line in shown.stderr.splitlines() if line and not line.startswith((str(image), "release:"))]
    assert len(errors) == 1, shown.stderr
    assert text in errors[0]
    assert (image.read_bytes() if image.is_file() else None) == before


@cards.on_disk
def test_garbage_is_refused(tmp_path, needed):
    """Nothing, noise, a file of zeros, a compressed image, a disk without FAT."""
    image = tmp_path / "card.img"
    refused(image, needed, "No such file")
    image.write_bytes(b"")
    refused(image, needed, "neither a partition table nor a FAT")
    image.write_bytes(os.urandom(100_000))
    refused(image, needed, "neither a partition table nor a FAT")
    image.write_bytes(bytes(100_000))
    refused(image, needed, "neither a partition table nor a FAT")
    image.write_bytes(gzip.compress(bytes(1000)))
    refused(image, needed, "neither a partition table nor a FAT")
    with image.open("wb") as file:
        file.truncate(32 << 20)
    cards.run("sfdisk", "-q", image, input="label: dos\nsize=8M,type=83\ntype=83\n")
    refused(image, needed, "none of the 2 partitions")


@cards.on_disk
def test_an_image_cut_short_is_refused(tmp_path, needed):
    """Within the file system, within the boot sector, within the gap."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    for size_bytes in (cards.OFFSET + (20 << 20), cards.OFFSET + 200, cards.OFFSET - 4096):
        os.truncate(image, size_bytes)
        with table_row(size_bytes):
            refused(image, needed, "truncated")


@cards.on_disk
def test_a_card_without_room_is_refused(tmp_path, needed):
    """It says how much is missing, before anything is written."""
    image = cards.disk(tmp_path / "card.img", {**TRIXIE, "kernel8.img": "k" * 15_500_000}, size_mb=16, bits=16)
    refused(image, needed, "MB more are needed", status=1)


@cards.on_disk
def test_a_read_only_card_is_refused(tmp_path, monkeypatch):
    """As an ordinary user; root may write to anything."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    monkeypatch.setattr(os, "open", lambda *_, **__: (_ for _ in ()).throw(PermissionError(13, "Permission denied")))
    with (
        pytest.raises(Exception, match=r"cannot open the image .* to write: Permission denied"),
        boot_partition.open_boot_partition(image, "write"),
    ):
        pass


@cards.on_disk
def test_two_at_a_time_are_refused(tmp_path, needed):
    """The second would write over the first."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    with disks.open_disk(image, "write"):
        refused(image, needed, "another process writes to", status=1)


@cards.on_disk
def test_a_release_that_was_changed_or_is_anothers_is_refused(tmp_path, release_folder, needed):
    """One byte, or another fleet's key; the card is not touched."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    other = cards.release(tmp_path, release_folder / "release.key")
    wheel = next((other / "wheels").glob("edgemeter-*"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"!")
    refused(image, ["--release", str(other), *needed[2:]], "is not what the manifest says")
    (tmp_path / "keys").mkdir()
    _, public = small_release.keys(tmp_path / "keys")
    refused(image, [*needed[:4], "--public-key", str(public)], "is not signed by the key")


@cards.on_disk
def test_a_join_file_that_has_served_is_refused(tmp_path, join, needed):
    """Its token was taken out after it had served; a message never repeats it."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    used = tmp_path / "used.toml"
    used.write_text("".join(line for line in join.read_text().splitlines(keepends=True) if not line.startswith("token")))
    refused(image, [*needed[:2], "--join", str(used), *needed[4:]], "make a new one (`edgemeter fleet token DEVICE`)")
    used.write_text(join.read_text().replace('broker = "', 'brocker = "'))
    refused(image, [*needed[:2], "--join", str(used), *needed[4:]], "brocker")


def test_options_that_do_not_go_together_are_refused(tmp_path, needed):
    """Options that need another one, and sizes that are none, end with exit status 2."""
    (tmp_path / "psk").write_text("correct horse\n")
    for more in (["--user", "ada"], ["--wifi-psk-file", tmp_path / "psk"], ["--size", "64M"], ["--size", "many"]):
        shown = cards.edgemeter("fleet", "image", tmp_path, *needed, *more)
        assert shown.returncode == 2
        assert "Error: " in shown.stderr
    assert cards.edgemeter("fleet", "image", *needed).returncode == 2


@cards.on_disk
def test_several_fat_partitions_ask_which(tmp_path, needed):
    """Unless one of them alone shows a system for boards."""
    image = cards.disk(tmp_path / "card.img", {"EFI.TXT": "x"}, size_mb=32, bits=16)
    with image.open("r+b") as file:
        file.truncate(cards.OFFSET + (72 << 20))
    second = cards.OFFSET + (33 << 20)
    cards.run("sfdisk", "-q", image, input=f"label: dos\nstart=16384,size=32M,type=c\nstart={second // 512},size=32M,type=c\n")
    cards.run("mkfs.vfat", "-F", "16", "--offset", str(second // 512), image, str(32 << 10))
    refused(image, needed, "several FAT partitions (1, 2)")
    source = tmp_path / "source"
    for name, text in TRIXIE.items():
        source.write_text(text)
        cards.run("mcopy", "-o", "-i", f"{image}@@{second}", source, f"::{name}")
    cards.done(image, *needed)
    assert "firstboot" in cards.mtype(image, "user-data", second)
    refused(image, needed, "cannot tell which first-boot format", "--partition", "1")


@cards.on_disk
def test_a_hybrid_mbr_is_read_as_the_gpt_that_it_belongs_to(tmp_path, needed):
    """What many images for boards have: firmware reads the one, Linux the other."""
    image = cards.disk(tmp_path / "card.img", TRIXIE, table="gpt")
    data = bytearray(image.read_bytes())
    entry = bytes([0x80, 0, 0, 0, 0x0C, 0, 0, 0]) + struct.pack("<II", cards.OFFSET // 512, 64 << 11)
    data[446 + 16 : 446 + 32] = entry
    image.write_bytes(bytes(data))
    assert cards.done(image, *needed)["format"] == "cloudinit"
    with disks.open_disk(image, "read") as opened:
        assert [partition.number for partition in disks.read_partitions(opened)] == [1, 2]


@pytest.mark.slow
@cards.on_disk
def test_a_damaged_gpt_is_read_by_its_second_copy(tmp_path, needed):
    """And with both damaged the card is refused."""
    image = cards.disk(tmp_path / "card.img", TRIXIE, table="gpt")
    data = bytearray(image.read_bytes())
    data[512 + 56] ^= 1
    image.write_bytes(bytes(data))
    assert cards.done(image, *needed)["format"] == "cloudinit"
    data[-512 + 56] ^= 1
    image.write_bytes(bytes(data))
    refused(image, needed, "both partition tables")


@cards.on_disk
def test_a_logical_partition_is_found(tmp_path, needed):
    """The boot partition may lie within an extended one: it is listed as number 5 and prepared."""
    image = tmp_path / "card.img"
    with image.open("wb") as file:
        file.truncate(96 << 20)
    cards.run("sfdisk", "-q", image, input="label: dos\nstart=2048,size=4M,type=83\nstart=12288,type=5\nstart=16384,size=64M,type=c\n")
    cards.run("mkfs.vfat", "-F", "32", "-s", "1", "--offset", "16384", image, str(64 << 10))
    with disks.open_disk(image, "read") as opened:
        assert [(found.number, found.start) for found in disks.read_partitions(opened)] == [(1, 1 << 20), (5, 8 << 20)]
    assert cards.done(image, *needed, "--format", "cloudinit")["format"] == "cloudinit"


def test_a_gpt_of_large_sectors_is_read(tmp_path):
    """4,096 bytes a sector, as on some NVMe disks; built here byte by byte."""
    sector = 4096
    entry = os.urandom(16) + os.urandom(16) + struct.pack("<QQQ", 256, 511, 0) + bytes(72)
    table = entry.ljust(128 * 4, b"\0")
    head = bytearray(sector)
    struct.pack_into("<8sIII", head, 0, b"EFI PART", 0x10000, 92, 0)
    struct.pack_into("<QQQQ16sQIII", head, 24, 1, 1023, 6, 1017, bytes(16), 2, 4, 128, zlib.crc32(table))
    struct.pack_into("<I", head, 16, zlib.crc32(bytes(head[:92])))
    protective = bytearray(sector)
    protective[450] = 0xEE
    struct.pack_into("<II", protective, 454, 1, 1023)
    protective[510:512] = b"\x55\xaa"
    image = tmp_path / "card.img"
    image.write_bytes((bytes(protective) + bytes(head) + table).ljust(1024 * sector, b"\0"))
    with disks.open_disk(image, "read") as opened:
        assert [(found.start, found.size_bytes) for found in disks.read_partitions(opened)] == [(256 * sector, 256 * sector)]


@cards.on_disk
def test_a_card_that_does_not_keep_what_it_takes_is_found_out(tmp_path, needed, monkeypatch):
    """Cards acknowledge writes that they never commit: what is read back through a fresh handle has to be the same."""
    from click.testing import CliRunner  # noqa: PLC0415

    from edgemeter.provisioning.cli.card import image as command  # noqa: PLC0415

    card = cards.disk(tmp_path / "card.img", TRIXIE)
    write = disks.DiskImage.write

    def lossy(self, offset, data):
        write(self, offset, data if b"set -eu\numask" not in data else data.replace(b"set -eu\numask", b"set -eu\numasc"))

    monkeypatch.setattr(disks.DiskImage, "write", lossy)
    result = CliRunner().invoke(command, [str(card), *needed])
    assert "'edgemeter/firstboot.sh' on" in str(result.exception)
    assert "reads back differently" in str(result.exception)


@cards.on_disk
def test_the_join_files_wifi_is_used_and_stands_in_one_place_only(tmp_path, join, needed):
    """A fleet's join file may bring the network; options overrule it."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    own = tmp_path / "join.toml"
    own.write_text(join.read_text() + '\n[wifi]\nssid = "Hall"\npsk = "correct horse battery"\ncountry = "DE"\n')
    cards.done(image, *needed[:2], "--join", own, *needed[4:])
    assert '"Hall":' in cards.mtype(image, "network-config")
    assert "wifi" not in cards.mtype(image, "edgemeter/join.toml")
    cards.done(image, *needed[:2], "--join", own, *needed[4:], "--wifi-ssid", "Open")
    assert '"Open": {}' in cards.mtype(image, "network-config")


@cards.on_disk
def test_a_card_that_is_prepared_again_without_wifi_keeps_no_key_of_the_earlier_one(tmp_path, needed):
    """Ours goes, and what is plugged in still gets an address; a network-config that somebody wrote stays."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    secret = tmp_path / "psk"
    secret.write_text("correct horse battery")
    cards.done(image, *needed, "--wifi-ssid", "Hall", "--wifi-psk-file", secret)
    assert '"Hall":' in cards.mtype(image, "network-config")
    cards.done(image, *needed)
    kept = cards.mtype(image, "network-config")
    assert "wifis" not in kept
    assert "password" not in kept
    assert "dhcp4: true" in kept
    theirs = cards.disk(tmp_path / "other.img", {**TRIXIE, "network-config": "version: 2\nwifis: {}\n"})
    cards.done(theirs, *needed)
    assert cards.mtype(theirs, "network-config") == "version: 2\nwifis: {}\n"


@cards.on_disk
def test_json_is_json(tmp_path, needed):
    """With every key, whatever was done."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    shown = cards.edgemeter("fleet", "image", image, *needed, "--json")
    assert set(json.loads(shown.stdout)) == {
        "target", "format", "why", "also_firing", "misfits", "dry_run", "written", "removed", "unchanged", "verified",
    }  # fmt: skip


@pytest.mark.slow
@cards.on_disk
@pytest.mark.parametrize(("pack", "suffix"), [(gzip.compress, "gz"), (lzma.compress, "xz")])
def test_a_compressed_image_is_taken_as_it_comes(tmp_path, needed, pack, suffix):
    """Unpacked beside it and prepared as the raw one is; again it is refused, and a rehearsal leaves nothing."""
    raw = cards.disk(tmp_path / "raw.img", TRIXIE, size_mb=40)
    packed = tmp_path / f"os.img.{suffix}"
    packed.write_bytes(pack(raw.read_bytes()))
    assert cards.done(packed, *needed, "--dry-run")["dry_run"] is True
    assert not (tmp_path / "os.img").exists()
    said = cards.done(packed, *needed)
    assert (said["target"], said["verified"]) == (str(tmp_path / "os.img"), True)
    cards.done(raw, *needed)
    assert cards.mtools_tree(tmp_path / "os.img", tmp_path / "a") == cards.mtools_tree(raw, tmp_path / "b")
    again = cards.edgemeter("fleet", "image", packed, *needed)
    assert "exists already: prepare that one, or delete it" in again.stderr
    assert not list(tmp_path.glob(".edgemeter-*"))
    packed.write_bytes(packed.read_bytes()[:-20])
    (tmp_path / "os.img").unlink()
    assert "is damaged" in cards.edgemeter("fleet", "image", packed, *needed).stderr
    assert not (tmp_path / "os.img").exists()


@pytest.mark.slow
@cards.on_disk
def test_a_folder_of_join_files_makes_an_image_for_each_board(tmp_path, release_folder, join):
    """Each with its own token and host name; an empty folder, and a card instead of an image, are one line each."""
    joins = tmp_path / "joins"
    joins.mkdir()
    image = cards.disk(tmp_path / "os.img", TRIXIE, size_mb=40)
    options = ["--release", release_folder / "release-0.0.1", "--public-key", release_folder / "release.pub", "--join", joins]
    assert "there is no *.join.toml" in cards.edgemeter("fleet", "image", image, *options).stderr
    for board in ("pi5-01", "pi5-02"):
        (joins / f"{board}.join.toml").write_text(join.read_text().replace('device = "pi5-01"', f'device = "{board}"'))
    before = image.read_bytes()
    assert "several boards cannot have one host name" in cards.edgemeter("fleet", "image", image, *options, "--hostname", "pi").stderr
    done = cards.edgemeter("fleet", "image", image, *options, "--hostname", "{device}")
    assert done.returncode == 0, done.stderr
    assert image.read_bytes() == before
    for board in ("pi5-01", "pi5-02"):
        assert f'device = "{board}"' in cards.mtype(tmp_path / f"os-{board}.img", "edgemeter/join.toml")
        assert f'hostname: "{board}"' in cards.mtype(tmp_path / f"os-{board}.img", "user-data")
    assert "give an image file" in cards.edgemeter("fleet", "image", joins, *options).stderr


@cards.on_disk
def test_a_release_that_does_not_fit_the_system_warns(tmp_path):
    """By its kernels and the date of its release; one that fits, or a system that shows neither, is silent."""
    for more, why in (
        ({"kernel7.img": "", "kernel8.img": ""}, "as one of 32 bits"),
        ({"kernel8.img": "", "issue.txt": "Raspberry Pi reference 2024-11-19\n"}, "Raspberry Pi OS Bookworm has 3.11"),
        ({"kernel8.img": "", "issue.txt": "Raspberry Pi reference 2026-04-13\n"}, "Raspberry Pi OS Trixie has 3.13"),
    ):
        image = cards.disk(tmp_path / "os.img", {**TRIXIE, **more}, size_mb=40)
        with table_row(more), boot_partition.open_boot_partition(image, "read") as boot:
            assert any(why in warning for warning in detect.misfits(boot, "aarch64", "3.10"))
            assert [warning for warning in detect.misfits(boot, "aarch64", why[-4:]) if "Python" in warning] == []
    with boot_partition.open_boot_partition(cards.disk(tmp_path / "bare.img", TRIXIE, size_mb=40), "read") as bare:
        assert detect.misfits(bare, "aarch64", "3.10") == []
