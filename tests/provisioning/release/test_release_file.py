import os

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.provisioning.release import release_file
from edgemeter.provisioning.release.release_file import sign
from tests.fixtures import small_release
from tests.fixtures.certificates import openssl

pytestmark = pytest.mark.needs("openssl")


def test_the_same_files_give_the_same_tar(releases, tmp_path):
    """The same files give the same tar whatever their times and order, as its hash names it."""
    folder = small_release.unpacked(releases.v10, tmp_path / "again")
    for path in folder.rglob("*"):
        os.utime(path, (1e9, 1e9))
    assert small_release.pack(folder).read_bytes() == releases.v10.read_bytes()
    read = release_file.read_release(releases.v10, releases.public)
    assert (read.manifest.version, read.manifest.board) == ("1.0", "pc")
    assert release_file.file_entries(folder) == read.manifest.files


def test_a_key_that_devices_cannot_check_is_refused(tmp_path):
    """An absent, garbled or other key raises ConfigError before a release is made."""
    key = tmp_path / "release.key"
    with pytest.raises(ConfigError, match="there is no release key"):
        sign(b"x", key)
    key.write_text("noise")
    with pytest.raises(ConfigError, match="cannot sign by the release key"):
        sign(b"x", key)
    openssl("genpkey", "-algorithm", "ED25519", "-out", key)
    with pytest.raises(ConfigError, match="not an ECDSA key on P-256"):
        sign(b"x", key)
