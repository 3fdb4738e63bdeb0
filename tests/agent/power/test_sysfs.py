"""The kernel's small files and hwmon chips."""

import errno
import os
import re
from pathlib import Path
from subprocess import Popen

import pytest

from edgemeter.agent.base.errors import TransientError, UnavailableError
from edgemeter.agent.power import AbsentError, sysfs
from tests.fixtures.machine_trees import write
from tests.fixtures.ordinary_user import closed_mode, ordinary_user
from tests.fixtures.rows import table_row


def test_text_and_numbers_lose_what_the_kernel_puts_around_them(tmp_path):
    """Line ends and the NUL of a device tree are removed."""
    (tmp_path / "name").write_bytes(b"ina3221\n\0")
    (tmp_path / "value").write_text(" -42\n")
    assert sysfs.read_text(tmp_path / "name") == "ina3221"
    assert sysfs.read_number(tmp_path / "value") == -42


def test_what_is_absent_is_distinguished_from_what_may_not_be_read(tmp_path):
    """A missing file, a path below a file and a file without permission are tested."""
    (tmp_path / "file").write_text("1")
    for path in (tmp_path / "absent", tmp_path / "file/below"):
        with pytest.raises(AbsentError, match=re.escape(str(path))):
            sysfs.read_text(path)
    (tmp_path / "file").chmod(closed_mode())
    with ordinary_user(), pytest.raises(UnavailableError) as refusal:
        sysfs.read_text(tmp_path / "file")
    assert not isinstance(refusal.value, AbsentError)


def test_a_driver_that_gives_no_value_now_may_give_one_later(tmp_path, monkeypatch):
    """A channel may be disabled, or a part of the chip switched off."""
    (tmp_path / "in1_input").write_text("1")

    def refuse(*_):
        raise OSError(errno.ENODATA, os.strerror(errno.ENODATA))

    monkeypatch.setattr(sysfs.os, "read", refuse)
    with pytest.raises(TransientError, match="in1_input"):
        sysfs.read_text(tmp_path / "in1_input")


def test_what_is_no_whole_number_is_a_reading_that_failed(tmp_path):
    """The error shows the text that was read."""
    for content in [
        "",
        "12.5",
        "12,5",
        "nan",
        "4228 mV",
        "\x00",
        "0x10",
        "4_228",
        "+4228",
        "\u0664",
        "9" * 400,
    ]:
        (tmp_path / "in1_input").write_text(content)
        with table_row(content), pytest.raises(TransientError, match="not a whole number"):
            sysfs.read_number(tmp_path / "in1_input")


@pytest.mark.services
def test_a_number_whose_driver_was_reloaded_is_opened_again(tmp_path):
    """Files of an unloaded driver give errors for ever, so the path is opened again.

    If it does not exist any more there is one clear error. A process stands for the driver.
    """
    file = sysfs.NumberFile(tmp_path / "in1_input")
    for number in (300, 301):
        with Popen(["sleep", "60"]) as process:
            source = Path(f"/proc/{process.pid}/oom_score_adj")
            source.write_text(f"{number}\n")
            file.path.unlink(missing_ok=True)
            file.path.symlink_to(source)
            assert [file.number(), file.number()] == [number, number]
            process.kill()
    for _ in range(2):
        with pytest.raises(AbsentError, match=r"there is no .*in1_input"):
            file.number()


def test_chips_come_in_the_order_of_their_numbers(tmp_path):
    """Chip 10 comes after chip 9, and what is no chip is left out."""
    write(
        tmp_path,
        {
            f"sys/class/hwmon/{name}/name": f"{name}\n"
            for name in ("hwmon10", "hwmon9", "hwmonitor", "other")
        },
    )
    assert [chip.name for chip in sysfs.hwmon_chips(tmp_path)] == ["hwmon9", "hwmon10"]
    assert sysfs.hwmon_chips(tmp_path / "nothing") == []


def test_an_empty_name_is_none_and_an_old_driver_has_it_in_its_device(tmp_path):
    """Before Linux 3.13 the name was below device/."""
    write(
        tmp_path,
        {"sys/class/hwmon/hwmon0/name": "\n", "sys/class/hwmon/hwmon1/device/name": "ina219\n"},
    )
    assert [chip.name for chip in sysfs.hwmon_chips(tmp_path)] == [None, "ina219"]


def test_a_shunt_is_microohms_big_endian(tmp_path):
    """The bytes 0x000186a0 are 0.1 Ohm."""
    write(
        tmp_path,
        {
            "sys/class/hwmon/hwmon0/name": "ina238\n",
            "sys/class/hwmon/hwmon0/device/of_node/shunt-resistor": b"\0\1\x86\xa0",
        },
    )
    assert sysfs.hwmon_chips(tmp_path)[0].device_tree_number("shunt-resistor") == 100_000
