"""What `look.sh` says of a device, and which release fits it."""

import pytest

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.provisioning.apply import board, offer
from edgemeter.provisioning.apply.board import Interpreter
from edgemeter.provisioning.apply.offer import Offer
from edgemeter.provisioning.release.install import Manifest
from tests.fixtures.rows import table_row

PI = """arch=aarch64
bits=64
libc=glibc 2.41
os=Debian GNU/Linux 13 (trixie)
os_id=debian
model=Raspberry Pi 5 Model B Rev 1.0
python=3.13 /usr/bin/python3
openssl=/usr/bin/openssl
rights=password
systemd=yes
home=/home/pi
room=24000000 /
home_room=24000000 /
release=releases/0.2.0
manifest=
end=yes
"""


def changed(**values):
    """Return what the Pi would say with other values; None: it says nothing of that."""
    lines = [line for line in PI.splitlines() if line.split("=", 1)[0] not in values]
    return "\n".join([*(f"{key}={value}" for key, value in values.items() if value is not None), *lines])


def read(**values):
    """Return what is found then."""
    return board.parse_inspection(changed(**values), "unreadable")


def a_release(folder, arch="aarch64", python="3.13", glibc="2.27"):
    """Return a release for such a device."""
    return Offer(folder, Manifest("1.0.0", "any", arch, python, glibc, (), 0), "0" * 64)


def test_a_raspberry_pi_is_read():
    """Every line of its answer: machine, board, libc, Pythons, rights, service manager and installed release."""
    pi = read()
    assert pi.arch == "aarch64"
    assert pi.board == "Raspberry Pi 5 Model B Rev 1.0"
    assert pi.glibc == (2, 41)
    assert pi.pythons == (Interpreter("3.13", "/usr/bin/python3"),)
    assert pi.rights == "password"
    assert pi.has_systemd is True
    assert (pi.release, pi.manifest_sha256) == ("0.2.0", None)
    assert pi.free_bytes == 24_000_000 * 1024
    # Raspberry Pi OS starts the 64-bit kernel under a 32-bit system; a board's name is anybody's text.
    assert read(bits="32").arch == "armv7l"
    assert read(model="Pi\x1b[2J\x07 5").board == "Pi[2J 5"


def test_systems_are_called_by_their_names():
    """Each maker's own file gives the name and the version."""
    for values, system in (
        ({"tegra": "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic, EABI: aarch64"}, "JetPack 6 (L4T 36.4.3, "),
        ({"tegra": "# R32 (release), REVISION: 7.1, GCID: 29818004, BOARD: t210ref"}, "JetPack 4 (L4T 32.7.1, "),
        ({"tegra": "# R35 (release), REVISION: 4.1"}, "JetPack 5 (L4T 35.4.1, "),
        ({"tegra": "# R99 (release), REVISION: 1.0"}, "Jetson ("),
        ({"tegra": ""}, "Debian"),
        ({"mendel": "5.3", "os": "Mendel GNU/Linux 5 (Eagle)"}, "Mendel 5.3"),
        ({"armbian": "25.8 Orange Pi 5", "os": "Armbian 25.8 bookworm"}, "Armbian 25.8 Orange Pi 5 ("),
        ({"os": None, "os_id": None}, "unknown system"),
    ):
        assert read(**values).system.startswith(system), f"{values!r}"


def test_half_a_reply_is_none():
    """A connection that broke, a login that runs a menu."""
    for text in ("", "Permission denied\n", PI.replace("end=yes", ""), "\0\0garbage=="):
        with table_row(text), pytest.raises(UnavailableError, match="unreadable"):
            board.parse_inspection(text, "unreadable")


def test_the_first_bundle_that_fits_is_taken_with_its_python(tmp_path):
    """By architecture, Python and glibc."""
    offers = [
        a_release(tmp_path, arch="x86_64"),
        a_release(tmp_path, python="3.12"),
        a_release(tmp_path, glibc="2.42"),
        a_release(tmp_path, python="3.11"),
        a_release(tmp_path),
    ]
    two = "3.13 /usr/bin/python3\npython=3.11 /usr/local/bin/python3.11"
    assert offer.choose_offer(offers, read()) == (offers[4], Interpreter("3.13", "/usr/bin/python3"))
    assert offer.choose_offer(offers, read(python=two)) == (offers[3], Interpreter("3.11", "/usr/local/bin/python3.11"))


def test_where_none_fits_it_names_what_to_build_or_bring(tmp_path):
    """For old boards the remedy is to bring a Python, and nothing is promised to work somehow."""
    offered = a_release(tmp_path)
    for values, message in (
        ({"python": "3.6 /usr/bin/python3", "tegra": "# R32 (release), REVISION: 7.1"}, r"Python >= 3\.10 in JetPack 4.*--python-tar"),
        ({"python": "3.8 /usr/bin/python3", "tegra": "# R35 (release), REVISION: 4.1"}, r"JetPack 5.*--python-tar"),
        ({"python": "3.7 /usr/bin/python3", "mendel": "5.3"}, r"Mendel 5\.3.*--python-tar"),
        ({"python": None}, "--python-tar"),
        ({"bits": "32"}, "64-bit system"),
        ({"libc": "musl"}, "glibc"),
        ({"python": "3.12 /usr/bin/python3"}, r"fleet release build.*3\.12"),
        ({"libc": "glibc 2.26"}, r"fleet release build.*glibc <= 2\.26"),
        ({"arch": "x86_64"}, r"fleet release build.*x86_64"),
    ):
        with table_row(values), pytest.raises(UnavailableError, match=message):
            offer.choose_offer([offered], read(**values))
