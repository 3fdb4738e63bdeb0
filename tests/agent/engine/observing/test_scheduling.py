"""Facts about `edgemeter.agent.engine.observing.scheduling`."""

import os
import subprocess
import sys
import threading
import time

import pytest

from edgemeter.agent.engine.observing import scheduling
from tests.fixtures.machine_trees import write

SPIN = "import time\nend = time.monotonic() + 20\nwhile time.monotonic() < end: pass"


def test_the_times_of_all_threads_are_counted_together(tmp_path):
    """Ran and waited, ns; a thread without counters is left out."""
    threads = {f"self/task/{thread}/schedstat": f"{thread}000000 {thread}00000 9\n" for thread in (1, 2, 3)}
    found = scheduling.read(str(write(tmp_path, threads | {"self/task/4/schedstat": "garbage\n"})))
    assert (found.ran_ns, found.waited_ns) == (6_000_000, 600_000)


def test_a_kernel_without_counters_says_nothing(tmp_path):
    """Unknown is null, not zero; preemptions are counted elsewhere, and a thread that ended takes no time back."""
    empty = scheduling.read(str(tmp_path))
    assert (empty.ran_ns, empty.waited_ns) == (None, None)
    known = scheduling.Counters(5_000_000, 1_000_000, 3, 10_000_000)
    assert (scheduling.between(empty, known).ran_ms, scheduling.between(empty, known).waited_ms) == (None, None)
    after = scheduling.between(known, scheduling.Counters(4_000_000, 3_500_000, 7, 30_000_000))
    assert (after.ran_ms, after.waited_ms, after.preemptions, after.window_ms) == (0.0, 2.5, 4, 20.0)
    assert after.cores == len(os.sched_getaffinity(0))


def test_work_of_a_thread_shows_as_time_that_ran():
    """The real kernel: about as long as it worked, where the kernel counts."""
    first = scheduling.read()
    if first.ran_ns is None:
        pytest.skip("this kernel keeps no schedstat")
    begin = time.thread_time()
    while time.thread_time() - begin < 0.1:
        pass
    assert scheduling.between(first, scheduling.read()).ran_ms >= 90


@pytest.mark.slow
def test_waiting_for_a_core_that_somebody_else_uses_is_seen():
    """Two that spin on one core: each waits about half of the time."""
    if scheduling.read().waited_ns is None:
        pytest.skip("this kernel keeps no schedstat")
    core = min(os.sched_getaffinity(0))
    found = []

    def work():
        os.sched_setaffinity(0, {core})
        first, end = scheduling.read(), time.monotonic() + 0.5
        while time.monotonic() < end:
            pass
        found.append(scheduling.between(first, scheduling.read()))

    spin = subprocess.Popen([sys.executable, "-c", SPIN], preexec_fn=lambda: os.sched_setaffinity(0, {core}))  # noqa: PLW1509
    try:
        time.sleep(0.3)
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        spin.kill()
        spin.wait()
    assert found[0].waited_ms > 0.25 * found[0].window_ms
