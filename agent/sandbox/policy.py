"""The policy of a sandboxed process, and its start: `edgemeter.agent.sandbox.start` sets the limits, then runs the module."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import msgspec

from edgemeter.agent.sandbox.seccomp import Network

# Programs, libraries and what these look up; nothing below holds a key or a home.
_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/proc", "/run/udev",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives", "/etc/localtime", "/etc/timezone", "/etc/os-release",
    "/etc/nv_tegra_release", "/etc/ssl/openssl.cnf", "/etc/OpenCL", "/etc/vulkan", "/etc/glvnd", "/etc/mime.types", "/var/lib/dpkg/info",
)  # fmt: skip
_NAMES_AND_TLS = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf", "/etc/services", "/run/systemd/resolve",
    "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki",
)  # fmt: skip
# Accelerators: NVIDIA (Jetson and WSL too), DRM, Coral on PCIe, Intel, AMD, Hailo, Rockchip, Vivante, Qualcomm, MediaTek, Arm, Axelera.
_DEVICES = (
    "null", "zero", "full", "random", "urandom", "nvidia*", "nvhost*", "nvmap", "nvgpu", "nvsciipc", "host1x-fence", "dxg", "dri", "apex_*",
    "accel", "kfd", "dma_heap", "hailo*", "rknpu", "mpp_service", "rga", "galcore", "adsprpc*", "fastrpc*", "apusys", "mali*", "ethosu*",
    "kgsl-3d0", "metis*", "davinci*",
)  # fmt: skip
# Of caches and temporary files.
_FOLDERS = ("HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR", "TORCHINDUCTOR_CACHE_DIR")
_SECRET = re.compile(r"TOKEN|PASSW|SECRET|CREDENTIAL|API_?KEY|PRIVATE|SSH_|GPG_|^EDGEMETER_", re.IGNORECASE)
_WIDE = ("/", "/home", "/root", "/etc", "/var", "/run", "/tmp")  # noqa: S108 - not written to
START = "edgemeter.agent.sandbox.start"


class SandboxPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """The reach of a process: files and folders to read and to write, the network, and whether it may start others.

    `scratch` is the folder for what it writes of its own accord; `parent` the process with which it ends. Without an `accelerator` it opens
    nothing for reading and writing, where the filter of system calls alone keeps the files; one that `needs_confined_files` does not start
    there.
    """

    scratch: str
    parent: int
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    devices: tuple[str, ...] = ()
    network: Network = "none"
    tcp_port: int | None = None
    processes: bool = False
    accelerator: bool = True
    needs_confined_files: bool = False


@dataclass(frozen=True, slots=True)
class SandboxGrant:
    """The needs of one job beyond the system, Python and its scratch folder; for the fields see `SandboxPolicy`."""

    read: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    network: Network = "none"
    tcp_port: int | None = None
    processes: bool = False
    accelerator: bool = True
    needs_confined_files: bool = False


@contextmanager
def started(
    module: str,
    arguments: Sequence[str],
    grant: SandboxGrant,
    scratch: Path | None = None,
    *,
    stdin: int | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Iterator["subprocess.Popen[bytes]"]:
    """Start `python -m MODULE ARGUMENTS` in the sandbox; when the block ends, so has it, with everything that it started, and its scratch.

    `scratch` is a folder of the caller's instead of one of its own; `stdin`, `stdout` and `stderr` are as `subprocess.Popen` takes them.
    """
    with tempfile.TemporaryDirectory(prefix="edgemeter-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", START, _policy(grant, scratch or Path(folder)), module, *arguments]
        process = subprocess.Popen(
            command, env=_environment(scratch or Path(folder)), start_new_session=True, stdin=stdin, stdout=stdout, stderr=stderr
        )
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                # Its group is its own: it cannot leave it, nor can what it starts.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            for pipe in (process.stdin, process.stdout):
                if pipe is not None:
                    with suppress(BrokenPipeError):
                        pipe.close()


def _policy(grant: SandboxGrant, scratch: Path) -> str:
    network_files = _NAMES_AND_TLS if grant.network == "tcp" else ()
    usb = ("/dev/bus/usb",) if grant.network == "usb" else ()
    policy = SandboxPolicy(
        scratch=str(scratch),
        parent=os.getpid(),
        read=tuple(map(str, (*_SYSTEM, *network_files, *_python(tuple(sys.path), *_variables()), *grant.read))),
        write=tuple(map(str, grant.write)),
        devices=(*(path for name in _DEVICES for path in map(str, sorted(Path("/dev").glob(name)))), *usb),
        network=grant.network,
        tcp_port=grant.tcp_port,
        processes=grant.processes,
        accelerator=grant.accelerator,
        needs_confined_files=grant.needs_confined_files,
    )
    return msgspec.json.encode(policy).decode()


@cache
def _python(modules: tuple[str, ...], *further: str) -> tuple[str, ...]:
    """Return where modules and libraries of this interpreter lie, with those of plug-ins and of a development install; no home."""
    packages = {"edgemeter.agent", "edgemeter.models", "edgemeter.collector", "edgemeter.provisioning"}
    from importlib.metadata import entry_points  # noqa: PLC0415 - the process that is started reads this module too, and needs no mails

    registered = entry_points()
    groups = [group for group in registered.groups if group.startswith("edgemeter.")]
    packages |= {entry.module.partition(".")[0] for group in groups for entry in registered.select(group=group)}
    specs = (find_spec(name) for name in sorted(packages))
    folders = [
        *(folder for spec in specs if spec for folder in (spec.submodule_search_locations or [spec.origin or ""])),
        *modules, sys.prefix, sys.base_prefix, sys.exec_prefix, str(Path(sys.executable).resolve().parent),
        *further,
    ]  # fmt: skip
    # `python -m` puts the working directory first, which the sandboxed process does not.
    absolute = [os.path.abspath(folder) for folder in folders if folder and (folder != os.getcwd() or folder in further)]  # noqa: PTH100, PTH109
    # Not resolved: the interpreter goes by the links on the way.
    return tuple(dict.fromkeys(folder for folder in absolute if is_narrow(Path(folder).resolve())))


def _variables() -> list[str]:
    """Return the folders that the variables of Python and of the loader of libraries name."""
    return [folder for name in ("PYTHONPATH", "LD_LIBRARY_PATH") for folder in os.environ.get(name, "").split(":") if folder]


def is_narrow(folder: Path) -> bool:
    """Return whether a folder may be opened as a whole: neither a home, nor above one, nor the configuration or state of the system."""
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111 - Path.home() fails where there is none
    return folder != home and folder not in home.parents and folder not in {Path(name) for name in _WIDE}


def _environment(scratch: Path) -> Mapping[str, str]:
    """Return the variables of a sandboxed process: ours without secrets; caches and temporary files in its scratch folder."""
    variables = {name: value for name, value in os.environ.items() if not _SECRET.search(name)}
    folders = dict.fromkeys(_FOLDERS, str(scratch))
    # Where the user's own packages lie was found from the real home. A module of the working directory must not shadow a library.
    return {**variables, **folders, "PYTHONUSERBASE": _user_base(), "LOGNAME": "edgemeter", "PYTHONSAFEPATH": "1"}


def _user_base() -> str:
    import site  # noqa: PLC0415 - not imported under -S

    return site.getuserbase()


def existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    """Return the paths that are there."""
    return tuple(path for path in paths if path.exists())
