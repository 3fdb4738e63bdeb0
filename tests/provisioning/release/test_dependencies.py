"""Facts about what a release's Debian packages depend on: the real apt resolves it against a system, when the release is built."""

import subprocess
import tarfile

import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.provisioning.release import additions, boards
from tests.fixtures.debian_packages import CORAL_DEPENDS, TRIXIE, add_repository, build_package, make_system
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs("dpkg-deb", "apt-get")
TARGET = boards.release_target("pi5")


@pytest.fixture
def coral(tmp_path):
    """Return a package as the community's libedgetpu, for arm64."""
    return build_package(tmp_path, "libedgetpu1-std", "16.0tf2.19.1-1", "arm64", CORAL_DEPENDS)


def added(packages, release, root, target=TARGET):
    """Return the packages of a release that was built with these, and the files in it."""
    release.mkdir(exist_ok=True)
    debian = additions.add_packages([additions.parse_added_file(str(path)) for path in packages], target, release, root)
    return debian, sorted(path.name for path in release.glob("packages/*"))


def test_what_the_board_lacks_is_fetched_into_the_release(tmp_path, coral):
    """libusb, and what that needs in turn; what the system has stays out. The system is a folder or a tar."""
    udev = build_package(tmp_path, "libudev1", "257.8~deb13u1", "arm64")
    usb = build_package(tmp_path, "libusb-1.0-0", "2:1.0.28-1", "arm64", "libc6 (>= 2.38), libudev1 (>= 183)")
    system = make_system(tmp_path / "system")
    add_repository(system, tmp_path, [usb, udev])
    (system / "etc/apt/keyrings").mkdir()
    (system / "etc/apt/keyrings/theirs.gpg").symlink_to(tmp_path / "elsewhere.gpg")
    with tarfile.open(tmp_path / "system.tar", "w") as tar:
        for name in ("var/lib/dpkg/status", "etc/apt"):
            tar.add(system / name, name)
    expected = ["dependency-libudev1_257.8.deb13u1_arm64.deb", "dependency-libusb-1.0-0_2.1.0.28-1_arm64.deb", coral.name]
    for root in (system, tmp_path / "system.tar"):
        with table_row(root.name):
            debian, names = added([coral], tmp_path / f"of-{root.name}", root)
            assert names == expected
            assert [(package.name, package.version) for package in debian] == [("libedgetpu1-std", "16.0tf2.19.1-1")]


def test_a_system_that_has_all_of_it_adds_nothing(tmp_path, coral):
    """By names that others provide, too: libgcc-s1 stands for libgcc1. The list of its packages is enough."""
    system = make_system(tmp_path / "system", (*TRIXIE, ("libusb-1.0-0", "2:1.0.28-1", "")))
    assert added([coral], tmp_path / "release", system)[1] == [coral.name]


def test_the_user_may_bring_the_dependency(tmp_path, coral):
    """Then neither a source nor a network is needed."""
    usb = build_package(tmp_path, "libusb-1.0-0", "2:1.0.28-1", "arm64", "libc6 (>= 2.38)")
    assert added([coral, usb], tmp_path / "release", make_system(tmp_path / "system"))[1] == [coral.name, usb.name]


def test_what_could_not_be_installed_on_the_board_is_refused_when_the_release_is_built(tmp_path, coral):
    """Nothing says what the board has; it lacks a package, a version; it conflicts; it is a system with another C library."""
    bare = make_system(tmp_path / "bare")
    (tmp_path / "empty").mkdir()
    old = make_system(tmp_path / "old", (("libc6", "2.36-9", ""),))
    newer = build_package(tmp_path, "newer", "1", "arm64", "libc6 (>= 2.99)")
    loop = build_package(tmp_path, "alternative", "1", "arm64", "nowhere | nowhere-else (>= 2)")
    for package, root, why in (
        (coral, None, r"depends on libc6, libgcc1, libstdc\+\+6, libusb-1.0-0, and nothing says which .*give --root FILE.tar"),
        (coral, tmp_path / "empty", "does not say which of these the board has"),
        (coral, bare, "libusb-1.0-0 but it is not installable.*--package FILE.deb"),
        (newer, bare, r"libc6 \(>= 2.99\) but 2.41-12 is to be installed"),
        (loop, bare, "nowhere but it is not installable"),
        (coral, old, "is a system with glibc 2.36, not pi5: aarch64, Python 3.13, glibc 2.41"),
    ):
        with table_row(package.name, root, why), pytest.raises(ConfigError, match=why) as refusal:
            added([package], tmp_path / "release", root)
        assert "\n" not in str(refusal.value)


def test_a_source_that_cannot_be_read_is_named(tmp_path, coral):
    """The network is down: nothing is built that would fail on the board."""
    system = make_system(tmp_path / "system")
    (system / "etc/apt").mkdir(parents=True)
    (system / "etc/apt/sources.list").write_text(f"deb [trusted=yes] file:{tmp_path}/nowhere ./\n")
    with pytest.raises(UnavailableError, match="cannot read the sources of packages of --root: E: "):
        added([coral], tmp_path / "release", system)


def test_a_package_is_read_by_its_control_file_not_its_name(tmp_path):
    """A name can be changed by whoever downloads the file, and a page of HTML may be called .deb."""
    other = build_package(tmp_path, "libedgetpu1-std", "16.0", "armhf")
    for content, why in ((other.read_bytes(), "is for armhf: pi5"), (b"<html>403</html>", "is not a Debian package")):
        path = tmp_path / "libedgetpu1-std_16.0_arm64.deb"
        path.write_bytes(content)
        with table_row(why), pytest.raises(ConfigError, match=why):
            added([path], tmp_path / "release", make_system(tmp_path / why[:9]))


def test_a_release_pins_the_interpreter_of_its_libedgetpu(tmp_path, coral):
    """The pair is that of the table; Google's library of 2021 has none, unless the user names the interpreter."""
    system = make_system(tmp_path / "system", (*TRIXIE, ("libusb-1.0-0", "2:1.0.28-1", "")))
    debian, _ = added([coral], tmp_path / "release", system)
    assert additions.interpreter_for(debian, []) == "ai-edge-litert==2.2.0"
    assert additions.interpreter_for(debian, ["ai_edge_litert"]) is None
    assert additions.interpreter_for((), []) is None
    google = build_package(tmp_path, "libedgetpu1-max", "16.0", "arm64", CORAL_DEPENDS)
    debian, _ = added([google], tmp_path / "google", system)
    with pytest.raises(
        ConfigError, match=r"no interpreter is known to belong to libedgetpu1-max 16.0.*16.0tf2.19.1-1 with ai-edge-litert==2.2.0"
    ):
        additions.interpreter_for(debian, [])


def test_a_dependency_that_the_board_has_in_a_newer_version_stays(tmp_path):
    """Dpkg itself is asked: with these options it installs neither an older nor the same version, and that is no failure."""
    architecture = subprocess.run(["dpkg", "--print-architecture"], check=True, capture_output=True, text=True).stdout.strip()
    system = make_system(tmp_path / "system", (("libusb-1.0-0", "2:1.0.28-1", ""),), architecture)
    for folder in ("info", "updates"):
        (system / "var/lib/dpkg" / folder).mkdir()
    (system / "var/lib/dpkg/info/libusb-1.0-0.list").write_text("/.\n")
    for version in ("2:1.0.26-1", "2:1.0.28-1"):
        package = build_package(tmp_path, "libusb-1.0-0", version, architecture)
        command = ["dpkg", f"--root={system}", "--force-not-root", "--install", "--skip-same-version", "--refuse-downgrade", package]
        completed = subprocess.run(command, capture_output=True, text=True, check=False)
        assert completed.returncode == 0, completed.stderr
        assert "Version: 2:1.0.28-1" in (system / "var/lib/dpkg/status").read_text()
