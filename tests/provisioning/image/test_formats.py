"""Facts about the formats of cards.

Each is recognised, exactly one is written, what people wrote stays, and doing it twice changes
nothing.
"""

import subprocess
from importlib import import_module
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.image import adapter_text, cloudinit, detect, firstrun
from edgemeter.provisioning.image.boot_partition import MountedFolder
from edgemeter.provisioning.image.wifi import Wifi, read_wifi
from tests import requirements
from tests.fixtures.rows import table_row

BOOKWORM = (
    "console=serial0,115200 console=tty1 root=PARTUUID=4e639091-02 rootwait quiet "
    "init=/usr/lib/raspberrypi-sys-mods/firstboot\n"
)
TRIXIE = (
    "console=serial0,115200 console=tty1 root=PARTUUID=4e639091-02 "
    "rootfstype=ext4 rootwait resize\n"
)
ISSUE = (
    "Raspberry Pi reference {}\nGenerated using pi-gen, https://github.com/RPi-Distro/pi-gen, "
    "0123456789, stage2\n"
)
WIFI = Wifi('Café "Öst"', "0123456789abcdef" * 4, "GB")


def boot(folder: Path, files: dict[str, str]) -> MountedFolder:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return MountedFolder(folder)


CLOUD_INIT = {
    "cmdline.txt": TRIXIE,
    "config.txt": "",
    "user-data": "#cloud-config\n",
    "meta-data": "",
    "network-config": "",
}
FIRSTRUN = {"cmdline.txt": BOOKWORM, "config.txt": "", "issue.txt": ISSUE.format("2025-05-13")}
LEFTOVER = {"cmdline.txt": TRIXIE, "firstrun.sh": "#!/bin/bash\n"}
CARDS = (
    ("cloudinit", "it has user-data", CLOUD_INIT),
    ("cloudinit", "2026-04-13", {**CLOUD_INIT, "issue.txt": ISSUE.format("2026-04-13")}),
    ("cloudinit", "2026-04-13", {**LEFTOVER, "issue.txt": ISSUE.format("2026-04-13")}),
    ("firstrun", "2025-05-13", FIRSTRUN),
    ("firstrun", "2025-05-13", {**FIRSTRUN, "user-data": "#cloud-config\n"}),
    ("firstrun", "firstboot", {"cmdline.txt": BOOKWORM}),
    # The first Trixie has neither Bookworm's kernel line nor cloud-init's files.
    ("firstrun", "2025-10-01", {"cmdline.txt": TRIXIE, "issue.txt": ISSUE.format("2025-10-01")}),
)


def test_a_card_shows_its_format(tmp_path):
    """A format is recognised by the date in issue.txt, then by its files.

    Files that an earlier tool left behind decide nothing.
    """
    for number, (form, why, files) in enumerate(CARDS):
        with table_row(form, why, *files):
            chosen_form, reason = detect.choose_format(boot(tmp_path / str(number), files))
            assert chosen_form == form
            assert why in reason


def test_a_card_that_shows_no_format_is_not_guessed_at(tmp_path):
    """A card is refused if no format is recognised, or if its system is too old."""
    with pytest.raises(
        ConfigError, match=r"cannot tell .*\(--first-boot\), or .*`edgemeter fleet apply`"
    ):
        detect.choose_format(boot(tmp_path / "unknown", LEFTOVER))
    with pytest.raises(ConfigError, match="Raspberry Pi OS of 2023-05-03, whose Python is too old"):
        detect.choose_format(boot(tmp_path / "old", {"issue.txt": ISSUE.format("2023-05-03")}))


def test_what_would_also_fire_is_reported(tmp_path):
    """A file that another tool left behind and would also run is kept and reported."""
    line = f"{TRIXIE.strip()} systemd.run=/boot/firstrun.sh\n"
    files = {**CLOUD_INIT, "firstrun.sh": "", "custom.toml": "", "cmdline.txt": line}
    warnings = " ".join(
        detect.misfits(boot(tmp_path / "boot", files), "cloudinit", "aarch64", "3.13")
    )
    assert all(name in warnings for name in ("custom.toml", "firstrun.sh", "systemd.run="))
    assert "user-data" not in warnings


def changed(card: MountedFolder, files: dict[str, str]) -> dict[str, str]:
    """Write the files of an adapter, and return the texts of all files of the root folder."""
    for name, text in files.items():
        (card.path / name).parent.mkdir(exist_ok=True)
        (card.path / name).write_text(text)
    return {path.name: path.read_text() for path in card.path.iterdir() if path.is_file()}


IMAGERS = """#cloud-config
hostname: old
users:
- name: ada
  groups: users,sudo
  passwd: "$5$abc"
user:
  name: pi
  sudo: null

ssh_pwauth: false
bootcmd:
- [ls]
runcmd:
  - [ systemctl, enable, --now, ssh ]
"""


USER_DATA = (
    "",
    "#cloud-config\n# only comments\n#bootcmd:\n",
    IMAGERS,
    "#cloud-config\r\nlocale: C.UTF-8\r\n",
)


@pytest.mark.needs("cloud-init")
def test_user_data_satisfies_cloud_init(tmp_path):
    """Cloud-init finds no fault in our user-data.

    The file before was empty, commented, or written by rpi-imager, or had Windows' line ends.
    """
    program = requirements.program("cloud-init")
    for text in USER_DATA:
        (tmp_path / "user-data").write_text(cloudinit.user_data(text, "user-data"))
        command = ["/usr/bin/python3", program, "schema", "-c", str(tmp_path / "user-data")]
        completed = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=600
        )
        assert completed.returncode == 0, (text, completed.stdout, completed.stderr)


def test_user_data_is_the_same_the_second_time():
    """A second call replaces our part of user-data and keeps what people wrote.

    Our command comes before theirs.
    """
    for text in USER_DATA:
        with table_row(text):
            prepared_text = cloudinit.user_data(text, "user-data")
            assert cloudinit.user_data(prepared_text, "user-data") == prepared_text
            assert [
                line for line in prepared_text.splitlines() if line in text.splitlines()
            ] == text.splitlines() or not text
            assert prepared_text.count("firstboot.sh install") == 1
    text = cloudinit.user_data(IMAGERS, "user-data")
    assert text.index("firstboot.sh install") < text.index("- [ls]")


def test_user_data_that_is_no_cloud_config_is_refused():
    """A script or a multipart is refused, because it cannot be extended and is not thrown away."""
    with pytest.raises(ConfigError, match="not a cloud-config"):
        cloudinit.user_data("#!/bin/sh\nreboot\n", "user-data")
    with pytest.raises(ConfigError, match="one item a line"):
        cloudinit.user_data("#cloud-config\nbootcmd: [[ls]]\n", "user-data")


def test_cloud_init_gets_a_new_instance_and_a_line_that_declares_it(tmp_path):
    """Cloud-init gets a new instance id, and the kernel's line declares the source.

    With an unchanged id it does nothing, and without the kernel's word every boot looks for a
    source anew. Without Wi-Fi the network stays.
    """
    card = boot(
        tmp_path / "boot",
        {**CLOUD_INIT, "meta-data": "# keep\ndsmode: local\ninstance_id: rpios-image\n"},
    )
    for instance in ("edgemeter-1", "edgemeter-2"):
        files = changed(card, cloudinit.adapter_files(card, None, instance))
        assert files["meta-data"] == f"# keep\ndsmode: local\ninstance-id: {instance}\n"
        assert files["cmdline.txt"] == f"{TRIXIE.strip()} ds=nocloud;i={instance}\n"
    assert files["network-config"] == ""
    assert set(files) == set(CLOUD_INIT)


def test_what_starts_us_is_written_last(tmp_path):
    """The file that starts us is written last, so that a card pulled too early starts nothing."""
    for name, files, last in (("a", CLOUD_INIT, "user-data"), ("b", FIRSTRUN, "cmdline.txt")):
        card = boot(tmp_path / name, files)
        adapter = (
            cloudinit.adapter_files(card, WIFI, "i")
            if name == "a"
            else firstrun.adapter_files(card, WIFI)
        )
        assert list(adapter)[-1] == last


def test_the_wifi_key_is_that_of_the_standard(tmp_path):
    """The Wi-Fi key equals test vector 1 of the standard.

    Source: IEEE 802.11-2020, J.4.2.
    """
    (tmp_path / "psk").write_text("password\n")
    key = "f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e"
    assert read_wifi("IEEE", tmp_path / "psk", None).psk_hex == key
    (tmp_path / "psk").write_text(key.upper())
    assert read_wifi("IEEE", tmp_path / "psk", None).psk_hex == key


@pytest.mark.needs(module="yaml")
def test_a_network_config_is_what_netplan_reads():
    """Netplan reads names with quotation marks and beyond ASCII, and an open network has no key."""
    yaml = import_module("yaml")
    read = yaml.safe_load(cloudinit.network(WIFI))
    assert read["wifis"]["wlan0"]["access-points"] == {'Café "Öst"': {"password": WIFI.psk_hex}}
    assert read["wifis"]["wlan0"]["regulatory-domain"] == "GB"
    opened = yaml.safe_load(cloudinit.network(Wifi("Open", None, None)))
    assert opened["wifis"]["wlan0"]["access-points"] == {"Open": {}}


IMAGERS_SCRIPT = (
    "#!/bin/bash\n\nset +e\n\necho theirs\nrm -f /boot/firstrun.sh\nsed -i 's| systemd.run.*||g' "
    "/boot/cmdline.txt\nexit 0\n"
)


def test_firstrun_runs_once_and_its_line_stays_one(tmp_path):
    """The script firstrun.sh runs once, and the kernel's line stays one line when edited again.

    A script of rpi-imager keeps its part.
    """
    card = boot(tmp_path / "boot", FIRSTRUN)
    once = changed(card, firstrun.adapter_files(card, WIFI))
    assert changed(card, firstrun.adapter_files(card, WIFI)) == once
    assert once["cmdline.txt"] == f"{BOOKWORM.strip()} {' '.join(firstrun.WORDS)}\n"
    assert WIFI.psk_hex not in once["firstrun.sh"]
    assert WIFI.psk_hex in (tmp_path / "boot/edgemeter/wifi.nmconnection").read_text()
    script = firstrun.script(IMAGERS_SCRIPT, WIFI)
    assert script.startswith("#!/bin/bash\n# edgemeter: begin\n")
    assert adapter_text.without_ours(script) == IMAGERS_SCRIPT.splitlines()
    assert firstrun.script(script, WIFI) == script


def test_firstrun_survives_what_raspberry_pi_os_does_to_it():
    """No line of firstrun.sh looks like the end that Raspberry Pi OS removes.

    Its initramfs drops all from the first `rm ... firstrun.sh` on and writes its own end.
    """
    part = firstrun.script("", WIFI).split(adapter_text.END)[0]
    assert not [line for line in part.splitlines() if line.endswith("firstrun.sh") and "rm" in line]


@pytest.mark.needs("bash", "sh")
def test_what_starts_us_is_plain_sh_and_needs_no_escapes():
    """The command that starts us is plain sh and stands within a YAML string without escapes.

    It runs under any /bin/sh; firstrun.sh is a script of bash.
    """
    subprocess.run(["sh", "-n", "-c", adapter_text.START], check=True)
    assert not set(adapter_text.START) & set("\"'[],#\\")
    subprocess.run(["bash", "-n", "-c", firstrun.script("", WIFI)], check=True)


def test_a_network_that_cannot_be_is_refused(tmp_path):
    """An impossible network is refused before it is on a card; its passphrase is not repeated."""
    passphrase = tmp_path / "psk"
    for ssid, phrase, country, text in (
        ("a" * 33, "correct horse", None, "network name"),
        ("a\nb", "correct horse", None, "network name"),
        ("a", "short", None, "WPA passphrase"),
        ("a", "correct horse", "gb", "country code"),
    ):
        with table_row(text):
            passphrase.write_text(phrase)
            with pytest.raises(ConfigError, match=text) as raised:
                read_wifi(ssid, passphrase, country)
            assert phrase not in str(raised.value)


def test_a_release_that_does_not_fit_the_system_warns(tmp_path):
    """A release that does not fit the card's system, by its kernels and date, gives a warning.

    A release that fits gives none, nor does a system that shows neither.
    """
    for number, (files, form, why) in enumerate(
        (
            ({"kernel7.img": "", "kernel8.img": ""}, "cloudinit", "as one of 32 bits"),
            (
                {"kernel8.img": "", "issue.txt": ISSUE.format("2024-11-19")},
                "firstrun",
                "of 2024-11-19 has 3.11",
            ),
            (
                {"kernel8.img": "", "issue.txt": ISSUE.format("2025-10-01")},
                "firstrun",
                "of 2025-10-01 has 3.13",
            ),
            (
                {"kernel8.img": "", "issue.txt": ISSUE.format("2026-04-13")},
                "cloudinit",
                "of 2026-04-13 has 3.13",
            ),
        )
    ):
        card = boot(tmp_path / str(number), files)
        with table_row(files):
            assert any(why in warning for warning in detect.misfits(card, form, "aarch64", "3.10"))
            assert [
                warning
                for warning in detect.misfits(card, form, "aarch64", why[-4:])
                if "Python" in warning
            ] == []
    assert detect.misfits(boot(tmp_path / "bare", CLOUD_INIT), "cloudinit", "aarch64", "3.10") == []
