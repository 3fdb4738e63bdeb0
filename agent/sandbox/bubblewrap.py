"""The sandbox of a process that opens other people's models, pictures and code.

It is made by bubblewrap (`bwrap`), which Flatpak uses. The process sees the system's programs,
Python, the granted paths and a scratch folder; its processes, its loopback and its /tmp are its
own. System calls are not filtered: files and hosts outside do not exist for it. Source: bwrap(1),
user_namespaces(7).
"""

import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from edgemeter.agent.base import interrupts
from edgemeter.agent.base.errors import ConfigError

# Programs, libraries and their configuration; no keys and no homes are below these.
_SYSTEM = (
    "/usr", "/lib", "/lib32", "/lib64", "/bin", "/sbin", "/opt", "/sys", "/run/udev",
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/alternatives",
    "/etc/localtime", "/etc/timezone", "/etc/os-release", "/etc/nv_tegra_release",
    "/etc/ssl/openssl.cnf", "/etc/OpenCL", "/etc/vulkan", "/etc/glvnd", "/etc/mime.types",
    "/var/lib/dpkg/info", "/var/lib/dpkg/status",
)  # fmt: skip
_NAMES_AND_TLS = (
    "/etc/resolv.conf", "/etc/hosts", "/etc/host.conf", "/etc/nsswitch.conf", "/etc/gai.conf",
    "/etc/services", "/run/systemd/resolve", "/etc/ssl/certs", "/etc/ca-certificates", "/etc/pki",
)  # fmt: skip
# Accelerators: NVIDIA (Jetson and WSL too), DRM, Coral on PCIe, Intel, AMD, Hailo, Rockchip,
# Vivante, Qualcomm, MediaTek, Arm, Axelera.
_ACCELERATORS = (
    "nvidia*", "nvhost*", "nvmap", "nvgpu", "nvsciipc", "host1x-fence", "dxg", "dri", "apex_*",
    "accel", "kfd", "dma_heap", "hailo*", "rknpu", "mpp_service", "rga", "galcore", "adsprpc*",
    "fastrpc*", "apusys", "mali*", "ethosu*", "kgsl-3d0", "metis*", "davinci*",
)  # fmt: skip
# Variables that configure programs, Python and the libraries that compute.
_VARIABLES = re.compile(
    r"PATH|LANG|LANGUAGE|TZ|TERM|LD_LIBRARY_PATH|LD_PRELOAD|SOURCE_DATE_EPOCH"
    r"|(LC|PYTHON|OMP|GOMP|KMP|MKL|OPENBLAS|BLIS|NUMEXPR|MALLOC|GLIBC"
    r"|TF|TORCH|TORCHINDUCTOR|PYTORCH|JAX|XLA|KERAS|CUDA|CUDNN|CUBLAS|NVIDIA|NCCL|TRT|ORT|OV"
    r"|OPENVINO|NCNN|GGML|LLAMA|HAILO|HAILORT|EDGETPU"
    r"|VK|MESA|OCL|ZE|SYCL|HSA|HIP|ROCR|COVERAGE)_?\w*"
)
_SECRET = re.compile(r"TOKEN|PASSW|SECRET|CREDENTIAL|KEY|PRIVATE", re.IGNORECASE)
# Variables that name folders for caches and temporary files.
_FOLDERS = (
    "HOME",
    "TMPDIR",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "XDG_RUNTIME_DIR",
    "TORCHINDUCTOR_CACHE_DIR",
)
_WIDE = ("/", "/home", "/root", "/etc", "/var", "/run", "/tmp")  # noqa: S108 - not written to
_MARK = "IN_EDGEMETER_SANDBOX"
_NAMESPACES = (
    "--unshare-user",
    "--unshare-ipc",
    "--unshare-pid",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--die-with-parent",
)
# Root keeps the right to read and write files of other users, among the visible ones.
_CAPABILITIES = ("--cap-drop", "ALL", "--cap-add", "CAP_DAC_OVERRIDE")
_READ, _WRITE, _DEVICE = "--ro-bind-try", "--bind", "--dev-bind-try"
_MOST_LINKS, _MOST_PROCESSES = 40, 4096
# Bubblewrap reads the table of mounts for each: 500 take 0.3 s, 1000 take 1.4 s, 2000 take 6 s, and
# from 3000 on it has too many words.
_MOST_READ = 1000
_ENDING_S = 10.0


@dataclass(frozen=True, slots=True)
class SandboxGrant:
    """The needs of one job beyond the system, Python and its scratch folder.

    They are readable and writable paths, and devices. With `network` it uses the host's; otherwise
    the process has only a loopback of its own. `links` are those of `read` that nobody named: they
    lead out of the folder of a model or data set.
    """

    read: tuple[Path, ...] = ()
    links: tuple[Path, ...] = ()
    write: tuple[Path, ...] = ()
    network: bool = False
    accelerator: bool = True
    usb: bool = False


@dataclass(frozen=True, slots=True)
class NoSandbox:
    """Why this machine has no sandbox, and the remedy."""

    reason: str
    remedy: str


class SandboxProcess(interrupts.OwnedProcess[bytes]):
    """The bubblewrap process that `started` yields; it waits for the process in the sandbox."""

    def __init__(self, command: Sequence[str], *, is_confined: bool, **options: Any) -> None:
        self.is_confined = is_confined
        # Before the process exists: a parent that waits for a core afterwards would read its clock
        # too late.
        self.spawned_ns = time.monotonic_ns()
        super().__init__(command, **options)

    @property
    def inner_pid(self) -> int:
        """The pid outside of the process in the sandbox; valid once that has answered something."""
        if not self.is_confined:
            return self.pid
        # Bubblewrap's own process, its first one inside, and then the program.
        return next((pid for first in _children(self.pid) for pid in _children(first)), self.pid)

    @property
    def status(self) -> int:
        """The exit status after its end, negative for a signal.

        Bubblewrap returns 128 plus the signal.
        """
        status = self.returncode
        return 128 - status if self.is_confined and status > 128 else status

    def end(self) -> None:
        """End it and all its child processes; an interrupt waits until then."""
        with interrupts.deferred():
            for first in _children(self.pid) if self.is_confined and self.poll() is None else ():
                # All other processes inside end with it, and bubblewrap after them.
                with suppress(ProcessLookupError):
                    os.kill(first, signal.SIGKILL)
                with suppress(subprocess.TimeoutExpired):
                    self.wait(_ENDING_S)
            super().end()


def is_inside() -> bool:
    return os.environ.get(_MARK) == "yes"


def is_started() -> bool:
    """Return whether `started` created this process, with or without a sandbox."""
    return _MARK in os.environ


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
) -> Iterator[SandboxProcess]:
    """Start `python -m MODULE ARGUMENTS` in the sandbox, if there is one.

    The end of the block ends it and all its children. `scratch` is a folder of the caller instead
    of a temporary one; `stdin`, `stdout` and `stderr` are those of `subprocess.Popen`.
    """
    # A program that a conversion starts is inside the sandbox already, and within the conversion's
    # limits; it cannot set others.
    is_confined = not is_inside() and no_sandbox() is None
    with scratch_folder() if scratch is None else nullcontext(scratch) as folder:
        command = [sys.executable, "-m", module, *arguments]
        if is_confined:
            command = [*_bubblewrap(grant, folder), "--", *command]
        elif shutil.which("setpriv"):
            # As bubblewrap does: it ends with this process, however that ends.
            command = ["setpriv", "--pdeathsig", "KILL", *command]
        limits = [] if is_inside() else _limits(grant)
        environment = _environment(folder, is_confined=is_confined or is_inside())
        process = None
        try:
            with interrupts.deferred():
                process = _launch(
                    [*limits, *command],
                    is_confined=is_confined,
                    env=environment,
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                )
            yield process
        finally:
            if process is not None:
                process.end()
                for pipe in (process.stdin, process.stdout):
                    if pipe is not None:
                        with suppress(BrokenPipeError):
                            pipe.close()


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """Yield a new temporary folder.

    It is removed at the end of the block, or at the end of this process.
    """
    with interrupts.deferred():
        folder = tempfile.TemporaryDirectory(prefix="edgemeter-", ignore_cleanup_errors=True)
    try:
        yield Path(folder.name)
    finally:
        with interrupts.deferred():
            folder.cleanup()


@cache
def no_sandbox() -> NoSandbox | None:
    """Return why there is no sandbox here, None if there is one; it is tried once.

    There is one if bubblewrap starts a program as a run needs it.
    """
    if shutil.which("bwrap") is None:
        return NoSandbox("bubblewrap is not installed", "`sudo apt install bubblewrap`")
    words = [
        "bwrap",
        *_namespaces(network=False),
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--",
        "true",
    ]
    with interrupts.deferred():
        process = _launch(
            words, is_confined=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
    output = process.communicate()[1].decode(errors="replace").strip()
    process.end()
    if process.returncode == 0:
        return None
    return NoSandbox(
        "bubblewrap does not start "
        f"({(output.splitlines() or ['no message'])[-1].removeprefix('bwrap: ')})",
        "allow user namespaces: `sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0` "
        "on Ubuntu 24.04, "
        "`kernel.unprivileged_userns_clone=1` on older Debian, `user.max_user_namespaces=1000` "
        "where it is 0; in a container "
        "`--security-opt seccomp=unconfined --security-opt systempaths=unconfined`",
    )


def note_of(grant: SandboxGrant) -> str | None:
    """Return the note of a record on an incomplete sandbox, else None."""
    if gap := None if is_inside() else no_sandbox():
        return f"none: {gap.reason}"
    return "with the network of the host" if grant.network else None


@cache
def _namespaces(*, network: bool) -> tuple[str, ...]:
    words = _NAMESPACES if network else (*_NAMESPACES, "--unshare-net")
    if os.geteuid() == 0:
        return (*words, *_CAPABILITIES)
    # Nothing inside can create a namespace; from bubblewrap 0.8 on.
    supported = subprocess.run(["bwrap", "--help"], capture_output=True, check=False).stdout
    return (*words, "--disable-userns") if b"--disable-userns" in supported else words


def _launch(command: list[str], *, is_confined: bool, **options: Any) -> SandboxProcess:
    """Start bubblewrap.

    For root, all ids are mapped into its namespace, from outside: files keep their owners.
    """
    if not is_confined or os.geteuid() != 0:
        return SandboxProcess(command, is_confined=is_confined, **options)
    info, info_end = os.pipe()
    mapped_end, mapped = os.pipe()
    at = command.index("bwrap") + 1
    command[at:at] = ["--info-fd", str(info_end), "--userns-block-fd", str(mapped_end)]
    try:
        process = SandboxProcess(
            command, is_confined=True, pass_fds=(info_end, mapped_end), **options
        )
    finally:
        os.close(info_end)
        os.close(mapped_end)
    with os.fdopen(info, "rb") as answer, os.fdopen(mapped, "wb", buffering=0) as ready:
        # If anything fails here, bubblewrap reports it on its standard error.
        if first := re.search(rb'"child-pid": (\d+)', answer.read()):
            with suppress(OSError):
                for ids in ("uid_map", "gid_map"):
                    Path(f"/proc/{int(first[1])}/{ids}").write_text(
                        "0 0 4294967295", encoding="ascii"
                    )
                ready.write(b"1")
    return process


def _bubblewrap(grant: SandboxGrant, scratch: Path) -> list[str]:
    if len(grant.read) > _MOST_READ:
        folder = str(Counter(path.parent for path in grant.read).most_common(1)[0][0])
        raise ConfigError(
            f"over {_MOST_READ} links lead out of {folder!r}, and the sandbox shows at most "
            f"{_MOST_READ} files one by one: copy the "
            f"folder with their targets, `cp -rL {shlex.quote(folder)} NEW` (on one disk `cp "
            "-rlL` takes no space), and give the copy"
        )
    working_folder = os.getcwd()  # noqa: PTH109 - as text
    devices = [
        path
        for name in (_ACCELERATORS if grant.accelerator else ())
        for path in map(str, sorted(Path("/dev").glob(name)))
    ]
    words = [
        "bwrap",
        *_namespaces(network=grant.network),
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "--tmpfs",
        "/tmp",  # noqa: S108 - its own
    ]
    for path, kind in _mounts(grant, scratch):
        words += [kind, path, path]
    for device in (*devices, *(["/dev/bus/usb"] if grant.usb else [])):
        words += [_DEVICE, device, device]
    # libcuda names its threads below /proc, and fails if it cannot; other processes could undo
    # their order for the out-of-memory killer there.
    has_nvidia = any(device.startswith("/dev/nv") for device in devices)
    settings = (
        [
            f"/proc/{name}"
            for name in sorted(os.listdir("/proc"))  # noqa: PTH208 - names
            if not name.isdigit()
        ]
        if has_nvidia
        else []
    )
    for setting in settings:
        if not os.path.islink(setting):  # noqa: PTH114 - as text
            words += [_READ, setting, setting]

    return [
        *words,
        "--dir",
        working_folder,
        "--chdir",
        working_folder,
        *([] if has_nvidia else ["--remount-ro", "/proc"]),
        "--remount-ro",
        "/",
    ]


def _mounts(grant: SandboxGrant, scratch: Path) -> list[tuple[str, str]]:
    """Return the paths to mount, parents first, each with its kind."""
    libraries = [
        folder
        for name in ("PYTHONPATH", "LD_LIBRARY_PATH", "LD_PRELOAD")
        for folder in os.environ.get(name, "").split(":")
        if folder
    ]
    reads = map(
        str,
        (
            *_SYSTEM,
            *(_NAMES_AND_TLS if grant.network else ()),
            *_python(tuple(sys.path), *libraries),
            *grant.read,
        ),
    )
    # `..` is resolved in the text of the path, whatever the links in it.
    granted = {
        os.path.abspath(path): _READ  # noqa: PTH100
        for path in reads
        if os.path.exists(path)  # noqa: PTH110
    }
    granted |= {os.path.abspath(path): _WRITE for path in (*grant.write, scratch)}  # noqa: PTH100
    granted.pop("/", None)
    mounts: dict[str, str] = {}
    for path, kind in sorted(granted.items()):
        target = _target(path, mounts)
        if target and (kind == _WRITE or _above(target, mounts) is None):
            mounts[target] = kind
    return sorted(mounts.items())


def _target(path: str, mounts: Mapping[str, str]) -> str | None:
    """Return where to mount a path.

    A link in a visible folder stays a link, so that its target is mounted.
    """
    for _ in range(_MOST_LINKS):
        above = _above(path, mounts)
        parts = [] if above is None else path[len(above) :].strip("/").split("/")
        steps = (f"{above}/{'/'.join(parts[: count + 1])}" for count in range(len(parts)))
        # Links are looked for in the text of the path.
        link = next((step for step in steps if os.path.islink(step)), None)  # noqa: PTH114
        if link is None:
            return path
        path = os.path.abspath(  # noqa: PTH100 - as text
            os.path.join(  # noqa: PTH118
                os.path.dirname(link),  # noqa: PTH120
                os.readlink(link),  # noqa: PTH115
            )
            + path[len(link) :]
        )
    return None


def _above(path: str, mounts: Mapping[str, str]) -> str | None:
    return next((folder for folder in map(str, Path(path).parents) if folder in mounts), None)


def _limits(grant: SandboxGrant) -> list[str]:
    """Leave a tenth of the memory and half of the free disk to others.

    If memory runs out, the kernel kills this process first. A conversion writes files of any size,
    on another disk than its scratch folder, and may use swap, which would spoil a run's figures.
    """
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 9 // 10
    free = os.statvfs(tempfile.gettempdir())
    limits = {
        "core": (resource.RLIMIT_CORE, 0),
        "data": (resource.RLIMIT_DATA, memory_bytes + (_swap_bytes() if grant.write else 0)),
        "fsize": (
            resource.RLIMIT_FSIZE,
            resource.RLIM_INFINITY if grant.write else free.f_bavail * free.f_frsize // 2,
        ),
        "nproc": (resource.RLIMIT_NPROC, _MOST_PROCESSES),
    }
    words = []
    for name, (kind, limit) in limits.items():
        if finite := [
            value for value in (limit, *resource.getrlimit(kind)) if value != resource.RLIM_INFINITY
        ]:
            words.append(f"--{name}={min(finite)}:{min(finite)}")
    programs = (["choom", "-n", "1000", "--"], ["prlimit", *words])
    return [word for program in programs if shutil.which(program[0]) for word in program]


def _swap_bytes() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("SwapTotal:"):
                return int(line.split()[1]) * 1024
    return 0


@cache
def _python(modules: tuple[str, ...], *further: str) -> tuple[str, ...]:
    """Return the paths of this interpreter's modules and libraries, but no home.

    Those of plug-ins and of a development install are among them.
    """
    packages = {
        "edgemeter.agent",
        "edgemeter.models",
        "edgemeter.collector",
        "edgemeter.provisioning",
    }
    # The process that is started reads this module too, and needs no parser of mails.
    from importlib.metadata import entry_points  # noqa: PLC0415

    registered = entry_points()
    packages |= {
        entry.module.partition(".")[0]
        for group in registered.groups
        if group.startswith("edgemeter.")
        for entry in registered.select(group=group)
    }
    folders = [
        *(
            folder
            for name in sorted(packages)
            if (spec := find_spec(name))
            for folder in (spec.submodule_search_locations or [spec.origin or ""])
        ),
        *modules,
        sys.prefix,
        sys.base_prefix,
        sys.exec_prefix,
        *map(str, Path(sys.executable).resolve().parents[:2]),
        *further,
    ]
    # `python -m` puts the working directory first, unlike the sandboxed process.
    absolute = [
        os.path.abspath(folder)  # noqa: PTH100
        for folder in folders
        if folder and (folder != os.getcwd() or folder in further)  # noqa: PTH109
    ]
    # Not resolved: the interpreter follows the links on the way.
    return tuple(dict.fromkeys(folder for folder in absolute if is_narrow(Path(folder).resolve())))


def is_narrow(folder: Path) -> bool:
    """Return whether a folder may be made visible as a whole.

    It must not be a home, a parent of one, or configuration or state of the system.
    """
    # Path.home() fails where there is none.
    home = Path(os.path.expanduser("~")).resolve()  # noqa: PTH111
    return (
        folder != home
        and folder not in home.parents
        and folder not in {Path(name) for name in _WIDE}
    )


def _environment(scratch: Path, *, is_confined: bool) -> Mapping[str, str]:
    """Return the variables of the process.

    They are those that libraries read; caches and temporary files are in its scratch folder.
    """
    import site  # noqa: PLC0415 - not imported under -S

    variables = {
        name: value
        for name, value in os.environ.items()
        if _VARIABLES.fullmatch(name) and not _SECRET.search(name)
    }
    # The user's own packages were located in the real home. A module of the working directory must
    # not shadow a library.
    return {
        **variables,
        **dict.fromkeys(_FOLDERS, str(scratch)),
        "PYTHONUSERBASE": site.getuserbase(),
        "LOGNAME": "edgemeter",
        "PYTHONSAFEPATH": "1",
        _MARK: "yes" if is_confined else "no",
    }


def _children(pid: int) -> list[int]:
    """Return the living child processes of a process.

    Source: proc_pid_stat(5): the parent follows the state.
    """
    children = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            if stat.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[
                1
            ] == str(pid):
                children.append(int(stat.parent.name))
    return children


def existing(paths: Iterable[Path]) -> tuple[Path, ...]:
    return tuple(path for path in paths if path.exists())
