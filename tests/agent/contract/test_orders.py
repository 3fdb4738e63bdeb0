"""Which of two versions is the newer one."""

import itertools

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import orders
from edgemeter.provisioning.bundle import install
from tests.fixtures.rows import table_row

RISING = ["0.9", "1.0.dev1", "1.0a1", "1.0b2", "1.0rc1", "1.0", "1.0.post1", "1.0.1", "1.2", "1.10", "2"]


def test_versions_rise_as_in_python():
    """In the same order as the installer has them."""
    for older, newer in itertools.pairwise(RISING):
        assert orders.version_key(older) < orders.version_key(newer)
        assert install.version_key(older) < install.version_key(newer)


def test_zeros_at_the_end_and_a_local_part_do_not_count():
    """1, 1.0.0 and 1.0+pi5 are the same version."""
    assert orders.version_key("1") == orders.version_key("1.0.0") == orders.version_key("1.0+pi5")


def test_what_is_no_version_is_reported():
    """With how one is written."""
    for text in ["", "v1", "1..2", "1-2", "latest", "1.0; reboot"]:
        with table_row(text), pytest.raises(ConfigError, match=r"1\.2\.3"):
            orders.version_key(text)
