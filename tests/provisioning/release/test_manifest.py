"""Facts about reading, verifying and packing releases."""

import shutil

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import manifest
from edgemeter.provisioning.release.manifest import sign
from tests.fixtures.certificates import openssl

pytestmark = pytest.mark.needs("openssl")


def test_the_same_files_give_the_same_tar(releases, tmp_path):
    """Whatever their times and order: a release is known by its hash."""
    copied = tmp_path / "again"
    shutil.copytree(releases.v10, copied, copy_function=shutil.copy)
    manifest.pack_release(releases.v10, tmp_path / "one.tar")
    manifest.pack_release(copied, tmp_path / "two.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_a_release_is_read_from_folder_and_tar_alike(releases, tmp_path):
    """And unpacked with every file as it was."""
    manifest.pack_release(releases.v10, tmp_path / "one.tar")
    packed, folder = manifest.read_release(tmp_path / "one.tar", releases.public), manifest.read_release(releases.v10, releases.public)
    assert packed.manifest == folder.manifest
    assert (packed.manifest.version, packed.manifest.board) == ("1.0", "pc")
    packed.unpack(tmp_path / "out")
    assert manifest.file_entries(tmp_path / "out") == packed.manifest.files
    assert manifest.read_release(tmp_path / "out", releases.public).document == packed.document


def test_a_key_that_devices_cannot_check_is_refused(tmp_path):
    """Absent, garbage, or of another kind: ConfigError before a release is made."""
    key = tmp_path / "release.key"
    with pytest.raises(ConfigError, match="there is no release key"):
        sign(b"x", key)
    key.write_text("noise")
    with pytest.raises(ConfigError, match="cannot sign by the release key"):
        sign(b"x", key)
    openssl("genpkey", "-algorithm", "ED25519", "-out", key)
    with pytest.raises(ConfigError, match="not an ECDSA key on P-256"):
        sign(b"x", key)
