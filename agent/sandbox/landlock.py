"""Landlock: the kernel's own limits on files, TCP ports and signals, which a process sets on itself and cannot lift.

Each version of the interface (ABI) adds rights: 2 moves between folders, 3 truncation, 4 TCP ports, 5 ioctl on devices, 6 abstract sockets
and signals. What a kernel does not know is left to the filter of system calls (`seccomp.py`).
Source: https://docs.kernel.org/userspace-api/landlock.html and include/uapi/linux/landlock.h.
"""

import ctypes
import os
import stat
from collections.abc import Iterable
from contextlib import suppress

from edgemeter.agent.base.errors import MeasurementError

# The same numbers on every architecture.
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_VERSION = 1
_BENEATH_PATH, _TCP_PORT = 1, 2
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL_DEV = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14, 1 << 15
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_BIND_TCP, _CONNECT_TCP = 1 << 0, 1 << 1
_ABSTRACT_SOCKETS, _SIGNALS = 1 << 0, 1 << 1
# The rights on files that each ABI knows.
_FILE_RIGHTS = {1: 1 << 13, 2: 1 << 14, 3: 1 << 15, 4: 1 << 15, 5: 1 << 16}

SCOPES_SIGNALS = 6  # From this ABI on signals reach only processes of the same sandbox.
READ = _READ_FILE | _READ_DIR
EXECUTE = READ | _EXECUTE
DEVICE = READ | _WRITE_FILE | _IOCTL_DEV
CHANGE = READ | _WRITE_FILE | _TRUNCATE
WRITE = (1 << 16) - 1 - _MAKE_CHAR - _MAKE_BLOCK


class _PathRule(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = [("allowed", ctypes.c_uint64), ("descriptor", ctypes.c_int32)]


_libc = ctypes.CDLL(None, use_errno=True)


def _call(number: int, *arguments: object) -> int:
    returned: int = _libc.syscall(ctypes.c_long(number), *arguments)
    if returned < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return returned


def abi() -> int | None:
    """Return the kernel's version of Landlock, None where it has none, or it is switched off."""
    try:
        return _call(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION))
    except OSError:
        return None


def restrict(rights: Iterable[tuple[str, int]], tcp_port: int | None = None) -> int | None:
    """Limit this process, and what it starts, to these rights on these files and folders, and to connections to one TCP port or none.

    Applies to the calling thread and its later children: call it before there are other threads. Absent paths are left out.

    Returns:
        The ABI that is in force, None where the kernel has no Landlock.

    Raises:
        MeasurementError: the kernel has it and does not apply it.
    """
    version = abi()
    if version is None:
        return None
    handled = _FILE_RIGHTS[min(version, max(_FILE_RIGHTS))] - 1
    words = [handled]
    if version >= 4:
        words.append(_BIND_TCP | _CONNECT_TCP)
    if version >= SCOPES_SIGNALS:
        words.append(_ABSTRACT_SOCKETS | _SIGNALS)
    try:
        attributes = (ctypes.c_uint64 * len(words))(*words)
        ruleset = _call(_CREATE_RULESET, ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes)), ctypes.c_uint32(0))
        for path, right in rights:
            # Absent, or not even to be looked up by this user: then there is nothing to allow.
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError, ValueError):
                _allow(ruleset, path, right & handled)
        if tcp_port is not None and version >= 4:
            rule = (ctypes.c_uint64 * 2)(_CONNECT_TCP, tcp_port)
            _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_TCP_PORT), ctypes.byref(rule), ctypes.c_uint32(0))
        _call(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0))
        os.close(ruleset)
    except OSError as error:
        raise MeasurementError(f"Landlock (ABI {version}) could not be set up: {error}; no model runs without it on this kernel") from error
    return version


def _allow(ruleset: int, path: str, right: int) -> None:
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        if not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            right &= _OF_FILES
        rule = _PathRule(right, descriptor)
        _call(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_BENEATH_PATH), ctypes.byref(rule), ctypes.c_uint32(0))
    finally:
        os.close(descriptor)
