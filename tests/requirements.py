"""The needs of tests on the machine: one table, by marker.

conftest.py skips a test whose marker needs what is absent, before its fixtures.

A program is looked up on PATH, which for root holds Debian's /usr/sbin, or where its variable
EDGEMETER_* says; never at a fixed address. A Python module is looked for and not imported. The
markers `needs("gcc", ...)` and `needs(module="gguf")` name theirs themselves.
"""

import ctypes.util
import functools
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared"
# Programs that stand elsewhere where a variable says so.
VARIABLES = {"chromium": "EDGEMETER_CHROMIUM"}


@dataclass(frozen=True, slots=True)
class Need:
    """A thing that is needed.

    `locate` returns it, None where it is absent; the reason of a skip is `absence` with its
    `remedy`.
    """

    absence: str
    remedy: str
    locate: Callable[[], object | None]


def find(name: str) -> str | None:
    """Return where a program is, None where it is not installed."""
    return os.environ.get(VARIABLES.get(name, "")) or shutil.which(name)


def program(name: str, marker: str | None = None) -> str:
    """Return where a program is.

    Raises:
        RuntimeError: it is absent, so the test has no marker that needs it, by default `needs`; no
            reason to skip in the middle of a test.
    """
    address = find(name)
    if address is None:
        label = marker or f'needs("{name}")'
        raise RuntimeError(
            f"{name} is not on PATH: the test that starts it must carry the marker `{label}`"
        )
    return address


@functools.cache
def influxd() -> Path | None:
    """Return the program of InfluxDB 2.

    It is EDGEMETER_INFLUXD, in `../shared/bin` or on PATH; version 1 has the same name.
    """
    for candidate in filter(
        None,
        (os.environ.get("EDGEMETER_INFLUXD"), SHARED / "bin" / "influxd", shutil.which("influxd")),
    ):
        if Path(candidate).is_file():
            printed = subprocess.run(
                [candidate, "version"], capture_output=True, text=True, check=False, timeout=150
            ).stdout
            if "InfluxDB v2." in printed or "InfluxDB 2." in printed:
                return Path(candidate)
    return None


def postgresql_folder() -> Path | None:
    """Return the folder of PostgreSQL's programs.

    It is EDGEMETER_POSTGRESQL, or that of `initdb` on PATH, or the newest of Debian. Debian keeps
    them off PATH, where it has `psql` and `pg_lsclusters` only, which start what is in that folder:
    with none of the three on PATH, there is no PostgreSQL.
    """
    named_folder, initdb = os.environ.get("EDGEMETER_POSTGRESQL"), shutil.which("initdb")
    folders = [Path(named_folder)] if named_folder else []
    if not named_folder and initdb:
        # A link on PATH leads into the folder.
        folders += [Path(initdb).parent, Path(initdb).resolve().parent]
    if not named_folder and (initdb or shutil.which("psql") or shutil.which("pg_lsclusters")):
        folders += sorted(
            Path("/usr/lib/postgresql").glob("*/bin"),
            key=lambda folder: float(folder.parent.name),
            reverse=True,
        )
    return next(
        (
            folder
            for folder in folders
            if (folder / "initdb").is_file() and (folder / "pg_basebackup").is_file()
        ),
        None,
    )


def rmqttd() -> Path | None:
    """Return the program of RMQTT: EDGEMETER_RMQTTD, or in `../shared/bin`."""
    address = Path(os.environ.get("EDGEMETER_RMQTTD") or SHARED / "bin" / "rmqttd")
    return address if address.is_file() else None


def mlserver_python() -> Path | None:
    """Return the Python of the environment that has MLServer: EDGEMETER_MLSERVER."""
    address = Path(os.environ.get("EDGEMETER_MLSERVER") or "absent")
    return address if address.with_name("mlserver").is_file() else None


def triton_python() -> Path | None:
    """Return the Python of the environment that has the wheel of Triton: EDGEMETER_TRITON."""
    address = Path(os.environ.get("EDGEMETER_TRITON") or "absent")
    return address if triton_library(address) else None


def triton_library(python: Path) -> Path | None:
    return (
        next(python.parents[1].glob("lib/python3*/site-packages/pytriton/tritonserver"), None)
        if python.is_file()
        else None
    )


def data_folder(variable: str, name: str) -> Path | None:
    """Return a folder beside the project, or the one that a variable names."""
    folder = Path(os.environ.get(variable) or SHARED / name)
    return folder if folder.is_dir() else None


def torchvision_folder() -> Path | None:
    """Return the folder that holds the package torchvision.

    It is EDGEMETER_TORCHVISION, or that of this Python's packages.
    """
    folder = Path(os.environ.get("EDGEMETER_TORCHVISION") or sysconfig.get_path("purelib"))
    return folder if (folder / "torchvision" / "_C.so").is_file() else None


def software_gpu() -> Path | None:
    """Return the file that names a Vulkan driver in software.

    It is EDGEMETER_VULKAN_ICD, or SwiftShader's of Debian's chromium. Debian 12's lavapipe lacks
    what WebGPU needs.
    """
    address = Path(
        os.environ.get("EDGEMETER_VULKAN_ICD") or "/usr/lib/chromium/vk_swiftshader_icd.json"
    )
    return address if address.is_file() and ctypes.util.find_library("vulkan") else None


def arm64_folder() -> Path | None:
    """Return the folder in which `tools/arm64/make_root.sh` made a Debian with Python 3.13."""
    return _folder_with("EDGEMETER_ARM64", "root/usr/bin/python3.13")


def boards_folder() -> Path | None:
    """Return the folder of an emulated board's system.

    `tools/arm64/make_root.sh boards` made there a whole Debian, a kernel, and a shell for its first
    process.
    """
    return _folder_with("EDGEMETER_ARM64", "root.tar", "kernel/vmlinuz", "busybox/usr/bin/busybox")


def _folder_with(variable: str, *names: str) -> Path | None:
    named_folder = os.environ.get(variable)
    return (
        Path(named_folder)
        if named_folder and all((Path(named_folder) / name).exists() for name in names)
        else None
    )


@functools.cache
def system_python() -> str | None:
    """Return the version of the Python that `fleet apply` finds.

    It looks on a device that is this machine.
    """
    for address in ("/usr/local/bin/python3", "/usr/bin/python3"):
        if Path(address).exists():
            command = [address, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"]
            printed = subprocess.run(command, capture_output=True, text=True, check=False)
            if printed.returncode == 0 and int(printed.stdout.split(".")[1]) >= 10:
                return printed.stdout.strip()
    return None


def sandbox() -> bool | None:
    """Return True if bubblewrap is installed and starts something."""
    from edgemeter.agent.sandbox.bubblewrap import no_sandbox  # noqa: PLC0415 - few tests need it

    return None if no_sandbox() else True


def pip_wheel() -> Path | None:
    """Return a wheel of pip: ensurepip's, or Debian's."""
    spec = importlib.util.find_spec("ensurepip")
    bundled = (
        sorted(Path(spec.origin).parent.glob("_bundled/pip-*.whl"))
        if spec is not None and spec.origin
        else []
    )
    return next(iter([*bundled, *sorted(Path("/usr/share/python-wheels").glob("pip-*.whl"))]), None)


def _trixie() -> str | None:
    return os.environ.get("EDGEMETER_TRIXIE_ROOT") or shutil.which("mmdebstrap")


@functools.cache
def _has_module(name: str) -> bool | None:
    return True if name in sys.modules or importlib.util.find_spec(name) is not None else None


def _program(name: str) -> Need:
    variable = f", or set {VARIABLES[name]}" if name in VARIABLES else ""
    return Need(
        f"{name} is not installed",
        f"apt-get install {name}, or the package that has it{variable}",
        functools.partial(find, name),
    )


def _module(name: str) -> Need:
    return Need(
        f"the module {name} is not installed",
        f"pip install {name}, or our extra that brings it",
        functools.partial(_has_module, name),
    )


def _data(variable: str, name: str) -> Need:
    return Need(
        f"the folder {name} is not there",
        f"set {variable}",
        functools.partial(data_folder, variable, name),
    )


BOARD_PROGRAMS = (
    "qemu-system-aarch64",
    "mke2fs",
    "sfdisk",
    "mkfs.vfat",
    "mcopy",
    "mtype",
    "debugfs",
    "cpio",
    "xz",
)
CONVERT = (
    "torch",
    "litert_torch",
    "ai_edge_quantizer",
    "ai_edge_litert",
    "onnx",
    "onnxruntime",
    "onnxscript",
    "PIL",
)
NEEDS: dict[str, tuple[Need, ...]] = {
    "realdata": (_data("EDGEMETER_REALDATA", "realdata"),),
    "captures": (_data("EDGEMETER_CAPTURES", "captures"),),
    "mosquitto": (_program("mosquitto"), _program("mosquitto_passwd")),
    "bwrap": (
        Need(
            "bubblewrap is absent, or starts nothing here",
            "`edgemeter doctor` says what to do",
            sandbox,
        ),
    ),
    "rmqtt": (Need("rmqttd is not there", "set EDGEMETER_RMQTTD", rmqttd),),
    "influx": (
        Need("InfluxDB 2 is not installed", "set EDGEMETER_INFLUXD to its influxd", influxd),
    ),
    "postgresql": (
        Need(
            "PostgreSQL is not installed",
            "apt-get install postgresql, or set EDGEMETER_POSTGRESQL to the folder of initdb",
            postgresql_folder,
        ),
        _module("psycopg"),
    ),
    "chromium": (_program("chromium"), _module("websockets")),
    "trixie": (
        Need(
            "mmdebstrap is not installed",
            "apt-get install mmdebstrap, or set EDGEMETER_TRIXIE_ROOT",
            _trixie,
        ),
    ),
    "arm64": (
        _program("qemu-aarch64-static"),
        Need(
            "no arm64 system with Python 3.13 is there",
            "run tools/arm64/make_root.sh and set EDGEMETER_ARM64",
            arm64_folder,
        ),
    ),
    "emulated_board": (
        *map(_program, BOARD_PROGRAMS),
        Need(
            "no system of arm64 boards is there",
            "run `tools/arm64/make_root.sh boards` and set EDGEMETER_ARM64",
            boards_folder,
        ),
    ),
    "system_python": (
        Need(
            "no system Python >= 3.10 with venv is installed",
            "apt-get install python3-venv",
            system_python,
        ),
        Need("no wheel of pip is there", "apt-get install python3-pip-whl", pip_wheel),
    ),
    "torch": (_module("torch"),),
    "torchvision": (
        _module("torch"),
        Need(
            "no torchvision is there",
            "pip install --no-deps --target FOLDER torchvision, of PyTorch's release, and set "
            "EDGEMETER_TORCHVISION",
            torchvision_folder,
        ),
        *map(_program, ("gcc", "nm", "readelf")),
    ),
    "convert": tuple(_module(name) for name in CONVERT),
    "loadgen": (_module("mlperf_loadgen"),),
    "mlserver": (
        Need(
            "MLServer is not installed",
            "`make mlserver`, and set EDGEMETER_MLSERVER to its python",
            mlserver_python,
        ),
    ),
    "triton": (
        Need(
            "Triton is not installed",
            "`make triton`, and set EDGEMETER_TRITON to its python",
            triton_python,
        ),
    ),
    "software_gpu": (
        Need(
            "no Vulkan driver in software is there",
            "apt-get install chromium libvulkan1, or set EDGEMETER_VULKAN_ICD",
            software_gpu,
        ),
        _module("ai_edge_litert"),
    ),
}


def needs_of(marker: pytest.Mark) -> Iterable[Need]:
    """Return what a marker needs; nothing where it speaks of something else, as `slow`."""
    if marker.name != "needs":
        return NEEDS.get(marker.name, ())
    modules = [marker.kwargs["module"]] if "module" in marker.kwargs else []
    return (*map(_program, marker.args), *map(_module, modules))


def absent(markers: Iterable[pytest.Mark]) -> tuple[str, str] | None:
    """Return the marker for which a test cannot run here, and why, with the remedy.

    Returns None where it can.
    """
    for marker in markers:
        for need in needs_of(marker):
            if need.locate() is None:
                return marker.name, f"{need.absence} ({need.remedy})"
    return None
