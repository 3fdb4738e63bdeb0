"""Facts about a release's Debian packages and hooks: the real dpkg installs them, in an overlay of this machine's system."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import additions, boards, build, install
from tests.fixtures import small_release
from tests.fixtures.debian_packages import build_package
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs("openssl")

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}[small_release.this_target().arch]
FILES = {"usr/lib/edgemeter-test/libedgetpu.so.1": "library", "usr/lib/udev/rules.d/60-libedgetpu1-std.rules": "# rules\n"}
# Counts how often it ran.
HOOK = "echo ran >> /etc/edgemeter-hook\n"
# $1 is written to instead of this machine's system, $2 stays as it is; then the command in that system.
OVERLAY = """
mount -t tmpfs tmpfs "$1/layers"
mkdir "$1/layers/upper" "$1/layers/work"
[ ! -d "$1/kept" ] || cp -a "$1/kept/." "$1/layers/upper"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/layers/upper,workdir=$1/layers/work" "$1/system"
mount --rbind /dev "$1/system/dev"
mount -t proc proc "$1/system/proc"
mount --rbind "$2" "$1/system$2"
[ "$3" = writable ] || { mount --bind "$1/system/usr" "$1/system/usr"; mount -o remount,bind,ro "$1/system/usr"; }
work=$1 mode=$3
shift 3
rc=0
chroot "$work/system" "$@" || rc=$?
[ "$mode" != writable ] || { rm -rf "$work/kept"; cp -a "$work/layers/upper" "$work/kept"; }
exit $rc
"""


class OverlaidSystem:
    """This machine's system with what was installed into it, in `folder`; the release's folder is `root`."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.folder, self.shared, self.root = folder, shared, shared / "opt"
        for name in ("layers", "system"):
            (folder / name).mkdir(parents=True)

    def run(self, *command, usr="writable"):
        """Run a command in it as root."""
        words = ["unshare", "--mount", "--", "sh", "-euc", OVERLAY, "overlay", self.folder, self.shared, usr, *command]
        return subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False)

    def install(self, release, public, usr="writable"):
        """Install a release as a device does."""
        python = shutil.which("python3", path=f"{sys.base_prefix}/bin")
        return self.run(python, *small_release.install_command(release, self.root, public)[1:], usr=usr)


@pytest.fixture
def system(tmp_path):
    """Return a system that can be changed without changing this machine's."""
    if os.geteuid() != 0:
        pytest.skip("installing Debian packages takes root")
    shared = tmp_path / "shared"
    shared.mkdir()
    overlaid = OverlaidSystem(tmp_path / "overlay", shared)
    tried = overlaid.run("true")
    if tried.returncode:
        pytest.skip(f"no overlay of this system can be mounted here: {tried.stderr.strip()[-200:]}")
    return overlaid


def package(folder, depends=""):
    """Build a Debian package as Coral's: a library and udev rules."""
    return build_package(folder, "libedgetpu1-std", "16.0", ARCHITECTURE, depends, FILES)


def release_with(releases, folder, version, *packages):
    """Return a signed release that holds packages."""
    release = small_release.make(folder, version, releases.key, releases.folder / "packed")
    target = small_release.this_target()
    (release / "packages").mkdir()
    for package in packages:
        shutil.copy(package, release / "packages")
    for name in (install.MANIFEST, install.SIGNATURE):
        (release / name).unlink()
    build.seal_release(build.ReleaseRequest(target, (), releases.key), release, "unchecked: a test", version)
    return release


@pytest.mark.needs("dpkg-deb")
@pytest.mark.slow
def test_packages_and_hooks_are_installed_once_and_before_the_release(releases, system, tmp_path):
    """By dpkg, as root; the next release, which brings the same ones, leaves them alone, even where /usr is read-only as in an update."""
    hook = tmp_path / "hailo.sh"
    hook.write_text(HOOK)
    deb = package(tmp_path)
    first = system.install(release_with(releases, system.shared, "4.0", deb, hook), releases.public)
    assert first.returncode == 0, first.stderr
    printed = system.run(
        "sh", "-c", "dpkg -s libedgetpu1-std; cat /usr/lib/udev/rules.d/60-libedgetpu1-std.rules /etc/edgemeter-hook"
    ).stdout
    assert "Status: install ok installed" in printed
    assert printed.endswith("# rules\nran\n")
    repeated = system.install(release_with(releases, system.shared, "4.1", deb, hook), releases.public, usr="read-only")
    assert repeated.returncode == 0, repeated.stderr
    assert (system.root / "current").readlink().name == "4.1"
    assert system.run("cat", "/etc/edgemeter-hook").stdout == "ran\n"


@pytest.mark.needs("dpkg-deb")
@pytest.mark.slow
def test_what_cannot_be_installed_is_reported_and_the_release_that_ran_stays(releases, system, tmp_path):
    """A dependency that is missing after all, a hook that fails, a system that is read-only: one line each."""
    assert system.install(releases.v10, releases.public).returncode == 0
    failing = tmp_path / "rockchip.sh"
    failing.write_text("echo no NPU here >&2\nexit 3\n")
    cases = [
        ("5.0", package(tmp_path, depends="nothing-of-that-name"), "writable", "dpkg ended with status 1"),
        ("5.1", failing, "writable", "the hook rockchip.sh ended with status 3: no NPU here"),
        ("5.2", failing, "read-only", "the release brings rockchip.sh for the system, and /usr cannot be written from here"),
    ]
    for version, brought, usr, why in cases:
        result = system.install(release_with(releases, system.shared, version, brought), releases.public, usr)
        assert (result.returncode, why in result.stderr, result.stderr.count("\n")) == (1, True, 1), result.stderr
        assert (system.root / "current").readlink().name == "1.0"
        assert [path.name for path in (system.root / "releases").iterdir()] == ["1.0"]


def test_a_package_that_does_not_fit_is_refused_when_the_release_is_built(tmp_path):
    """Of another kind, with another hash, or somewhere else."""
    for name, text, why in (
        ("libedgetpu1-std_16.0_arm64.deb", "{}", "is not a Debian package"),
        ("driver.rpm", "{}", "is neither a Debian package"),
        ("with space.sh", "{}", "is neither a Debian package"),
        ("absent.sh", "absent.sh", "there is no file"),
        ("hook.sh", "{}#sha256=" + "0" * 64, "has the SHA-256"),
        ("libedgetpu1==16.0", "libedgetpu1==16.0", "is not fetched"),
        ("hook.sh", "https://packages.example/hook.sh#sha256=" + "0" * 64, "is not fetched"),
    ):
        with table_row(name, text):
            (tmp_path / name).write_text("x")
            package = text.format(tmp_path / name)
            with pytest.raises(ConfigError, match=why):
                additions.add_packages([additions.parse_added_file(package)], boards.release_target("pi5"), tmp_path / "release", None)


def test_a_release_with_libedgetpu_states_that_it_runs_on_the_edge_tpu(tmp_path):
    """By the name of the package."""
    (tmp_path / "release/packages").mkdir(parents=True)
    (tmp_path / "release/packages/libedgetpu1-max_16.0_arm64.deb").write_text("x")
    assert additions.accelerators(tmp_path / "release") == ("Edge TPU (LiteRT with libedgetpu)",)
