"""A filter of system calls: no other processes, no sockets, no signals to others, no change of modes and owners, whatever the kernel's age.

What the filter judges, it judges by number and by arguments that are no addresses; Landlock or mounts judge paths, but not changes of a
file's times, modes, owners and attributes. Calls on a process name this one, or none. One stays open: `sched_setaffinity`, with which
libraries pin their threads, also moves other processes of the user among the cores. Calls without a rule are allowed: on kernels from 5.11
on these do not run the filter at all, on older ones a search of eight comparisons.
Source: https://docs.kernel.org/userspace-api/seccomp_filter.html; numbers: arch/x86/entry/syscalls/syscall_64.tbl,
include/uapi/asm-generic/unistd.h (aarch64, riscv64), arch/arm/tools/syscall.tbl.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal

Network = Literal["none", "usb", "tcp"]
Program = list[tuple[int, int, int, int]]

# Of x86-64, of aarch64 and riscv64, of 32-bit ARM; 0 where an architecture has none.
_NUMBERS: Mapping[str, tuple[int, int, int]] = {
    "socket": (41, 198, 281), "connect": (42, 203, 283), "bind": (49, 200, 282), "socketpair": (53, 199, 288),
    "clone": (56, 220, 120), "clone3": (435, 435, 435), "fork": (57, 0, 2), "vfork": (58, 0, 190),
    "execve": (59, 221, 11), "execveat": (322, 281, 387), "setsid": (112, 157, 66), "setpgid": (109, 154, 57),
    "kill": (62, 129, 37), "tkill": (200, 130, 238), "tgkill": (234, 131, 268), "rt_sigqueueinfo": (129, 138, 178),
    "rt_tgsigqueueinfo": (297, 240, 363), "pidfd_send_signal": (424, 424, 424), "pidfd_open": (434, 434, 434),
    "pidfd_getfd": (438, 438, 438), "ptrace": (101, 117, 26), "process_vm_readv": (310, 270, 376), "process_vm_writev": (311, 271, 377),
    "process_madvise": (440, 440, 440), "prctl": (157, 167, 172), "prlimit64": (302, 261, 369),
    "sched_setscheduler": (144, 119, 156), "sched_setparam": (142, 118, 154), "sched_setattr": (314, 274, 380),
    "setpriority": (141, 140, 97), "ioprio_set": (251, 30, 314), "kcmp": (312, 272, 378),
    "move_pages": (279, 239, 344), "migrate_pages": (256, 238, 400),
    "fcntl": (72, 25, 55), "fcntl64": (0, 0, 221), "ioctl": (16, 29, 54),
    "unshare": (272, 97, 337), "setns": (308, 268, 375), "mount": (165, 40, 21), "chroot": (161, 51, 61),
    "pivot_root": (155, 41, 218), "umount2": (166, 39, 52), "open_tree": (428, 428, 428), "open_tree_attr": (467, 467, 467),
    "move_mount": (429, 429, 429), "fsopen": (430, 430, 430), "fsconfig": (431, 431, 431), "fsmount": (432, 432, 432),
    "fspick": (433, 433, 433), "mount_setattr": (442, 442, 442),
    "bpf": (321, 280, 386), "perf_event_open": (298, 241, 364), "userfaultfd": (323, 282, 388), "io_uring_setup": (425, 425, 425),
    "add_key": (248, 217, 309), "request_key": (249, 218, 310), "keyctl": (250, 219, 311), "open_by_handle_at": (304, 265, 371),
    "chmod": (90, 0, 15), "fchmod": (91, 52, 94), "fchmodat": (268, 53, 333), "fchmodat2": (452, 452, 452),
    "chown": (92, 0, 182), "fchown": (93, 55, 95), "lchown": (94, 0, 16), "fchownat": (260, 54, 325),
    "chown32": (0, 0, 212), "fchown32": (0, 0, 207), "lchown32": (0, 0, 198),
    "setxattr": (188, 5, 226), "lsetxattr": (189, 6, 227), "fsetxattr": (190, 7, 228), "setxattrat": (463, 463, 463),
    "removexattr": (197, 14, 235), "lremovexattr": (198, 15, 236), "fremovexattr": (199, 16, 237), "removexattrat": (466, 466, 466),
    "file_setattr": (469, 469, 469),
    "utime": (132, 0, 30), "utimes": (235, 0, 269), "futimesat": (261, 0, 326), "utimensat": (280, 88, 348), "utimensat64": (0, 0, 412),
    "truncate": (76, 45, 92), "truncate64": (0, 0, 193),
    "mq_open": (240, 180, 274), "shmget": (29, 194, 307), "semget": (64, 190, 299), "msgget": (68, 186, 303),
    "open": (2, 0, 5), "openat": (257, 56, 322), "openat2": (437, 437, 437), "creat": (85, 0, 8),
    "mkdir": (83, 0, 39), "mkdirat": (258, 34, 323), "mknod": (133, 0, 14), "mknodat": (259, 33, 324),
    "unlink": (87, 0, 10), "unlinkat": (263, 35, 328), "rmdir": (84, 0, 40), "rename": (82, 0, 38), "renameat": (264, 38, 329),
    "renameat2": (316, 276, 382), "link": (86, 0, 9), "linkat": (265, 37, 330), "symlink": (88, 0, 83), "symlinkat": (266, 36, 331),
}  # fmt: skip
# The calls that start programs; all stay in the process group, which ends with the run.
_OF_PROCESSES = ("fork", "vfork", "execve", "execveat")
# The calls that copies are made with, besides reading and writing: by descriptors, which Landlock has judged.
_OF_COPIES = ("fchmod", "fchown", "fchown32")
# The calls that act on the process, or the thread, that their first argument names.
_BY_PROCESS = ("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr", "move_pages", "migrate_pages")
# Where neither Landlock nor a root of its own keeps the files: nothing is created, renamed, removed or opened for writing alone.
_WRITES = ("creat", "mkdir", "mkdirat", "mknod", "mknodat", "unlink", "unlinkat", "rmdir", "rename", "renameat", "renameat2",
           "link", "linkat", "symlink", "symlinkat")  # fmt: skip
_O_WRONLY, _O_RDWR, _O_CREAT, _O_TRUNC = 0o1, 0o2, 0o100, 0o1000

# By machine: the column above, AUDIT_ARCH, and the numbers of seccomp(2).
_MACHINES = {"x86_64": (0, 0xC000003E, 317), "aarch64": (1, 0xC00000B7, 277), "riscv64": (1, 0xC00000F3, 277), "arm": (2, 0x40000028, 383)}
_LOAD, _JUMP, _JUMP_GE, _JUMP_ANY_BIT, _AND, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_X32 = 0x40000000
_OF_ARGUMENTS = 16  # Where the arguments begin in struct seccomp_data.
_CLONE_THREAD, _CLONE_NAMESPACES = 0x10000, 0x7E020000
_PR_SET_PDEATHSIG = 1
_PRIO_PROCESS, _IOPRIO_PROCESS = 0, 1
# Whom the kernel signals about a file: any process of the user, by any signal.
_F_SETOWN, _F_SETOWN_EX, _FIOSETOWN, _SIOCSPGRP = 8, 15, 0x8901, 0x8902
_SET_FILTER, _ALL_THREADS, _NO_SPECULATION_COST = 1, 1, 4
_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK, _UEVENTS = 1, 2, 10, 16, 15
_STREAM, _SEQPACKET = 1, 5


class _Filter(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_void_p)]


def restrict(network: Network, *, processes: bool, files: bool, signals: bool, devices: bool = True) -> bool:
    """Filter the system calls of this process and of what it starts; `no_new_privs` must be set.

    `network`: no sockets, or with `devices` what reaches nothing; those of the kernel's device events, for libusb; or TCP and DNS,
    without a port of its own. `processes` allows to start programs, and to change modes and times of opened files; with `signals`, which
    Landlock judges then, also to end programs. `files` also refuses to create files, to open them for writing alone and, without
    `devices`, for reading and writing.

    Returns:
        Whether the filter is in force: not on other architectures, nor where the kernel is built without it.
    """
    machine = _machine()
    if machine is None:
        return False
    blocks = _rules(network, processes=processes, signals=signals, devices=devices, pid=os.getpid())
    program = _program(blocks | (_of_files(devices=devices) if files else {}), machine)
    packed = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *instruction) for instruction in program))
    libc = ctypes.CDLL(None, use_errno=True)
    argument = _Filter(len(program), ctypes.addressof(packed))
    for flags in (_ALL_THREADS | _NO_SPECULATION_COST, _ALL_THREADS):
        if libc.syscall(ctypes.c_long(machine[2]), ctypes.c_uint(_SET_FILTER), ctypes.c_uint(flags), ctypes.byref(argument)) == 0:
            return True
    return False


def is_known() -> bool:
    """Return whether this machine's system calls are known here, and its kernel has filters."""
    return _machine() is not None and Path("/proc/sys/kernel/seccomp/actions_avail").exists()


def number(name: str) -> int:
    """Return this machine's number of a system call, -1 where it is not known here."""
    machine = _machine()
    return -1 if machine is None else _NUMBERS[name][machine[0]]


def _machine() -> tuple[int, int, int] | None:
    # A 32-bit system may run on a 64-bit kernel.
    if struct.calcsize("P") == 4:
        return _MACHINES["arm"] if platform.machine().startswith(("arm", "aarch64")) else None
    return _MACHINES.get(platform.machine())


def _rules(network: Network, *, processes: bool, signals: bool, devices: bool, pid: int) -> dict[str, Program]:
    """Return by system call what judges it, to be run after its number was recognised."""
    blocks = {name: _refuse() for name in _NUMBERS if name not in {"open", "openat", "openat2", *_WRITES}}
    blocks["clone3"] = _refuse(errno.ENOSYS)
    blocks["clone"] = [_load(0), (_JUMP_ANY_BIT, 1, 0, _CLONE_THREAD), *_refuse(), _allow()]
    # A datagram socket could be connected anew, to a service of this machine.
    blocks["socketpair"] = [_load(1), (_AND, 0, 0, 0xF), *_only(_STREAM, _SEQPACKET)]
    blocks["kill"] = blocks["tgkill"] = [_load(0), *_only(pid)]
    blocks |= {name: [_load(0), *_only(0, pid)] for name in _BY_PROCESS}
    blocks["setpriority"] = [*_must_be(_PRIO_PROCESS), _load(1), *_only(0, pid)]
    blocks["ioprio_set"] = [*_must_be(_IOPRIO_PROCESS), _load(1), *_only(0, pid)]
    blocks["kcmp"] = [*_must_be(pid), _load(1), *_only(pid)]
    blocks["fcntl"] = blocks["fcntl64"] = [_load(1), *_all_but(_F_SETOWN, _F_SETOWN_EX)]
    blocks["ioctl"] = [_load(1), *_all_but(_FIOSETOWN, _SIOCSPGRP)]
    blocks["prctl"] = [_load(0), *_all_but(_PR_SET_PDEATHSIG)]
    if processes:
        for name in (*_OF_PROCESSES, *_OF_COPIES, *(("kill", "tgkill") if signals else ())):
            del blocks[name]
        # No path: both halves of its address are 0.
        blocks["utimensat"] = blocks["utimensat64"] = [*_must_be(0, argument=1), (_LOAD, 0, 0, _OF_ARGUMENTS + 8 + 4), *_only(0)]
        blocks["clone"] = [_load(0), (_JUMP_ANY_BIT, 0, 1, _CLONE_NAMESPACES), *_refuse(), _allow()]
    if network == "none" and devices:
        # libcuda binds a socket of its own name, to hand descriptors over. Neither kind reaches a service without `connect`.
        stream = [_load(1), (_AND, 0, 0, 0xF), *_only(_STREAM, _SEQPACKET)]
        blocks["socket"] = [*_must_be(_AF_UNIX), *stream]
        del blocks["bind"]
    if network == "usb":
        blocks["socket"] = [_load(0), (_JUMP, 0, 2, _AF_NETLINK), _load(2), (_JUMP, 1, 0, _UEVENTS), *_refuse(), _allow()]
        del blocks["bind"]
    if network == "tcp":
        blocks["socket"] = [_load(0), *_only(_AF_INET, _AF_INET6)]
        del blocks["connect"]
    return blocks


def _of_files(*, devices: bool) -> dict[str, Program]:
    """Return what keeps files from being created and changed; `devices` are opened for reading and writing, and so can be files."""
    refused = _O_CREAT | _O_TRUNC | _O_WRONLY | (0 if devices else _O_RDWR)
    opens = {name: [_load(flags), (_JUMP_ANY_BIT, 0, 1, refused), *_refuse(), _allow()] for name, flags in (("open", 1), ("openat", 2))}
    return {**{name: _refuse() for name in _WRITES}, **opens, "openat2": _refuse(errno.ENOSYS)}


def _load(argument: int) -> tuple[int, int, int, int]:
    # The lower half of a 64-bit argument; every machine of the table is little-endian.
    return (_LOAD, 0, 0, _OF_ARGUMENTS + 8 * argument)


def _allow() -> tuple[int, int, int, int]:
    return (_RETURN, 0, 0, _ALLOW)


def _refuse(number: int = errno.EPERM) -> Program:
    return [(_RETURN, 0, 0, _ERRNO | number)]


def _only(*values: int) -> Program:
    """Allow these values of what was loaded."""
    return [*((_JUMP, len(values) - index, 0, value) for index, value in enumerate(values)), *_refuse(), _allow()]


def _all_but(*values: int) -> Program:
    """Refuse these values of what was loaded."""
    return [*((_JUMP, len(values) - index, 0, value) for index, value in enumerate(values)), _allow(), *_refuse()]


def _must_be(value: int, *, argument: int = 0) -> Program:
    """Refuse other values of an argument, and go on."""
    return [_load(argument), (_JUMP, 1, 0, value), *_refuse()]


def _program(rules: Mapping[str, Program], machine: tuple[int, int, int]) -> Program:
    column, architecture, _ = machine
    blocks = {_NUMBERS[name][column]: block for name, block in rules.items() if _NUMBERS[name][column]}
    start: Program = [(_LOAD, 0, 0, 4), (_JUMP, 1, 0, architecture), (_RETURN, 0, 0, _KILL), (_LOAD, 0, 0, 0)]
    # On x86-64 the x32 numbers would be a second door to every call.
    return [*start, (_JUMP_GE, 0, 1, _X32), *_refuse(), *_search(sorted(blocks), blocks)]


def _search(numbers: Sequence[int], blocks: Mapping[int, Program]) -> Program:
    """Return a binary search for the number, each leaf with the block of its call."""
    if len(numbers) == 1:
        block = blocks[numbers[0]]
        return [(_JUMP, 0, len(block), numbers[0]), *block, _allow()]
    middle = len(numbers) // 2
    lower, upper = _search(numbers[:middle], blocks), _search(numbers[middle:], blocks)
    return [(_JUMP_GE, len(lower), 0, numbers[middle]), *lower, *upper]
