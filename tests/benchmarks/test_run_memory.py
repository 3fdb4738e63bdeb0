"""Facts about the memory and processor time of a command's processes."""

import os
import signal
import sys

import pytest

from tests.benchmarks import run_memory

LIBRARY = """\
7f0000000000-7f0000800000 r-xp 00000000 08:01 42                         /usr/lib/libmodel.so
Rss:                {rss} kB
Pss:                {pss} kB
Shared_Clean:       {shared} kB
Private_Clean:         0 kB
Private_Dirty:       {own} kB
Anonymous:           {own} kB
"""
HEAP = """\
555500000000-555500800000 rw-p 00000000 00:00 0                          [heap]
Pss:                {pss} kB
Shared_Dirty:       {shared} kB
Private_Dirty:       {own} kB
Anonymous:           {rss} kB
VmFlags: rd wr mr mw me ac sd
"""


def process(shared_kb, *, heap_kb, inherited_kb=0):
    """Return what a process holds of a library, and of a heap a part of which it inherited from its only relative."""
    library = LIBRARY.format(rss=shared_kb + 10, pss=shared_kb // 3 + 10, shared=shared_kb, own=10)
    heap = HEAP.format(rss=heap_kb, pss=heap_kb - inherited_kb // 2, shared=inherited_kb, own=heap_kb - inherited_kb)
    return run_memory.pages_of(library + heap)


def test_a_page_that_processes_share_counts_once():
    """Of the library the larger part, whoever else maps it; of the heap what each has, and what one inherited once."""
    together = [process(900, heap_kb=5000, inherited_kb=1000), process(800, heap_kb=3000, inherited_kb=1000)]
    assert run_memory.held_once(together) == 1024 * (2 * 10 + 900 + 5000 + 3000 - 1000)


def test_pages_that_a_file_backs_stand_apart():
    """Those that a process wrote to are its own."""
    pages = process(900, heap_kb=5000)
    assert (pages["/usr/lib/libmodel.so"].file_backed, pages[""].file_backed) == (1024 * 900, 0)
    assert (pages["/usr/lib/libmodel.so"].anonymous, pages[""].anonymous) == (1024 * 10, 1024 * 5000)


def test_a_child_that_is_still_a_copy_is_left_out():
    """Until it has become another program."""
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        assert child not in list(run_memory.family(os.getpid()))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_cost_of_a_command_has_its_children():
    """Memory of both at once, and the processor time of a child that has ended."""
    child = "import time; held = b'x' * 40_000_000; begin = time.process_time()\nwhile time.process_time() - begin < 0.3: pass"
    parent = f"import subprocess, sys; held = b'x' * 60_000_000; subprocess.run([sys.executable, '-c', {child!r}])"
    cost = run_memory.cost_of([sys.executable, "-c", parent], os.environ)
    assert 100 < cost.memory_mb < 140
    assert 100 < cost.anonymous_mb < cost.memory_mb
    assert cost.cpu_s > 0.3
    assert len(cost.processes) == 2


def test_a_command_that_fails_has_no_cost():
    """Its memory would be that of an error message."""
    with pytest.raises(run_memory.subprocess.CalledProcessError):
        run_memory.cost_of([sys.executable, "-c", "raise SystemExit(3)"], os.environ)
