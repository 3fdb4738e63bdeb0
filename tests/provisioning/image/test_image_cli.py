"""Facts about `edgemeter fleet card`: what it puts onto cards, sticks and folders, and what it refuses without touching anything."""

import gzip
import lzma
import os
import struct
from pathlib import Path

import pytest

from edgemeter.provisioning.fat import disk_image as disks
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


@cards.on_disk
@pytest.mark.parametrize(
    ("files", "form", "geometry"),
    [
        (TRIXIE, "cloudinit", {"table": "gpt"}),
        (BOOKWORM, "firstrun", {"bits": 16, "sectors": 4}),
        (PRESEED, "preseed", {"bits": 32, "sectors": 1, "size_mb": 100}),
    ],
)
def test_a_card_is_prepared_for_what_it_is(tmp_path, release_folder, card_options, files, form, geometry):
    """MBR and GPT, FAT16 and FAT32: the payload is the release's files and ours, and all else of the image keeps every byte.

    A rehearsal before writes nothing, a second call afterwards neither.
    """
    image = cards.disk(tmp_path / "card.img", files, **geometry)
    end = cards.OFFSET + (geometry.get("size_mb", 64) << 20)
    before = image.read_bytes()
    rehearsed = cards.prepare(image, *card_options, "--dry-run")
    assert (rehearsed["verified"], image.read_bytes() == before) == (False, True)
    report = cards.prepare(image, *card_options)
    assert (report["format"], report["verified"], report["written"]) == (form, True, rehearsed["written"])
    after = image.read_bytes()
    assert after[: cards.OFFSET] + after[end:] == before[: cards.OFFSET] + before[end:]
    assert cards.fsck(image, size_bytes=end - cards.OFFSET).returncode == 0
    tree = cards.mtools_tree(image, tmp_path / "out")
    release = release_folder / "release-0.0.1"
    own_files = {"firstboot.sh", "edgemeter-firstboot.service", "join.toml", "release.pub", "status.txt"}
    expected = {path.relative_to(release).as_posix(): path.read_bytes() for path in release.rglob("*") if path.is_file()}
    assert {name: data for name, data in payload(tree).items() if name not in own_files} == expected
    assert set(payload(tree)) == set(expected) | own_files
    assert {name for name in tree if "/" not in name} == OUTSIDE.get(form, set(files))
    repeated = cards.prepare(image, *card_options)
    assert (repeated["written"], repeated["removed"]) == ([], [])
    assert image.read_bytes() == after


@cards.on_disk
def test_another_release_takes_the_place_of_the_old(tmp_path, release_folder, card_options):
    """What it does not have any more goes, what is the same stays, and nothing is lost of the file system."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    cards.prepare(image, *card_options)
    other = cards.release(tmp_path, release_folder / "release.key", "0.0.2")
    report = cards.prepare(image, "--release", small_release.tar(other), *card_options[2:])
    assert report["removed"] == ["edgemeter/wheels/edgemeter-0.0.1-py3-none-any.whl"]
    written = {file["path"] for file in report["written"]}
    assert "edgemeter/wheels/edgemeter-0.0.2-py3-none-any.whl" in written
    assert not [path for path in written if "pip-" in path]
    checked = cards.fsck(image, size_bytes=64 << 20)
    assert checked.returncode == 0, checked.stdout


def test_a_mounted_boot_partition_works_by_plain_files(tmp_path, card_options):
    """A card in a reader whose boot partition the desktop has mounted."""
    for name, text in TRIXIE.items():
        (tmp_path / name).write_text(text)
    report = cards.prepare(tmp_path, *card_options)
    assert report["format"] == "cloudinit"
    assert (tmp_path / "edgemeter/firstboot.sh").is_file()
    assert not list(tmp_path.rglob("*.new"))
    assert cards.prepare(tmp_path, *card_options)["written"] == []


@cards.on_disk
def test_a_stick_is_made_for_any_system_with_cloud_init(tmp_path, card_options):
    """CIDATA, no partition table; what starts us mounts the stick, for nothing else does."""
    stick = tmp_path / "stick.img"
    report = cards.prepare("--make-stick", stick, *card_options)
    assert report["format"] == "cidata"
    assert cards.fsck(stick, 0).returncode == 0
    assert "mount LABEL=CIDATA /run/edgemeter/seed" in cards.mtype(stick, "user-data", 0)
    assert "instance-id: edgemeter-" in cards.mtype(stick, "meta-data", 0)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stick.img"]
    # It can be prepared again like any card, and is recognised by its label.
    assert cards.prepare(stick, *card_options)["written"] == []
    assert "exists already" in cards.edgemeter("fleet", "card", "--make-stick", stick, *card_options).stderr
    small = cards.edgemeter("fleet", "card", "--make-stick", tmp_path / "small.img", "--size", "1M", *card_options)
    assert "--size" in small.stderr
    assert not list(tmp_path.glob(".edgemeter-stick*"))


@cards.on_disk
def test_secrets_are_never_printed(tmp_path, card_options):
    """Not the token, not the passphrase, not the key made of it, whatever is asked for."""
    image = cards.disk(tmp_path / "card.img", BOOKWORM)
    (tmp_path / "psk").write_text("correct horse battery\n")
    wifi = ["--wifi-ssid", "Garden", "--wifi-psk-file", tmp_path / "psk"]
    for options in ([], ["--dry-run"], ["--format", "json"], ["--first-boot", "preseed"]):
        result = cards.edgemeter("fleet", "card", image, *card_options, *wifi, *options)
        assert result.returncode == 0, result.stderr
        for secret in (cards.TOKEN, "correct horse", "psk_hex"):
            assert secret not in result.stdout + result.stderr


def refused(image: Path, card_options: list[str], text: str, *further_options: str | Path, status: int = 2):
    """Look that a card is refused in one line and keeps every byte."""
    before = image.read_bytes() if image.is_file() else None
    result = cards.edgemeter("fleet", "card", image, *card_options, *further_options)
    assert result.returncode == status, result.stderr
    errors = [line for line in result.stderr.splitlines() if line and not line.startswith((str(image), "release:"))]
    assert len(errors) == 1, result.stderr
    assert text in errors[0]
    assert (image.read_bytes() if image.is_file() else None) == before


@cards.on_disk
def test_garbage_is_refused(tmp_path, card_options):
    """Nothing, noise, a file of zeros, a compressed image, a disk without FAT, one that is cut short."""
    image = tmp_path / "card.img"
    refused(image, card_options, "No such file")
    for content in (b"", os.urandom(100_000), bytes(100_000), gzip.compress(bytes(1000))):
        image.write_bytes(content)
        refused(image, card_options, "neither a partition table nor a FAT")
    with image.open("wb") as file:
        file.truncate(32 << 20)
    cards.run("sfdisk", "-q", image, input="label: dos\nsize=8M,type=83\ntype=83\n")
    refused(image, card_options, "none of the 2 partitions")
    cut_short = cards.disk(tmp_path / "cut.img", TRIXIE)
    for size_bytes in (cards.OFFSET + (20 << 20), cards.OFFSET + 200, cards.OFFSET - 4096):
        os.truncate(cut_short, size_bytes)
        with table_row(size_bytes):
            refused(cut_short, card_options, "truncated")


@cards.on_disk
def test_a_release_that_was_changed_or_is_anothers_is_refused(tmp_path, release_folder, card_options):
    """One byte, or another fleet's key; the card is not touched."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    other = cards.release(tmp_path, release_folder / "release.key")
    wheel = next((other / "wheels").glob("edgemeter-*"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"!")
    refused(image, ["--release", str(other), *card_options[2:]], "is not what the manifest says")
    (tmp_path / "keys").mkdir()
    _, public = small_release.keys(tmp_path / "keys")
    refused(image, [*card_options[:4], "--public-key", str(public)], "is not signed by the key")


@cards.on_disk
def test_a_join_file_that_has_served_is_refused(tmp_path, join, card_options):
    """Its token was taken out after it had served; a message never repeats it."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    used = tmp_path / "used.toml"
    used.write_text("".join(line for line in join.read_text().splitlines(keepends=True) if not line.startswith("token")))
    refused(image, [*card_options[:2], "--join", str(used), *card_options[4:]], "make a new one (`edgemeter fleet token DEVICE`)")
    used.write_text(join.read_text().replace('broker = "', 'brocker = "'))
    refused(image, [*card_options[:2], "--join", str(used), *card_options[4:]], "brocker")


@cards.on_disk
def test_an_image_of_jetpack_is_refused_and_apply_named(tmp_path, card_options):
    """Its FAT partition is the firmware's, and nothing reads a seed in it; a partition that the user names is prepared all the same."""
    image, names = tmp_path / "jetpack.img", ("APP", "A_kernel", "A_kernel-dtb", "recovery", "esp", "UDA")
    with image.open("wb") as file:
        file.truncate(64 << 20)
    starts = {name: 2048 * (1 + index * 8) for index, name in enumerate(names)}
    layout = "".join(f"start={start},size=8192,name={name}\n" for name, start in starts.items())
    cards.run("sfdisk", "-q", image, input=f"label: gpt\n{layout}")
    cards.run("mkfs.vfat", "-F", "16", "-s", "1", "--offset", str(starts["esp"]), image, "4096")
    refused(image, card_options, "is an image of JetPack")
    refused(image, card_options, "then run `edgemeter fleet apply`", "--first-boot", "cidata")
    number = str(names.index("esp") + 1)
    process = cards.edgemeter("fleet", "card", image, *card_options, "--partition", number, "--first-boot", "cidata", "--dry-run")
    assert "JetPack" not in process.stderr


@cards.on_disk
def test_a_hybrid_mbr_is_read_as_the_gpt_that_it_belongs_to(tmp_path, card_options):
    """What many images for boards have: firmware reads the one, Linux the other."""
    image = cards.disk(tmp_path / "card.img", TRIXIE, table="gpt")
    data = bytearray(image.read_bytes())
    entry = bytes([0x80, 0, 0, 0, 0x0C, 0, 0, 0]) + struct.pack("<II", cards.OFFSET // 512, 64 << 11)
    data[446 + 16 : 446 + 32] = entry
    image.write_bytes(bytes(data))
    assert cards.prepare(image, *card_options)["format"] == "cloudinit"
    with disks.open_disk(image, "read") as opened:
        assert [partition.number for partition in disks.read_partitions(opened)] == [1, 2]
    with disks.open_disk(image, "write"):
        refused(image, card_options, "another process writes to", status=1)


@cards.on_disk
def test_a_compressed_image_is_taken_as_it_comes(tmp_path, card_options):
    """Unpacked beside it and prepared as the raw one is; again it is refused, and a rehearsal leaves nothing."""
    raw = cards.disk(tmp_path / "raw.img", TRIXIE, size_mb=40)
    packed = tmp_path / "os.img.xz"
    packed.write_bytes(lzma.compress(raw.read_bytes()))
    assert cards.prepare(packed, *card_options, "--dry-run")["dry_run"] is True
    assert not (tmp_path / "os.img").exists()
    report = cards.prepare(packed, *card_options)
    assert (report["target"], report["verified"]) == (str(tmp_path / "os.img"), True)
    cards.prepare(raw, *card_options)
    assert cards.mtools_tree(tmp_path / "os.img", tmp_path / "a") == cards.mtools_tree(raw, tmp_path / "b")
    repeated = cards.edgemeter("fleet", "card", packed, *card_options)
    assert "exists already: prepare that one, or delete it" in repeated.stderr
    assert not list(tmp_path.glob(".edgemeter-*"))
    packed.write_bytes(packed.read_bytes()[:-20])
    (tmp_path / "os.img").unlink()
    assert "is damaged" in cards.edgemeter("fleet", "card", packed, *card_options).stderr
    assert not (tmp_path / "os.img").exists()


@cards.on_disk
def test_a_folder_of_join_files_makes_an_image_for_each_board(tmp_path, release_folder, join):
    """Each with its own token and host name; an empty folder, and a card instead of an image, are one line each."""
    joins = tmp_path / "joins"
    joins.mkdir()
    image = cards.disk(tmp_path / "os.img", TRIXIE, size_mb=40)
    options = ["--release", release_folder / "release-0.0.1", "--public-key", release_folder / "release.pub", "--join", joins]
    assert "there is no *.join.toml" in cards.edgemeter("fleet", "card", image, *options).stderr
    for board in ("pi5-01", "pi5-02"):
        (joins / f"{board}.join.toml").write_text(join.read_text().replace('device = "pi5-01"', f'device = "{board}"'))
    before = image.read_bytes()
    assert "several boards cannot have one host name" in cards.edgemeter("fleet", "card", image, *options, "--hostname", "pi").stderr
    result = cards.edgemeter("fleet", "card", image, *options, "--hostname", "{device}")
    assert result.returncode == 0, result.stderr
    assert image.read_bytes() == before
    for board in ("pi5-01", "pi5-02"):
        assert f'device = "{board}"' in cards.mtype(tmp_path / f"os-{board}.img", "edgemeter/join.toml")
        assert f'hostname: "{board}"' in cards.mtype(tmp_path / f"os-{board}.img", "user-data")
    assert "give an image file" in cards.edgemeter("fleet", "card", joins, *options).stderr
