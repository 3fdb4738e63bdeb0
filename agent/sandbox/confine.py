"""Sets up the sandbox of this process, before it has threads and before it opens anything of others."""

import ctypes
import os
import resource
import signal
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from edgemeter.agent.base.errors import UnavailableError
from edgemeter.agent.sandbox import landlock, mounts, seccomp
from edgemeter.agent.sandbox.policy import SandboxPolicy

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS = 1, 38
# Of root's capabilities these stay: reading what belongs to others (the grant says which), and pinned memory.
_CAPABILITIES = 1 << 2 | 1 << 14
_CAPABILITY_VERSION = 0x20080522
_THREADS = 4096
_OWN_THREADS, _NVIDIA = "/proc/self/task", "/dev/nv"
NO_FILES = "this kernel gives neither Landlock nor namespaces: a model could read the files of this user"
ALL_CHANGES = "change, create and remove them, and start programs"
NO_SECCOMP = "no filter of system calls on this kernel: a model could start processes and open connections"


@dataclass(frozen=True, slots=True)
class Sandbox:
    """The limits of this process; with `mounts` it has a root directory of its own, in the place of Landlock.

    `missing` is what could not be set up on this kernel, and what a model could do for that.
    """

    mounts: bool
    missing: tuple[str, ...] = ()


_sandbox: Sandbox | None = None
_started_ns: int | None = None


def sandbox() -> Sandbox | None:
    """Return the sandbox of this process, None if it has none."""
    return _sandbox


def started_ns() -> int | None:
    """Return the monotonic clock at the start of this process, before its sandbox; None if it has none."""
    return _started_ns


def confine(policy: SandboxPolicy, started_ns: int) -> None:
    """Put this process, which began at `started_ns`, into a sandbox that it cannot leave; it ends with the process that started it.

    Raises:
        UnavailableError: the policy needs confined files, and the kernel has nothing to confine them with.
        MeasurementError: the kernel has Landlock, but does not apply it, or a root directory of its own was begun and could not be made.
    """
    global _sandbox, _started_ns  # noqa: PLW0603 - states of the process
    _started_ns = started_ns
    libc = ctypes.CDLL(None, use_errno=True)
    _limit(policy)
    abi = landlock.abi()
    # First, while this process may still map ids and mount.
    is_mounted = abi is None and mounts.restrict(_granted(policy, mounts.READ, mounts.DEVICE, mounts.WRITE, mounts.WRITE), policy.scratch)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != policy.parent:
        sys.exit(1)
    libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    _drop_capabilities(libc)
    read = landlock.EXECUTE if policy.processes else landlock.READ
    landlock.restrict(_granted(policy, read, landlock.DEVICE, landlock.CHANGE, landlock.WRITE), policy.tcp_port)
    only_filter = abi is None and not is_mounted
    if only_filter and policy.needs_confined_files:
        raise UnavailableError(f"{NO_FILES}, {ALL_CHANGES}: convert only a model that you trust, with --trusted")
    if only_filter:
        # Nothing can be written there, which libraries that ask for its name would try.
        tempfile.tempdir = policy.scratch
    filtered = seccomp.restrict(
        policy.network, processes=policy.processes, files=only_filter and not policy.processes,
        signals=(abi or 0) >= landlock.SCOPES_SIGNALS, devices=policy.accelerator,
    )  # fmt: skip
    changes = "and change them" if policy.accelerator or not filtered else "though not change them"
    changes = ALL_CHANGES if policy.processes else changes
    missing = (*([f"{NO_FILES}, {changes}"] if only_filter else []), *([] if filtered else [NO_SECCOMP]))
    _sandbox = Sandbox(mounts=is_mounted, missing=missing)


def _granted(policy: SandboxPolicy, read: int, device: int, change: int, write: int) -> list[tuple[str, int]]:
    """Return the policy's paths, each with the right that stands for its kind; the later counts more."""
    # libcuda names its threads there, and fails where it cannot. A model could undo its oom_score_adj there too: for NVIDIA's only.
    threads = (_OWN_THREADS,) if policy.accelerator and any(path.startswith(_NVIDIA) for path in policy.devices) else ()
    kinds = ((read, policy.read), (device, policy.devices), (change, threads), (write, (policy.scratch, *policy.write)))
    return [(path, right) for right, paths in kinds for path in paths]


def _limit(policy: SandboxPolicy) -> None:
    """Leave a tenth of the memory and half of the free disk to others; if memory runs out, the kernel ends this process first.

    A conversion writes files of any size, on another disk than its scratch folder, and may use swap, which would spoil a run's figures.
    """
    memory_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") * 9 // 10
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")
    for kind, limit in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, memory_bytes + (_swap_bytes() if policy.write else 0)),
        (resource.RLIMIT_FSIZE, resource.RLIM_INFINITY if policy.processes else _free_bytes() // 2),
        (resource.RLIMIT_NPROC, _THREADS),
    ):
        soft, hard = resource.getrlimit(kind)
        lowest = min((value for value in (limit, soft, hard) if value != resource.RLIM_INFINITY), default=resource.RLIM_INFINITY)
        resource.setrlimit(kind, (lowest, lowest))


def _swap_bytes() -> int:
    with suppress(OSError, ValueError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("SwapTotal:"):
                return int(line.split()[1]) * 1024
    return 0


def _free_bytes() -> int:
    free = os.statvfs(os.environ.get("TMPDIR", "/tmp"))  # noqa: S108 - where the scratch folder lies
    return free.f_bavail * free.f_frsize


def _drop_capabilities(libc: ctypes.CDLL) -> None:
    # In a user namespace of its own every user has them all.
    remaining = _CAPABILITIES if os.geteuid() == 0 else 0
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)
    # Two blocks of effective, permitted, inheritable; the first has all that are named above.
    sets = (ctypes.c_uint32 * 6)()
    if libc.capget(header, sets) == 0:
        for index in range(6):
            sets[index] &= remaining if index < 2 else 0
        libc.capset(header, sets)
