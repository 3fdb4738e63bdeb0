"""Facts about the installer of the device.

It gets a real small release on this machine, and releases with every kind of fault.
"""

import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import tarfile
import time
from io import BytesIO
from pathlib import Path

import pytest

from edgemeter.provisioning.release import install, release_file
from edgemeter.provisioning.release.release_file import sign
from tests.fixtures import small_release
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs("openssl")

# At length: EDGEMETER_POWER_CUTS=20.
POWER_CUTS = int(os.environ.get("EDGEMETER_POWER_CUTS", "6"))

SCRIPT = Path(install.__file__)


def start(release, root, public, *options, **settings):
    """Install as a device does, and return the process."""
    command = small_release.install_command(release, root, public, *options)
    return subprocess.run(command, capture_output=True, text=True, check=False, **settings)


def release_of(root):
    completed = subprocess.run(
        [root / "current/bin/edgemeter", "--version"], capture_output=True, text=True, check=True
    )
    return completed.stdout.strip().strip('"').rpartition(" ")[2]


def picture(root):
    return {
        str(path): str(path.readlink())
        if path.is_symlink()
        else hashlib.sha256(path.read_bytes()).hexdigest()
        if path.is_file()
        else None
        for path in sorted(root.rglob("*"))
    }


def signed_anew(releases, tmp_path, change):
    """Return a copy of release 1.1 with its manifest changed and signed by the right key."""
    release = small_release.unpacked(releases.v11, tmp_path / "changed")
    fields = json.loads((release / "manifest.json").read_bytes())
    change(fields, release)
    document = json.dumps(fields).encode()
    (release / "manifest.json").write_bytes(document)
    (release / "manifest.sig").write_bytes(sign(document, releases.key))
    return small_release.pack(release)


@pytest.fixture(scope="module")
def installed(releases, tmp_path_factory):
    """Return a root in which release 1.0 runs; tests of refusals share it."""
    root = tmp_path_factory.mktemp("device") / "opt"
    result = start(releases.v10, root, releases.public)
    assert result.returncode == 0, result.stderr
    return root


def test_a_release_becomes_the_release_that_runs(releases, installed, tmp_path):
    """A release is installed with neither network nor ensurepip, and a second time changes nothing.

    Its manifest, installer, units and key stay with it. Without a key nothing is believed.
    """
    release = installed / "releases/1.0"
    assert release_of(installed) == "1.0"
    assert str((installed / "current").readlink()) == "releases/1.0"
    assert (release / "manifest.json").read_bytes() == release_file.read_release(
        releases.v10, releases.public
    ).document
    assert (installed / "proven/install.py").read_bytes() == SCRIPT.read_bytes()
    assert (installed / "release.pub").read_bytes() == releases.public.read_bytes()
    assert (release / "units/edgemeter-agent.service").is_file()
    assert not (installed / ".incoming").exists()
    assert not list(release.glob("lib/python*/site-packages/pip"))
    before = picture(installed)
    repeated = start(releases.v10, installed, releases.public)
    assert (repeated.returncode, "nothing to do" in repeated.stdout) == (0, True)
    assert picture(installed) == before
    without_key = start(releases.v10, tmp_path / "opt", tmp_path / "no.pub")
    assert (
        without_key.returncode,
        "no public key" in without_key.stderr,
        (tmp_path / "opt").exists(),
    ) == (1, True, False)


@pytest.mark.nightly
def test_every_module_starts_from_bytecode_that_stays_valid(releases, tmp_path):
    """Every module starts from valid bytecode, on a read-only disk and for every user.

    The times of the files change, as on a board without a clock.
    """
    root = tmp_path / "opt"
    assert start(releases.v10, root, releases.public, umask=0o077).returncode == 0
    sources = list(root.glob("releases/1.0/lib/python*/site-packages/**/*.py"))
    assert len(sources) > 20
    for source in sources:
        os.utime(source, (1e9, 1e9))
        (bytecode,) = (source.parent / "__pycache__").glob(f"{source.stem}.*.pyc")
        # Other users read it; bits 1 and 0 of the flags: by hash, and unchecked (PEP 552).
        assert (bytecode.stat().st_mode & 0o777, bytecode.read_bytes()[4:8]) == (
            0o644,
            bytes([1, 0, 0, 0]),
        )
    before = picture(root)
    imported = subprocess.run(
        [root / "current/bin/python", "-v", "-c", "import edgemeter.standin"],
        capture_output=True,
        text=True,
        check=True,
    ).stderr
    origins = re.findall(rf"code object from '{root}/\S*[.](pyc?)'", imported)
    assert (origins.count("py"), origins.count("pyc") > 10) == (0, True)
    assert picture(root) == before


@pytest.mark.nightly
def test_two_releases_stay_and_older_ones_go(releases, tmp_path):
    """The running release and the one before stay; older ones are removed.

    `--switch no` leaves the switch to the supervisor; an older release has to be allowed.
    """
    root = tmp_path / "opt"
    assert start(releases.v10, root, releases.public).returncode == 0
    assert start(releases.v11, root, root / "release.pub", "--switch", "no").returncode == 0
    assert (release_of(root), len(list((root / "releases").iterdir()))) == ("1.0", 2)
    assert start(releases.v11, root, releases.public).returncode == 0
    assert release_of(root) == "1.1"
    assert start(releases.v20, root, releases.public).returncode == 0
    assert sorted(path.name for path in (root / "releases").iterdir()) == ["1.1", "2.0"]
    assert start(releases.v11, root, releases.public).returncode == 1
    assert start(releases.v11, root, releases.public, "--allow-downgrade").returncode == 0


def changed_byte(releases, tmp_path):
    path = Path(shutil.copy(releases.v11, tmp_path))
    with tarfile.open(path) as tar:
        member = next(info for info in tar if info.name.endswith(".whl"))
        offset = member.offset_data + member.size // 2
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)
    return path


def in_folder(change):
    """Return a maker of a release whose files were changed after it was signed."""

    def make(releases, tmp_path):
        release = small_release.unpacked(releases.v11, tmp_path / "unpacked")
        change(release)
        return small_release.pack(release)

    return make


def signed_by_another(release):
    """Sign the manifest by a key of somebody else."""
    key, _ = small_release.keys(release.parent)
    (release / "manifest.sig").write_bytes(sign((release / "manifest.json").read_bytes(), key))


def member(name, content=b"x", **attributes):
    """Return a maker of a release with one more member."""

    def make(releases, tmp_path):
        path = Path(shutil.copy(releases.v11, tmp_path))
        info = tarfile.TarInfo(name)
        for key, value in {"size": len(content), **attributes}.items():
            setattr(info, key, value)
        with tarfile.open(path, "a") as tar:
            tar.addfile(info, BytesIO(content))
        return path

    return make


def truncated(releases, tmp_path):
    path = Path(shutil.copy(releases.v11, tmp_path))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    return path


def field(name, value):
    """Return a maker of a release whose manifest says otherwise, rightly signed."""

    def make(releases, tmp_path):
        return signed_anew(releases, tmp_path, lambda document, _: document.update({name: value}))

    return make


def field_of_a_file(**values):
    """Return a function that makes a release with a false statement about its first file.

    The manifest is signed correctly.
    """
    return lambda releases, tmp_path: signed_anew(
        releases, tmp_path, lambda document, _: document["files"][0].update(values)
    )


REFUSED = [
    (in_folder(signed_by_another), "is not signed by the key"),
    (changed_byte, "differs from the manifest"),
    (member("../../escaped"), "not in its manifest"),
    (
        member("wheels/link.whl", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        "not in its manifest",
    ),
    # A second file under a known name, which some readers take instead of the first.
    (member("install.py", b"import os"), "differs from the manifest"),
    (member("wheels/evil-1-py3-none-any.whl"), "not in its manifest"),
    (
        member("install.py", b"", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        "cannot read 'install.py'",
    ),
    (
        member("install.py", b"", type=tarfile.FIFOTYPE),
        "'install.py' in the release is not a plain file",
    ),
    (truncated, ""),
    (field("extra", 1), "unknown or missing fields: 'extra'"),
    (field("schema", 2), "schema '2'"),
    (field("name", "other"), "name 'other'"),
    (field("version", "../1"), "version '../1'"),
    (field("version", "1.0rc1"), "older than 1.0"),
    (field("arch", "riscv64"), "arch 'riscv64'"),
    (field("arch", "aarch64"), "the release is for aarch64"),
    (field("python", "3.99"), "for Python 3.99"),
    (field("glibc", "2.99"), "needs glibc 2.99"),
    (field("built_ns", -1), "built_ns '-1'"),
    (field("built_ns", "1"), "built_ns '1'"),
    (
        in_folder(lambda release: (release / "manifest.json").write_bytes(b"[" * 100_000)),
        "is not signed by the key",
    ),
    (field("files", {}), "not a list"),
    (field_of_a_file(path="../../etc/passwd"), "path '../../etc/passwd'"),
    (field_of_a_file(run="rm -rf /"), "unknown or missing fields: 'run'"),
]


def test_what_is_wrong_is_refused_in_one_line_and_changes_nothing(
    releases, installed, tmp_path, capsys
):
    """A faulty release is refused with status 1 and the reason, and the device stays as it was."""
    before = picture(installed)
    for number, (make_release, why) in enumerate(REFUSED):
        folder, mask = tmp_path / str(number), os.umask(0o022)
        folder.mkdir()
        status = install.main(
            [
                "--release",
                str(make_release(releases, folder)),
                "--root",
                str(installed),
                "--public-key",
                str(releases.public),
            ]
        )
        os.umask(mask)
        printed = capsys.readouterr()
        with table_row(number, why):
            assert (status, printed.out) == (1, "")
            assert printed.err.startswith("install: ")
            assert printed.err.count("\n") == 1
            assert why in printed.err
            assert picture(installed) == before


def test_a_release_that_cannot_start_leaves_the_old_one(releases, installed, tmp_path):
    """A release that fails the smoke test is refused, and nothing of it stays.

    It has a wheel that requires a package outside the release, and is signed correctly.
    """

    def change(document, release):
        wheel = next((release / "wheels").glob("msgspec-*"))
        wheel.unlink()
        document["files"] = [
            entry for entry in document["files"] if not entry["path"].startswith("wheels/msgspec")
        ]

    result = start(signed_anew(releases, tmp_path, change), installed, releases.public)
    assert (result.returncode, result.stderr.count("\n")) == (1, 1)
    assert "msgspec" in result.stderr
    assert [path.name for path in (installed / "releases").iterdir()] == ["1.0"]
    assert release_of(installed) == "1.0"


@pytest.mark.nightly
def test_killed_at_any_moment_the_old_release_runs_and_the_next_try_succeeds(releases, tmp_path):
    """After SIGKILL at random moments the old release runs, and the next installation succeeds.

    The signal ends the installer and all that it started.
    """
    root = tmp_path / "opt"
    assert start(releases.v10, root, releases.public).returncode == 0
    began_s = time.monotonic()
    assert start(releases.v11, root, releases.public).returncode == 0
    took_s = time.monotonic() - began_s
    dice = random.Random(9)  # noqa: S311 - moments
    for turn in range(POWER_CUTS):
        release, version = ((releases.v10, "1.0"), (releases.v11, "1.1"))[turn % 2]
        shutil.rmtree(root / "releases" / version) if release_of(root) != version else None
        command = small_release.install_command(release, root, releases.public, "--allow-downgrade")
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
        time.sleep(dice.uniform(0, took_s))
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert release_of(root) in {"1.0", "1.1"}
        result = start(release, root, releases.public, "--allow-downgrade")
        assert result.returncode == 0, result.stderr
        assert release_of(root) == version
