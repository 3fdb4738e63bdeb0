"""Facts about the formats: each is recognised, exactly one is written, what people wrote stays, and doing it twice changes nothing."""

import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.image import adapter_text, cloudinit, detect, firstrun, preseed, settings
from edgemeter.provisioning.image.boot_partition import MountedFolder
from edgemeter.provisioning.image.settings import FirstBootSettings
from tests import requirements
from tests.fixtures.rows import table_row
from tests.provisioning.image import cards

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

BOOKWORM = "console=serial0,115200 console=tty1 root=PARTUUID=4e639091-02 rootwait quiet init=/usr/lib/raspberrypi-sys-mods/firstboot\n"
TRIXIE = "console=serial0,115200 console=tty1 root=PARTUUID=4e639091-02 rootfstype=ext4 rootwait resize\n"
ISSUE = "Raspberry Pi reference {}\nGenerated using pi-gen, https://github.com/RPi-Distro/pi-gen, 0123456789, stage2\n"
WIFI = settings.checked_wifi('Café "Öst"', "correct horse battery", "GB", "here")
ALL = FirstBootSettings(user="ada", ssh_keys=(cards.KEY,), wifi=WIFI, hostname="pi5-01")


def boot(folder: Path, files: dict[str, str]) -> MountedFolder:
    """Return a boot partition with these files."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return MountedFolder(folder)


RECOGNISED = {
    "cloudinit": {"cmdline.txt": TRIXIE, "config.txt": "", "user-data": "#cloud-config\n", "meta-data": "", "network-config": ""},
    "firstrun": {"cmdline.txt": BOOKWORM, "config.txt": "", "issue.txt": ISSUE.format("2025-05-13")},
    "preseed": {"cmdline.txt": TRIXIE, "config.txt": "", "rpi-preseed.toml": "# settings\n"},
}


def test_a_card_shows_its_format(tmp_path):
    """By what is on its boot partition; --format overrules it."""
    for form, files in RECOGNISED.items():
        with table_row(form):
            card = boot(tmp_path / form, files)
            assert detect.choose_format(card, None).form == form
            assert detect.choose_format(card, "cidata").form == "cidata"


def test_the_first_trixie_is_recognised_by_its_date(tmp_path):
    """It has neither Bookworm's kernel line nor cloud-init's files; a later one without them is not guessed at."""
    card = boot(tmp_path / "boot", {"cmdline.txt": TRIXIE, "issue.txt": ISSUE.format("2025-10-01")})
    assert detect.choose_format(card, None).form == "firstrun"
    boot(tmp_path / "boot", {"issue.txt": ISSUE.format("2025-12-04")})
    with pytest.raises(ConfigError, match=r"cannot tell .*\(--first-boot cloudinit, preseed, firstrun, cidata\)"):
        detect.choose_format(card, None)
    both = boot(tmp_path / "both", {**RECOGNISED["cloudinit"], "rpi-preseed.toml": ""})
    with pytest.raises(ConfigError, match=r"could be preseed .* and cloudinit .*\(--first-boot"):
        detect.choose_format(both, None)


def test_what_would_also_fire_is_reported(tmp_path):
    """Left over from another tool: it stays, and is named."""
    files = {
        **RECOGNISED["cloudinit"],
        "firstrun.sh": "",
        "custom.toml": "",
        "cmdline.txt": f"{TRIXIE.strip()} systemd.run=/boot/firstrun.sh\n",
    }
    warnings = " ".join(detect.also_firing(boot(tmp_path / "boot", files), "cloudinit"))
    assert all(name in warnings for name in ("custom.toml", "firstrun.sh", "systemd.run="))
    assert "user-data" not in warnings


def changed(card: MountedFolder, changes) -> dict[str, str]:
    """Return the texts of files after these changes, which are carried out."""
    card.apply(changes, lambda _: None)
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
    ("", FirstBootSettings()),
    ("#cloud-config\n# only comments\n#bootcmd:\n", ALL),
    (IMAGERS, ALL),
    ("#cloud-config\r\nlocale: C.UTF-8\r\n", FirstBootSettings(ssh_keys=(cards.KEY,))),
)


@pytest.mark.needs("cloud-init")
def test_user_data_satisfies_cloud_init(tmp_path):
    """Empty, commented, written by rpi-imager, with Windows' line ends: cloud-init finds no fault."""
    program = requirements.program("cloud-init")
    for text, first_boot in USER_DATA:
        (tmp_path / "user-data").write_text(cloudinit.user_data(text, first_boot, adapter_text.FROM_BOOT, "user-data"))
        command = ["/usr/bin/python3", program, "schema", "-c", str(tmp_path / "user-data")]
        completed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
        assert completed.returncode == 0, (text, completed.stdout, completed.stderr)


def test_user_data_is_the_same_the_second_time():
    """Our part takes the place of our part."""
    for text, first_boot in USER_DATA:
        with table_row(text):
            prepared_text = cloudinit.user_data(text, first_boot, adapter_text.FROM_BOOT, "user-data")
            assert cloudinit.user_data(prepared_text, first_boot, adapter_text.FROM_BOOT, "user-data") == prepared_text


def test_what_people_wrote_into_user_data_stays():
    """Accounts, commands, locale; only what the options say is replaced, and our command comes first."""
    text = cloudinit.user_data(IMAGERS, ALL, adapter_text.FROM_BOOT, "user-data")
    assert 'passwd: "$5$abc"' in text
    assert "ssh_pwauth: false" in text
    assert "- [ls]" in text
    assert "hostname: old" not in text
    assert "name: pi" not in text
    assert text.index("firstboot.sh install") < text.index("- [ls]")


def test_user_data_that_is_no_cloud_config_is_refused():
    """A script or a multipart cannot be added to; nobody's script is thrown away."""
    with pytest.raises(ConfigError, match="not a cloud-config"):
        cloudinit.user_data("#!/bin/sh\nreboot\n", FirstBootSettings(), adapter_text.FROM_BOOT, "user-data")
    with pytest.raises(ConfigError, match="one item a line"):
        cloudinit.user_data("#cloud-config\nbootcmd: [[ls]]\n", FirstBootSettings(), adapter_text.FROM_BOOT, "user-data")


def test_cloud_init_gets_a_new_instance_and_a_line_that_declares_it(tmp_path):
    """An unchanged id does nothing, and without the kernel's word every boot looks for a source anew."""
    card = boot(tmp_path / "boot", {**RECOGNISED["cloudinit"], "meta-data": "# keep\ndsmode: local\ninstance_id: rpios-image\n"})
    for instance in ("edgemeter-1", "edgemeter-2"):
        files = changed(card, cloudinit.changes(card, ALL, instance))
        assert files["meta-data"] == f"# keep\ndsmode: local\ninstance-id: {instance}\n"
        assert files["cmdline.txt"] == f"{TRIXIE.strip()} ds=nocloud;i={instance}\n"
    assert set(files) == set(RECOGNISED["cloudinit"])


def test_the_wifi_key_is_that_of_the_standard():
    """Source: IEEE 802.11-2020, J.4.2, test vector 1."""
    assert settings.checked_wifi("IEEE", "password", None, "").psk_hex == "f42c6fc52df0ebef9ebb4b90b38a5f902e83fe1b135a70e23aed762e9710a12e"


@pytest.mark.needs(module="yaml")
def test_a_network_config_is_what_netplan_reads():
    """A name with quotation marks and letters beyond ASCII; the passphrase itself is not in it."""
    yaml = import_module("yaml")
    read = yaml.safe_load(cloudinit.network(WIFI))
    assert read["wifis"]["wlan0"]["access-points"] == {'Café "Öst"': {"password": WIFI.psk_hex}}
    assert read["wifis"]["wlan0"]["regulatory-domain"] == "GB"
    opened = yaml.safe_load(cloudinit.network(settings.checked_wifi("Open", None, None, "")))
    assert opened["wifis"]["wlan0"]["access-points"] == {"Open": {}}


def test_preseed_is_toml_that_starts_us_early_and_late(tmp_path):
    """What people wrote stays but where the options say otherwise; twice is once."""
    users_text = 'config_version = "1.1"\n\n[locale]\nkeymap = "gb"\n\n[wlan]\nssid = "old"\n'
    card = boot(tmp_path / "boot", {**RECOGNISED["preseed"], "rpi-preseed.toml": users_text})
    once = changed(card, preseed.changes(card, ALL))
    assert changed(card, preseed.changes(card, ALL)) == once
    assert once["cmdline.txt"] == TRIXIE
    read = tomllib.loads(once["rpi-preseed.toml"])
    assert read["runcmd"] == {"early": [adapter_text.FROM_BOOT], "late": [adapter_text.FROM_BOOT]}
    assert read["locale"] == {"keymap": "gb"}
    assert read["wlan"] == {"ssid": 'Café "Öst"', "password": WIFI.psk_hex, "password_encrypted": True, "country": "GB"}
    assert read["user"]["name"] == "ada"
    assert read["ssh"]["authorized_keys"] == [cards.KEY]
    with pytest.raises(ConfigError, match=r"section \[runcmd\]"):
        preseed.preseed('[runcmd]\nlate = ["ls"]\n', FirstBootSettings(), "rpi-preseed.toml")


def test_firstrun_runs_once_and_its_line_stays_one(tmp_path):
    """The kernel's line is one line however often it is edited; a script of rpi-imager keeps its part."""
    card = boot(tmp_path / "boot", RECOGNISED["firstrun"])
    once = changed(card, firstrun.changes(card, ALL))
    assert changed(card, firstrun.changes(card, ALL)) == once
    assert once["cmdline.txt"] == f"{BOOKWORM.strip()} {' '.join(firstrun.WORDS)}\n"
    assert WIFI.psk_hex not in once["firstrun.sh"]
    assert WIFI.psk_hex in (tmp_path / "boot/edgemeter/wifi.nmconnection").read_text()
    imagers = "#!/bin/bash\n\nset +e\n\necho theirs\nrm -f /boot/firstrun.sh\nsed -i 's| systemd.run.*||g' /boot/cmdline.txt\nexit 0\n"
    script = firstrun.script(imagers, ALL)
    assert script.startswith("#!/bin/bash\n# edgemeter: begin\n")
    assert adapter_text.without_ours(script) == imagers
    assert firstrun.script(script, ALL) == script


def test_firstrun_survives_what_raspberry_pi_os_does_to_it():
    """Its initramfs drops all from the first `rm ... firstrun.sh` on and writes its own end: none of our lines may look like it."""
    part = firstrun.script("", ALL).split(adapter_text.END)[0]
    assert not [line for line in part.splitlines() if line.endswith("firstrun.sh") and "rm" in line]


@pytest.mark.needs("bash", "sh")
def test_what_starts_us_is_plain_sh_and_needs_no_escapes():
    """It stands within strings of YAML and TOML, and runs under whatever /bin/sh is; firstrun.sh is a script of bash."""
    for start in (adapter_text.FROM_BOOT, adapter_text.FROM_STICK):
        subprocess.run(["sh", "-n", "-c", start], check=True)
        assert not set(start) & set("\"'[],#\\")
    subprocess.run(["bash", "-n", "-c", firstrun.script("", ALL)], check=True)


def test_settings_that_cannot_be_are_refused():
    """Before they stand on a card that then does not boot as it should; a passphrase is not repeated."""
    for make, text in (
        (lambda: settings.checked_user("root"), "account name"),
        (lambda: settings.checked_hostname("pi_5"), "host name"),
        (lambda: settings.checked_wifi("a" * 33, None, None, "x"), "network name"),
        (lambda: settings.checked_wifi("a\nb", None, None, "x"), "network name"),
        (lambda: settings.checked_wifi("a", "short", None, "x"), "WPA passphrase"),
        (lambda: settings.checked_wifi("a", "correct horse", "gb", "x"), "country code"),
    ):
        with table_row(text):
            with pytest.raises(ConfigError, match=text) as raised:
                make()
            assert "short" not in str(raised.value)


def test_a_release_that_does_not_fit_the_system_warns(tmp_path):
    """By its kernels and the date of its release; one that fits, or a system that shows neither, is silent."""
    for number, (files, why) in enumerate(
        (
            ({"kernel7.img": "", "kernel8.img": ""}, "as one of 32 bits"),
            ({"kernel8.img": "", "issue.txt": ISSUE.format("2024-11-19")}, "Raspberry Pi OS Bookworm has 3.11"),
            ({"kernel8.img": "", "issue.txt": ISSUE.format("2026-04-13")}, "Raspberry Pi OS Trixie has 3.13"),
        )
    ):
        card = boot(tmp_path / str(number), files)
        with table_row(files):
            assert any(why in warning for warning in detect.misfits(card, "aarch64", "3.10"))
            assert [warning for warning in detect.misfits(card, "aarch64", why[-4:]) if "Python" in warning] == []
    assert detect.misfits(boot(tmp_path / "bare", RECOGNISED["cloudinit"]), "aarch64", "3.10") == []


def test_a_private_key_stays_where_it_is(tmp_path):
    """Given by mistake it does not get onto a card."""
    (tmp_path / "id").write_text("-----BEGIN OPENSSH PRIVATE KEY-----\nabc\n")
    with pytest.raises(ConfigError, match=r"private key.*id\.pub"):
        settings.ssh_keys(tmp_path / "id")
    (tmp_path / "id.pub").write_text(f"# mine\n{cards.KEY}\n")
    assert settings.ssh_keys(tmp_path / "id.pub") == (cards.KEY,)
    (tmp_path / "id.pub").write_text(f'{cards.KEY} "; rm -rf /\n')
    with pytest.raises(ConfigError, match="no public SSH keys"):
        settings.ssh_keys(tmp_path / "id.pub")
