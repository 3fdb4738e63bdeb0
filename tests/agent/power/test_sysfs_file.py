"""Facts about `edgemeter.agent.power.sysfs_file`."""

import errno
import os
import re

import pytest

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, sysfs_file
from tests.fixtures.ordinary_user import closed_mode, ordinary_user


def test_text_and_numbers_lose_what_the_kernel_puts_around_them(tmp_path):
    """Line ends, and the NUL of a device tree."""
    (tmp_path / "name").write_bytes(b"ina3221\n\0")
    (tmp_path / "value").write_text(" -42\n")
    assert sysfs_file.text(tmp_path / "name") == "ina3221"
    assert sysfs_file.number(tmp_path / "value") == -42


def test_what_is_absent_is_told_from_what_may_not_be_read(tmp_path):
    """A missing file, one below a file, and one that is closed."""
    (tmp_path / "file").write_text("1")
    for path in (tmp_path / "absent", tmp_path / "file/below"):
        with pytest.raises(AbsentError, match=re.escape(str(path))):
            sysfs_file.text(path)
    (tmp_path / "file").chmod(closed_mode())
    with ordinary_user(), pytest.raises(UnavailableError) as caught:
        sysfs_file.text(tmp_path / "file")
    assert not isinstance(caught.value, AbsentError)


@pytest.mark.parametrize("code", [errno.EAGAIN, errno.EIO, errno.ENODATA, errno.EBUSY])
def test_a_driver_that_gives_no_value_now_may_give_one_later(tmp_path, monkeypatch, code):
    """Disabled channels, parts of the chip that are off."""
    (tmp_path / "in1_input").write_text("1")

    def refuse(*_):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(sysfs_file.os, "read", refuse)
    with pytest.raises(TransientError, match="in1_input"):
        sysfs_file.text(tmp_path / "in1_input")


@pytest.mark.parametrize("content", ["", "12.5", "12,5", "nan", "4228 mV", "\x00", "0x10", "4_228", "+4228", "\u0664", "9" * 400])
def test_what_is_no_whole_number_is_a_reading_that_failed(tmp_path, content):
    """With what stood there."""
    (tmp_path / "in1_input").write_text(content)
    with pytest.raises(TransientError, match="not a whole number"):
        sysfs_file.number(tmp_path / "in1_input")


@pytest.mark.parametrize("said", ["No such device or address", "Broken pipe", "Permission denied", "Input/output error"])
def test_what_cat_could_not_show_is_the_error_that_it_was(tmp_path, said):
    """A recording holds the line where the value should be; of a file that was not there it holds no error."""
    (tmp_path / "in1_input").write_text(f"cat: /sys/class/hwmon/hwmon1/in1_input: {said}\n")
    with pytest.raises((TransientError, UnavailableError), match=f"{said}|may not read"):
        sysfs_file.number(tmp_path / "in1_input")
    assert b"No such file or directory" not in sysfs_file.ERRORS
