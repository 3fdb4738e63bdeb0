from dataclasses import replace

from edgemeter.agent.contract.health import Health
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.update import choice
from edgemeter.provisioning.update.releases import Release
from tests.fixtures.rows import table_row

DEVICE = Device("pi-1", "lab", None, "pi5", (), "accepted", 0)
BOOKWORM = Release("a" * 64, 1, "x", "2.0", "pi5", "aarch64", "3.11", "2.36", 1, 1)
TRIXIE = replace(BOOKWORM, sha256="b" * 64, python="3.13", glibc="2.41")
OLD_GLIBC = replace(BOOKWORM, sha256="c" * 64, glibc="2.31")
PI4 = replace(BOOKWORM, sha256="d" * 64, board="pi4")


def health(**changes):
    fields = {"agent": "1.0", "arch": "aarch64", "python": "3.11.2", "glibc": "2.36", **changes}
    return Health(device="pi-1", fleet="lab", session=1, told_ns=1, **fields)


def choose(report, *releases, device=DEVICE, **options):
    update_choice = choice.choose_release(device, report, releases, **options)
    return update_choice.release, update_choice.note


def test_a_device_gets_what_fits_its_python_c_library_and_board():
    """Of several releases that fit a device, the one for the newest C library is chosen."""
    everything = (PI4, TRIXIE, OLD_GLIBC, BOOKWORM)
    assert choose(health(), *everything) == (BOOKWORM, "")
    assert choose(health(python="3.13.1", glibc="2.41"), *everything) == (TRIXIE, "")
    assert choose(health(glibc="2.35"), *everything) == (OLD_GLIBC, "")
    assert choose(health(), *everything, device=replace(DEVICE, board="pi4")) == (PI4, "")


def test_a_device_that_stays_has_a_note_with_the_reason():
    """No release is chosen for a device that stays, and the note names the reason."""
    for report, why in (
        (None, "has not reported its state"),
        (health(arch="armv7l"), "no release fits pi5, armv7l"),
        (health(python="3.12.3"), "Python 3.12"),
        (health(glibc="2.28"), "glibc 2.28"),
        (health(python=None, glibc=None, arch=None), "no release fits"),
        (health(agent="2.0"), "runs this version"),
        (health(agent="2.0.1"), "older than 2.0.1"),
        (health(bad_agents=("2.0",)), "failed there before"),
    ):
        with table_row(report):
            release, note = choose(report, BOOKWORM, TRIXIE)
            assert release is None
            assert why in note


def test_what_is_refused_can_be_allowed():
    """Going back and trying a bad version again can be allowed.

    An update that is under way is not ordered twice.
    """
    assert choose(health(agent="3.0"), BOOKWORM, even_if=("older",))[0] == BOOKWORM
    assert choose(health(bad_agents=("2.0",)), BOOKWORM, even_if=("bad",))[0] == BOOKWORM
    assert choose(health(), BOOKWORM, even_if=("older", "bad"), under_way="update-1")[1].startswith(
        "update-1 is not finished here"
    )
    assert choose(health(agent="unknown"), BOOKWORM)[0] == BOOKWORM


def test_the_content_of_a_release_distinguishes_it_from_another_of_the_same_version():
    """Two builds of one version are different releases, and neither is older than the other.

    The version of a release ends in some digits of the hash of its content.
    """
    running, newer = (
        replace(BOOKWORM, version="2.0+11111111"),
        replace(BOOKWORM, version="2.0+22222222", sha256="e" * 64, built_ns=2),
    )
    assert choose(health(agent="2.0", release="2.0+11111111"), running, newer)[0] == newer
    assert choose(health(agent="2.0", release="2.0+22222222"), running, newer) == (
        None,
        "it runs this version",
    )
    assert choose(
        health(agent="2.0", release="2.0+22222222", bad_agents=("2.0+11111111",)), running
    )[1].startswith("this version failed")
    assert choose(health(agent="2.0", release="2.0+22222222"), running)[0] == running
