"""The Edge TPU runtime is tested with a delegate library that is compiled here.

Machines that lack one thing or another are played.
"""

import ctypes
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.runtimes import Options
from edgemeter.agent.runtimes.edgetpu import EdgeTpu
from tests.fixtures.rows import table_row

pytestmark = pytest.mark.needs("gcc")

USB = {"idVendor": "1a6e\n", "idProduct": "089a\n", "speed": "5000\n"}


def built(folder: Path, source: Path, *flags: str) -> Path:
    """Return libedgetpu.so.1 in the folder, a link to the compiled library.

    The target is libedgetpu.so.1.0, as in Debian.
    """
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", *flags, "-o", folder / "libedgetpu.so.1.0", source], check=True
    )
    (folder / "libedgetpu.so.1").symlink_to("libedgetpu.so.1.0")
    return folder / "libedgetpu.so.1"


@pytest.fixture(scope="module")
def delegate(tmp_path_factory, models) -> Path:
    """Return the compiled delegate library, the build for the maximum clock."""
    return built(tmp_path_factory.mktemp("delegate"), models / "edgetpu_delegate.c")


@pytest.fixture
def opened(delegate, models, tmp_path):
    """Return a function that loads the compiled model on a machine below `tmp_path`."""
    runtimes = []

    def load(library=delegate, **options):
        runtimes.append(EdgeTpu(tmp_path, str(library)))
        return runtimes[-1], runtimes[-1].load(models / "edgetpu.tflite", Options(**options))

    yield load
    for runtime in runtimes:
        runtime.close()


def plug(root: Path, device: str, files: dict[str, str]) -> None:
    (root / "sys/bus/usb/devices" / device).mkdir(parents=True)
    for name, text in files.items():
        (root / "sys/bus/usb/devices" / device / name).write_text(text)


def requested_settings(library: Path) -> str:
    """Return the settings that the delegate was asked for last."""
    handle = ctypes.CDLL(str(library))
    handle.asked_settings.restype = ctypes.c_char_p
    return handle.asked_settings().decode()


def test_the_delegate_takes_the_compiled_operators_and_the_cpu_the_rest(opened, x):
    """The delegate's kernel computes 2x, and LiteRT's computes + 1."""
    runtime, loaded = opened()
    runtime.bind([x])()
    np.testing.assert_array_equal(runtime.outputs()[0], [[1, 3, 5, 7]])
    assert (loaded.facts["edgetpu_operators"], loaded.facts["cpu_operators"]) == ("1", "1")
    assert loaded.facts["libedgetpu"] == "BuildLabel(N/A), RuntimeVersion(14)"


def test_close_gives_the_device_back(opened, delegate):
    """A Coral that stays open is refused to the next process."""
    handle = ctypes.CDLL(str(delegate))
    before = handle.delegates_alive()
    runtime, _ = opened()
    assert handle.delegates_alive() == before + 1
    runtime.close()
    assert handle.delegates_alive() == before


def test_device_and_performance_reach_the_library_as_it_reads_them(opened, delegate):
    """The library heeds `Performance` only for a device with a number.

    Of another device name it would only say that it found none.
    """
    for backend, performance, settings in [
        (None, None, ""),
        ("usb", None, "device=usb;"),
        (None, "low", "device=:0;Performance=Low;"),
        ("usb", "max", "device=usb:0;Performance=Max;"),
    ]:
        opened(backend=backend, extra={"performance": performance} if performance else {})
        assert requested_settings(delegate) == settings
    for backend in ["tpu", "usb0", "usb:", "usb:-1", "pcie:0", "", "USB"]:
        with table_row(backend), pytest.raises(ConfigError, match="choose usb, pci, usb:N"):
            opened(backend=backend)


def test_what_is_plugged_in_is_recorded_and_names_the_backend(opened, tmp_path):
    """A USB Coral on a USB 3 link is recorded even before its firmware is loaded.

    Of two devices it is unknown which was opened, unless one was chosen.
    """
    plug(tmp_path, "2-1", USB)
    _, loaded = opened()
    assert loaded.backend == "usb,max"
    assert (
        loaded.facts["accelerators"]
        == "Coral USB (1a6e:089a, not used since it was plugged in) at 5000 Mbit/s"
    )
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/apex_0").touch()
    assert opened()[1].backend == "any,max"
    assert opened(backend="usb:0")[1].backend == "usb:0,max"


def test_a_board_without_an_edge_tpu_is_reported(opened, tmp_path):
    """The library itself gives no reason."""
    for words in (
        "as 'pci:1': this machine shows none on USB or PCIe; plug one in",
        "'pci:1': this machine shows Coral USB",
    ):
        with pytest.raises(UnavailableError, match=words) as refusal:
            opened(backend="pci:1")
        assert "\n" not in str(refusal.value)
        if "none" in words:
            plug(tmp_path, "2-1", USB)


def test_a_model_that_was_not_compiled_is_refused(delegate, models, tmp_path):
    """It would run on the CPU and be published as the Edge TPU's."""
    with pytest.raises(
        ConfigError, match=r"has no operator for the Edge TPU .* compile it with edgetpu_compiler"
    ):
        EdgeTpu(tmp_path, str(delegate)).load(models / "litert.tflite", Options())


# Each library that is loaded stays in the process, so that each of these needs one of its own.
CODE = """
import sys
from pathlib import Path
from edgemeter.agent.runtimes.edgetpu import load_edgetpu_library
print(load_edgetpu_library(sys.argv[1], Path(sys.argv[2])))
"""


def described(library: Path, root: Path) -> str:
    completed = subprocess.run(
        [sys.executable, "-c", CODE, library, root], capture_output=True, text=True, check=True
    )
    return completed.stdout.strip().removeprefix("EdgeTpuLibrary")


def test_the_build_shows_the_clock(models, tmp_path):
    """Only the throttled build of a library holds the sentence about the clock.

    A build without texts shows nothing. The library was copied by hand, without a package.
    """
    (tmp_path / "a.c").write_text("void *tflite_plugin_create_delegate(void) { return 0; }\n")
    for folder, source, flags, clock in [
        ("max", models / "edgetpu_delegate.c", (), "'max'"),
        ("std", models / "edgetpu_delegate.c", ("-DTHROTTLE_EDGE_TPU",), "'std'"),
        ("bare", tmp_path / "a.c", (), "None"),
    ]:
        assert f"(clock={clock}, package=None" in described(
            built(tmp_path / folder, source, *flags), tmp_path
        )


def test_the_debian_package_shows_clock_and_version(models, tmp_path):
    """The package that installed this file counts, whatever the file holds."""
    library = built(tmp_path / "usr/lib", models / "edgetpu_delegate.c")
    info = tmp_path / "var/lib/dpkg/info"
    info.mkdir(parents=True)
    (info / "libedgetpu1-std:amd64.list").write_text(f"/.\n{library}.0\n")
    (info / "libedgetpu1-max:amd64.list").write_text("/usr/lib/libedgetpu.so.1.0\n")
    stanzas = [
        f"Package: libedgetpu1-{kind}\nStatus: install ok installed\nVersion: {version}\n"
        for kind, version in (("std", "16.0"), ("max", "15.0"))
    ]
    (tmp_path / "var/lib/dpkg/status").write_text("\n".join(stanzas))
    version = "BuildLabel(N/A), RuntimeVersion(14)"
    assert (
        described(library, tmp_path)
        == f"(clock='std', package='libedgetpu1-std 16.0', version='{version}')"
    )
