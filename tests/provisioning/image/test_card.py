"""Facts about `edgemeter fleet card`.

Tests check what it puts onto images and folders, and what it refuses without touching anything.
"""

import gzip
import os
from pathlib import Path

import pytest

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
BOOKWORM = {
    "cmdline.txt": "console=tty1 rootwait quiet init=/usr/lib/raspberrypi-sys-mods/firstboot\n",
    "config.txt": "",
}
# How the disk is made (MBR, GPT, FAT16, FAT32, a bare stick), and what is written.
CARDS = {
    "cloudinit": (TRIXIE, {"table": "gpt"}, {"user-data", "meta-data", "cmdline.txt"}),
    "firstrun": (BOOKWORM, {"bits": 16, "size_mb": 31}, {"firstrun.sh", "cmdline.txt"}),
    "cloudinit, on a stick": ({}, {"table": ""}, {"user-data", "meta-data"}),
}


@cards.on_disk
def test_a_card_is_prepared_for_what_it_is(tmp_path, fleet):
    """A card gets the release and our files, and all else of the image keeps every byte.

    A second call changes no file.
    """
    release = (fleet / "release-0.0.1.tar").read_bytes()
    programs = {"firstboot.sh", "on_device.py", "install.py", "edgemeter-firstboot.service"}
    for name, (files, geometry, written) in CARDS.items():
        with table_row(name):
            image = cards.disk(tmp_path / "card.img", files, **geometry)
            offset = cards.OFFSET if geometry.get("table", "dos") else 0
            end = offset + (geometry.get("size_mb", 64) << 20)
            before = image.read_bytes()
            report = cards.prepare(fleet, image)
            assert (report["first_boot"], set(report["first_boot_files"])) == (
                name.split(",")[0],
                written,
            )
            after = image.read_bytes()
            assert after[:offset] + after[end:] == before[:offset] + before[end:]
            assert cards.fsck(image, offset, size_bytes=end - offset).returncode == 0
            tree = cards.mtools_tree(image, tmp_path / name, offset)
            payload = {
                path.removeprefix("edgemeter/"): data
                for path, data in tree.items()
                if path.startswith("edgemeter/")
            }
            assert set(payload) == {
                *programs,
                "release.tar",
                "join.toml",
                "release.pub",
                "status.txt",
            }
            assert payload["release.tar"] == release
            assert {path for path in tree if "/" not in path} == set(files) | written
            cards.prepare(fleet, image)
            assert cards.mtools_tree(image, tmp_path / f"{name}, twice", offset) == tree


@cards.on_disk
def test_another_release_takes_the_place_of_the_old(tmp_path, fleet):
    """Another release replaces the old one, and no block of the file system is lost."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    cards.prepare(fleet, image)
    cards.run(
        "mcopy",
        "-i",
        f"{image}@@{cards.OFFSET}",
        image.with_suffix(".source"),
        "::edgemeter/left-over",
    )
    other = cards.release(tmp_path, fleet / "release.key", "0.0.2")
    assert cards.prepare(fleet, image, "--release", other)["release"] == "0.0.2"
    tree = cards.mtools_tree(image, tmp_path / "out")
    assert "edgemeter/left-over" not in tree
    assert tree["edgemeter/release.tar"] == other.read_bytes()
    checked = cards.fsck(image, size_bytes=64 << 20)
    assert checked.returncode == 0, checked.stdout


def test_a_mounted_boot_partition_works_by_plain_files(tmp_path, fleet):
    """A mounted boot partition gets plain files.

    It is that of a card in a reader, which the desktop has mounted; an empty stick is recognised by
    its name there.
    """
    for name, text in TRIXIE.items():
        (tmp_path / name).write_text(text)
    assert cards.prepare(fleet, tmp_path)["first_boot"] == "cloudinit"
    assert (tmp_path / "edgemeter/firstboot.sh").is_file()
    stick = tmp_path / "CIDATA"
    stick.mkdir()
    assert cards.prepare(fleet, stick)["why"] == "its label is CIDATA"
    assert "eject the card" in cards.card(fleet, stick).stdout


@cards.on_disk
def test_a_prepared_image_names_the_commands_that_write_it(tmp_path, fleet):
    """The command prints both ways to write the prepared image, with the image's name."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    printed = cards.card(fleet, image).stdout
    assert f"sudo dd if={image} of=/dev/sdX bs=4M conv=fsync" in printed
    assert 'by Raspberry Pi Imager: "Use custom", card.img' in printed


@cards.on_disk
def test_secrets_are_never_printed(tmp_path, fleet):
    """No output shows the token, the passphrase or the key made of it."""
    image = cards.disk(tmp_path / "card.img", BOOKWORM)
    (tmp_path / "psk").write_text("correct horse battery\n")
    wifi = ["--wifi-ssid", "Garden", "--wifi-psk-file", tmp_path / "psk"]
    token = cards.token((fleet / "pi5-01.join.toml").read_text())
    for options in ([], ["--format", "json"], ["--first-boot", "cloudinit"]):
        result = cards.card(fleet, image, *wifi, *options)
        assert result.returncode == 0, result.stderr
        for secret in (token, "correct horse", "psk_hex"):
            assert secret not in result.stdout + result.stderr


def refused(fleet: Path, image: Path, text: str, *further_options: str | Path, status: int = 2):
    """Look that a card is refused in one line and keeps every byte."""
    before = image.read_bytes() if image.is_file() else None
    result = cards.card(fleet, image, *further_options)
    assert result.returncode == status, result.stderr
    errors = [line for line in result.stderr.splitlines() if line]
    assert len(errors) == 1, result.stderr
    assert text in errors[0]
    assert (image.read_bytes() if image.is_file() else None) == before


@cards.on_disk
def test_garbage_is_refused(tmp_path, fleet):
    """Targets that are no card are refused.

    They are nothing, noise, a file of zeros, a compressed image, and a disk without FAT, cut short
    or without room.
    """
    image = tmp_path / "card.img"
    refused(fleet, image, "there is no image")
    for content in (b"", os.urandom(100_000), bytes(100_000), gzip.compress(bytes(1000))):
        image.write_bytes(content)
        refused(fleet, image, "neither a partition table nor a FAT")
    with image.open("wb") as file:
        file.truncate(32 << 20)
    cards.run("sfdisk", "-q", image, input="label: dos\nsize=8M,type=83\ntype=83\n")
    refused(fleet, image, "none of the 2 partitions")
    cut_short = cards.disk(tmp_path / "cut.img", TRIXIE)
    os.truncate(cut_short, cards.OFFSET + (20 << 20))
    refused(fleet, cut_short, "truncated")
    full = cards.disk(tmp_path / "full.img", TRIXIE, bits=16, size_mb=5)
    refused(fleet, full, "MB more are needed", status=1)


def test_a_missing_program_is_named_with_its_package(tmp_path, fleet, monkeypatch):
    """An image needs mtools, whose package is named if it is missing.

    A mounted folder needs none.
    """
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "card.img").write_bytes(bytes(1000))
    refused(
        fleet, tmp_path / "card.img", "mcopy is not installed: `sudo apt install mtools`", status=1
    )


@cards.on_disk
def test_a_release_that_was_changed_or_is_anothers_is_refused(tmp_path, fleet):
    """A release with one changed byte or another fleet's key is refused, and the card untouched."""
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    folder = small_release.unpacked(fleet / "release-0.0.1.tar", tmp_path / "changed")
    wheel = next((folder / "wheels").glob("edgemeter-*"))
    wheel.write_bytes(wheel.read_bytes()[:-1] + b"!")
    refused(fleet, image, "differs from the manifest", "--release", small_release.pack(folder))
    (tmp_path / "keys").mkdir()
    key, _ = small_release.keys(tmp_path / "keys")
    refused(
        fleet, image, "is not signed by the key", "--release", cards.release(tmp_path / "keys", key)
    )


@cards.on_disk
def test_a_join_file_that_has_served_is_refused(tmp_path, fleet):
    """A join file without its token, which was taken out after use, is refused.

    The message never repeats a token.
    """
    image = cards.disk(tmp_path / "card.img", TRIXIE)
    text, used = (fleet / "pi5-01.join.toml").read_text(), tmp_path / "used.toml"
    used.write_text(
        "".join(line for line in text.splitlines(keepends=True) if not line.startswith("token"))
    )
    refused(fleet, image, "make a new one (`edgemeter fleet token DEVICE`)", "--join", used)
    used.write_text(text.replace('broker = "', 'brocker = "'))
    refused(fleet, image, "brocker", "--join", used)


@cards.on_disk
def test_an_image_of_jetpack_is_refused_and_apply_named(tmp_path, fleet):
    """An image of JetPack is refused with a hint at `apply`, as nothing on it reads a seed.

    Its FAT partition is the firmware's.
    """
    image, names = (
        tmp_path / "jetpack.img",
        ("APP", "A_kernel", "A_kernel-dtb", "recovery", "esp", "UDA"),
    )
    with image.open("wb") as file:
        file.truncate(64 << 20)
    starts = {name: 2048 * (1 + index * 8) for index, name in enumerate(names)}
    layout = "".join(f"start={start},size=8192,name={name}\n" for name, start in starts.items())
    cards.run("sfdisk", "-q", image, input=f"label: gpt\n{layout}")
    cards.run("mkfs.vfat", "-F", "16", "-s", "1", "--offset", str(starts["esp"]), image, "4096")
    refused(fleet, image, "`edgemeter fleet apply`, over SSH", "--first-boot", "cloudinit")


@cards.on_disk
def test_the_partition_that_boots_is_chosen(tmp_path, fleet):
    """Of two FAT partitions the one with a system's boot files is used.

    With boot files in neither, none is guessed.
    """
    for name, files in (("booting", TRIXIE), ("empty", {})):
        image = cards.disk(tmp_path / f"{name}.img", files)
        cards.run("sfdisk", "-q", "--append", image, input="start=10240,size=6144,type=c\n")
        cards.run("mkfs.vfat", "-F", "16", "-s", "1", "--offset", "10240", image, "3072")
    assert cards.prepare(fleet, tmp_path / "booting.img")["first_boot"] == "cloudinit"
    refused(fleet, tmp_path / "empty.img", "several FAT partitions")
