import os

from edgemeter.agent.engine import process_usage
from tests.fixtures.machine_trees import write


def test_the_times_of_all_threads_are_counted_together(tmp_path):
    """The times ran and waited are in ns, and a thread without counters is left out."""
    threads = {
        f"self/task/{thread}/schedstat": f"{thread}000000 {thread}00000 9\n" for thread in (1, 2, 3)
    }
    counters = process_usage.read_scheduling(
        str(write(tmp_path, threads | {"self/task/4/schedstat": "garbage\n"}))
    )
    assert (counters.ran_ns, counters.waited_ns) == (6_000_000, 600_000)


def test_a_kernel_without_counters_gives_none(tmp_path):
    """An unknown time is null and not zero, and a thread that ended takes no time back."""
    empty = process_usage.read_scheduling(str(tmp_path))
    assert (empty.ran_ns, empty.waited_ns) == (None, None)
    counters = process_usage.SchedulingCounters(5_000_000, 1_000_000, 10_000_000)
    assert (
        process_usage.scheduling_between(empty, counters).ran_ms,
        process_usage.scheduling_between(empty, counters).waited_ms,
    ) == (
        None,
        None,
    )
    after = process_usage.scheduling_between(
        counters, process_usage.SchedulingCounters(4_000_000, 3_500_000, 30_000_000)
    )
    assert after.ran_ms == 0.0
    assert after.waited_ms == 2.5
    assert after.window_ms == 20.0
    assert after.cores == len(os.sched_getaffinity(0))
    # Threads of users and arrivals end meanwhile, and the kernel drops their own counts with them.
    first = process_usage.SchedulingCounters(50_000_000, 0, 0, cpu_ns=70_000_000)
    second = process_usage.SchedulingCounters(51_000_000, 0, 10_000_000, cpu_ns=79_000_000)
    assert process_usage.scheduling_between(first, second).ran_ms == 9.0
