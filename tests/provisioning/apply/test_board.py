"""Tests of the lines of `look.sh`, the release that fits a device, and addresses of boards."""

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.apply import bring, facts
from edgemeter.provisioning.apply.board import SshTarget, parse_target
from edgemeter.provisioning.apply.facts import Interpreter
from edgemeter.provisioning.release.install import Manifest
from edgemeter.provisioning.release.release_file import ReleaseFile
from tests.fixtures.rows import table_row

PI = """arch=aarch64
bits=64
libc=glibc 2.41
os=Debian GNU/Linux 13 (trixie)
model=Raspberry Pi 5 Model B Rev 1.0
python=3.13 /usr/bin/python3
openssl=/usr/bin/openssl
rights=password
home=/home/pi
root=/opt/edgemeter
free_kb=24000000
current=releases/0.2.0
release=0123 /opt/edgemeter/releases/0.2.0
end=yes
"""


def changed(**values):
    """Return what the Pi would say with other values; None: it says nothing of that."""
    lines = [line for line in PI.splitlines() if line.split("=", 1)[0] not in values]
    return "\n".join(
        [*(f"{key}={value}" for key, value in values.items() if value is not None), *lines]
    )


def read(**values):
    return facts.parse_facts(changed(**values), "unreadable")


def a_release(folder, arch="aarch64", python="3.13", glibc="2.27"):
    return ReleaseFile(folder, Manifest("1.0.0", "any", arch, python, glibc, (), 0), b"")


def test_a_raspberry_pi_is_read():
    """Every line of a Raspberry Pi's answer is read.

    The lines are machine, board, libc, Pythons, rights, service manager and installed release.
    """
    pi = read()
    assert pi.arch == "aarch64"
    assert pi.model == "Raspberry Pi 5 Model B Rev 1.0"
    assert pi.glibc == (2, 41)
    assert pi.pythons == (Interpreter("3.13", "/usr/bin/python3"),)
    assert pi.rights == "password"
    assert (pi.current, pi.releases) == ("0.2.0", {"0.2.0": "0123"})
    assert pi.free_bytes == 24_000_000 * 1024
    # Raspberry Pi OS starts the 64-bit kernel under a 32-bit system; a board's name is anybody's
    # text.
    assert read(bits="32").arch == "armv7l"
    assert read(model="Pi\x1b[2J\x07 5").model == "Pi [2J 5"


def test_half_a_reply_is_none():
    """A broken connection and a login that runs a menu give no board."""
    for text in ("", "Permission denied\n", PI.replace("end=yes", ""), "\0\0garbage=="):
        with table_row(text), pytest.raises(UnavailableError, match="unreadable"):
            facts.parse_facts(text, "unreadable")


def test_the_first_bundle_that_fits_is_taken_with_its_python(tmp_path):
    """A bundle is chosen by architecture, Python and glibc."""
    offers = [
        a_release(tmp_path, arch="x86_64"),
        a_release(tmp_path, python="3.12"),
        a_release(tmp_path, glibc="2.42"),
        a_release(tmp_path, python="3.11"),
        a_release(tmp_path),
    ]
    two = "3.13 /usr/bin/python3\npython=3.11 /usr/local/bin/python3.11"
    assert bring.choose_release(offers, read(), "pi") == (
        offers[4],
        Interpreter("3.13", "/usr/bin/python3"),
    )
    assert bring.choose_release(offers, read(python=two), "pi") == (
        offers[3],
        Interpreter("3.11", "/usr/local/bin/python3.11"),
    )


def test_where_none_fits_it_names_what_to_build_or_bring(tmp_path):
    """The message for an old board tells to bring a Python, and promises nothing else."""
    offered = a_release(tmp_path)
    for values, message in (
        (
            {"python": "3.6 /usr/bin/python3", "os": "Ubuntu 18.04.6 LTS"},
            r"Python >= 3\.10 .* Ubuntu 18\.04.*sudo tar -xz -C /opt/edg",
        ),
        (
            {"python": "3.8 /usr/bin/python3", "os": None},
            r"unknown system.*aarch64-unknown-linux-gnu-install_only",
        ),
        (
            {"python": None, "root": "/home/pi/.cache/edgemeter"},
            r"'mkdir -p /home/pi/\.cache/edgemeter/pythons",
        ),
        ({"bits": "32"}, "64-bit system"),
        ({"libc": "musl"}, "glibc"),
        ({"python": "3.12 /usr/bin/python3"}, r"fleet release build.*3\.12"),
        ({"libc": "glibc 2.26"}, r"fleet release build.*glibc <= 2\.26"),
        ({"arch": "x86_64"}, r"fleet release build.*x86_64"),
    ):
        with table_row(values), pytest.raises(UnavailableError, match=message):
            bring.choose_release([offered], read(**values), "pi")


def test_an_address_is_a_board_by_ssh():
    """User and port of an address may be omitted; then ssh's own configuration applies."""
    for text, target in (
        ("ssh://pi@pi5.local", SshTarget("pi5.local", "pi5.local", "pi", None)),
        ("ssh://10.0.0.7:2222", SshTarget("10.0.0.7", "10.0.0.7", None, 2222)),
        ("SSH://pi@host/", SshTarget("host", "host", "pi", None)),
        ("ssh://pi@[fe80::1%eth0]:22", SshTarget("fe80::1%eth0", "fe80::1%eth0", "pi", 22)),
        ("ssh://[::1]", SshTarget("::1", "::1", None, None)),
    ):
        with table_row(text):
            assert parse_target(text) == target


def test_a_wrong_address_is_refused():
    """An address that ssh would take for an option, or half an address, is refused.

    A password in it is not repeated.
    """
    for text in (
        "ssh://pi@host/home/pi", "ssh://", "ssh://@host", "ssh://-oProxyCommand=x", "ssh://-x@host",
        "ssh://fe80::1", "ssh://[host]",
        "ssh://host:0", "ssh://host:65536", "ssh://host:22x", "ssh://pi@a@b", "telnet://host",
    ):  # fmt: skip
        with table_row(text), pytest.raises(ConfigError, match="is not the address of a board"):
            parse_target(text)
    with pytest.raises(ConfigError, match="passwords are rejected") as refusal:
        parse_target("ssh://pi:secret@host")
    assert "secret" not in str(refusal.value)
