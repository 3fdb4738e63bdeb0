"""Facts about the doctor's findings on accelerators.

They concern a Coral with or without its library and the interpreter that fits, and the GPU of a
Jetson.
"""

import pytest

from edgemeter.agent.doctor import checks
from edgemeter.agent.machine.machine import recorded
from tests.fixtures import machine_trees, stand_ins
from tests.fixtures.machine_trees import write
from tests.fixtures.rows import table_row


@pytest.fixture
def library(tmp_path):
    return stand_ins.compiled("edgetpu_delegate.c", tmp_path / "lib/libedgetpu.so.1.0")


@pytest.mark.needs("gcc")
def test_a_coral_with_its_library_is_fine(tmp_path, library):
    """The finding states the library's version and the clock."""
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/apex_0").touch()
    (finding,) = checks._edge_tpu(recorded(tmp_path), str(library))
    assert (finding.state, finding.what) == (
        "ok",
        "libedgetpu, BuildLabel(N/A), RuntimeVersion(14), clock max: Coral PCIe (apex_0), untried",
    )


def on(root, system, monkeypatch, python, **versions):
    """Return a machine that is a Raspberry Pi 5 with this system, Python and packages.

    The packages have the given versions.
    """
    machine_trees.raspberry_pi_5(root)
    write(root, {"etc/os-release": f'PRETTY_NAME="{system}"\n'})
    monkeypatch.setattr(checks.platform, "python_version_tuple", lambda: tuple(python.split(".")))
    monkeypatch.setattr(checks, "version", lambda name: versions.get(name.replace("-", "_")))
    return recorded(root, "aarch64")


def test_a_coral_without_its_library_gets_the_commands_of_its_system(tmp_path, monkeypatch):
    """The remedy installs the package for this system, and the interpreter by the extra.

    It says where the package comes from and that nobody tried it.
    """
    for system, python, package in (
        ("Debian GNU/Linux 13 (trixie)", "3.13.5", "16.0tf2.19.1-1.trixie_arm64.deb"),
        ("Ubuntu 24.04.3 LTS", "3.12.3", "16.0tf2.19.1-1.ubuntu24.04_arm64.deb"),
        ("Fedora Linux 43", "3.14.0", None),
        ("Debian GNU/Linux 13 (trixie)", "3.12.1", None),
    ):
        with table_row(system, python):
            machine = on(tmp_path / python / system[:3], system, monkeypatch, python)
            remedy = checks._set_up(machine, "Coral")
            assert ("no set-up is known for this system" in remedy) == (package is None)
            if package:
                assert (
                    f"`sudo apt install ./libedgetpu1-std_{package}`; `pip install "
                    "'edgemeter[coral]'`"
                ) in remedy
                assert "from feranick/libedgetpu on GitHub" in remedy
                assert remedy.endswith("untried on a board of ours)")


def test_a_pair_that_does_not_match_is_found_before_it_crashes(tmp_path, monkeypatch):
    """Google's library of 2021 in a new interpreter is bad.

    Another interpreter than the known one is doubtful.
    """
    for library, litert, state in (
        ("16.0", "2.2.0", "bad"),
        ("16.0tf2.19.1-1", "2.3.0", "warn"),
        ("16.0tf2.19.1-1", "2.2.0", None),
        ("", "2.2.0", None),
        ("16.0", None, None),
    ):
        with table_row(library, litert):
            on(
                tmp_path,
                "Debian GNU/Linux 13 (trixie)",
                monkeypatch,
                "3.13.5",
                ai_edge_litert=litert,
            )
            mismatch = checks._mismatch(library)
            assert (mismatch and mismatch[0]) == state
            assert mismatch is None or "first inference" in mismatch[1]


def test_a_jetson_without_a_runtime_for_its_gpu_gets_the_commands_of_its_jetpack(
    tmp_path, monkeypatch
):
    """TensorRT must come from the system's packages.

    The one of the package index is for other machines.
    """
    machine_trees.jetson_orin_nano(tmp_path)
    on(tmp_path / "pi", "Debian GNU/Linux 13 (trixie)", monkeypatch, "3.10.12")
    write(tmp_path, {"etc/os-release": 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\n'})
    machine = recorded(tmp_path, "aarch64")
    (finding,) = checks._gpu(machine)
    assert finding.state == "absent"
    assert "sudo apt install nvidia-jetpack python3-libnvinfer" in finding.remedy
    assert "--system-site-packages" in finding.remedy
    assert "untried" in finding.remedy
    monkeypatch.setattr(checks, "version", lambda name: "10.3.0" if name == "tensorrt" else None)
    assert [finding.state for finding in checks._gpu(machine)] == ["ok"]
    assert list(checks._gpu(recorded(tmp_path / "pi", "aarch64"))) == []
