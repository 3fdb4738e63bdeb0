"""Jobs in waves: by counts alone, and with the real handlers and devices that answer by hand."""

import random
from collections import Counter

import pytest

from edgemeter.agent.contract.orders import FINAL, Order
from edgemeter.provisioning.jobs.job_progress import JobProgressHandler
from edgemeter.provisioning.jobs.job_view import wait_reasons
from edgemeter.provisioning.jobs.waves import change_job, in_waves, next_step
from edgemeter.provisioning.registry import jobs
from edgemeter.provisioning.registry.jobs import Job, NewJob, Target
from tests.fixtures.job_bench import SUITE, Bench, Measure
from tests.fixtures.rows import table_row


def running(waves=3, ratio=0.2):
    return Job(
        works=(), title="t", timeout_s=1.0, max_failed_ratio=ratio, job="j", made_ns=0,
        state="running", reason=None, wave=0, waves=waves,
        judged_from=0, ended_ns=None,
    )  # fmt: skip


def test_the_next_wave_begins_or_the_job_stops():
    """At the edges of the share that may fail, a job goes on or stops, whatever the failure was."""
    for counts, expected in (
        ({(0, "queued"): 5, (1, "held"): 5}, None),
        ({(0, "done"): 3, (0, "running"): 2, (1, "held"): 5}, None),
        # Whoever is offline holds up nobody, if that may fail.
        ({(0, "done"): 4, (0, "queued"): 1, (1, "held"): 5}, ("running", 1)),
        ({(0, "repeating"): 4, (0, "queued"): 1, (1, "held"): 5}, ("running", 1)),
        ({(0, "done"): 3, (0, "failed"): 2, (1, "held"): 5}, ("stopped", 0)),
        ({(0, "done"): 8, (0, "failed"): 1, (0, "timed_out"): 1, (1, "held"): 5}, ("running", 1)),
        # Too many failed already, though two are still at it.
        ({(0, "done"): 2, (0, "failed"): 1, (0, "rejected"): 1, (0, "running"): 2}, ("stopped", 0)),
        ({(0, "failed"): 1, (1, "held"): 5}, ("stopped", 0)),
        # A cancelled execution does not count.
        ({(0, "done"): 1, (0, "cancelled"): 9, (1, "held"): 5}, ("running", 1)),
        ({(0, "cancelled"): 5, (1, "held"): 5}, ("running", 1)),
        ({(0, "done"): 5, (1, "failed"): 5}, ("done", 0)),
        ({(0, "cancelled"): 5}, ("cancelled", 0)),
    ):
        with table_row(counts):
            step = next_step(running(), counts, counts, 9)
            assert (None if step is None else (step.state, step.wave)) == expected


def test_a_job_always_comes_to_an_end():
    """Every job ends, whatever its executions' outcomes, which are drawn at random.

    Each step releases the next wave, ends the job, or waits for executions that are still open.
    """
    draw = random.Random(3)  # noqa: S311 - a test
    for _ in range(50):
        waves = draw.randint(1, 4)
        states = {
            (wave, number): "held" for wave in range(waves) for number in range(draw.randint(1, 4))
        }
        job = running(waves, draw.choice([0.0, 0.2, 0.5, 1.0]))
        states.update({key: "queued" for key in states if key[0] == 0})
        for _ in range(200):
            counts = Counter((wave, state) for (wave, _), state in states.items())
            step = next_step(job, counts, counts, 9)
            if step is not None:
                job = step
                states.update(
                    {
                        key: "queued"
                        for key, state in states.items()
                        if key[0] <= job.wave and state == "held"
                    }
                )
                if job.state != "running":
                    break
                continue
            still = [key for key, state in states.items() if state == "queued"]
            assert still, (job, counts)
            states[draw.choice(still)] = draw.choice(sorted(FINAL))
        assert job.state in {"done", "stopped", "cancelled"}
        if job.state == "done":
            assert all(state in FINAL for state in states.values())


def test_waves_mix_the_boards():
    """Waves mix the kinds of boards: a wave of two has two kinds.

    Their ends are numbers or shares of the devices, in any order.
    """
    kinds = {f"p{number}": "pi5" for number in range(8)} | {"o1": "orin", "o2": "orin"}
    waves = in_waves(kinds, ("20%", "5", "8"))
    assert {name for name, wave in waves.items() if wave == 0} == {"p0", "o1"}
    for ends, sizes in (
        (("20%", "5", "8"), [2, 3, 3, 2]),
        (("8", "5", "20%"), [2, 3, 3, 2]),
        ((), [10]),
        (("100%",), [10]),
        (("10", "50", "100"), [10]),
        (("0%", "0.1%", "7%", "10%"), [1, 9]),
        (("1", "1", "10%"), [1, 9]),
    ):
        with table_row(ends):
            counts = Counter(in_waves(kinds, ends).values())
            assert [counts[wave] for wave in range(len(counts))] == sizes
    hundred = {f"d{number}": "pi5" for number in range(100)}
    assert Counter(in_waves(hundred, ("7%",)).values()) == {0: 7, 1: 93}


class World(Bench):
    """A bench with the handler of waves, and devices a to d online."""

    def start(self):
        super().start()
        self.progress = JobProgressHandler(self.folder, self.registry, lambda *_, **__: None)
        self.online(*"abcd")

    def begin(self, waves, ratio=0.0):
        """Add a job on a to d, each in the wave that is said."""
        new = NewJob((Measure(suite=SUITE),), "t", 100.0, max_failed_ratio=ratio)
        with self.registry.transaction() as statements:
            self.job = jobs.add(
                statements,
                new,
                [Target(name, "lab", wave) for name, wave in waves.items()],
                self.now_ns,
            )

    def orders(self):
        """Let both handlers look, and return what goes out by device."""
        self.now_ns += 2 * 10**9
        self.progress.poll(self.now_ns)
        return {device: order for device, order in self.poll(0) if isinstance(order, Order)}

    def end(self, orders, state="done", **fields):
        for name, order in orders.items():
            self.report(name, order, state, order.version, **fields)
        self.poll(0)

    def change(self, change, device=None):
        return change_job(self.registry, self.job, change, device, self.now_ns)

    @property
    def state(self):
        job = jobs.find(self.registry, self.job)
        return job.state, job.wave


def test_a_wave_measures_when_the_one_before_is_done(bench):
    """No device measures before its wave begins, and the job has ended after the last one."""
    bench.begin({"a": 0, "b": 0, "c": 1, "d": 2})
    for wave, names in enumerate(("ab", "c", "d")):
        orders = bench.orders()
        assert set(orders) == set(names)
        assert bench.orders() == {}
        assert bench.state == ("running", wave)
        bench.end(orders)
        if wave == 1:
            bench.kill()
    bench.orders()
    assert bench.state == ("done", 2)


def test_a_killed_service_goes_on_with_the_job_where_it_was(bench):
    """A service that was killed between any two looks orders each device once."""
    bench.begin({"a": 0, "b": 1, "c": 2})
    ordered = []
    for _ in range(12):
        orders = bench.orders()
        bench.kill()
        repeated = bench.orders()
        assert repeated == orders or not repeated or not orders
        orders |= repeated
        ordered += [(name, order.attempt) for name, order in orders.items()]
        bench.end(orders)
        bench.kill()
    assert len(ordered) == len(set(ordered)) == 3
    assert bench.state == ("done", 2)


def test_a_resumed_job_is_not_stopped_again_for_what_failed_before(bench):
    """A resumed job orders the rest of the wave and the next one, in spite of earlier failures.

    One device of a wave of two failed, which is too many, so that the other one was not ordered.
    """
    bench.online("b", state="lost")
    bench.begin({"a": 0, "b": 0, "c": 1})
    bench.end(bench.orders(), "failed", reason="no such runtime")
    assert bench.orders() == {}
    assert bench.state == ("stopped", 0)
    assert (
        jobs.find(bench.registry, bench.job).reason == "wave 1 of 2: 1 of 2 failed, at most 0% may"
    )
    bench.online("b", session=2)
    assert bench.orders() == {}
    assert bench.change("resume") == "resumed with wave 1 of 2, 1 executions queued"
    for names in ("b", "c"):
        orders = bench.orders()
        assert set(orders) == set(names)
        bench.end(orders)
    bench.orders()
    assert bench.state == ("done", 1)
    assert Counter(
        execution.state for execution in jobs.executions_of_job(bench.registry, bench.job)
    ) == {"done": 2, "failed": 1}


def test_a_wave_waits_for_a_device_that_is_off_until_somebody_cancels_it_there(bench):
    """A wave waits any time for a device that is off, and shows which, until it is cancelled."""
    bench.online("b", state="lost")
    bench.begin({"a": 0, "b": 0, "c": 1})
    bench.end(bench.orders())
    bench.now_ns += 7 * 86_400 * 10**9
    assert bench.orders() == {}
    assert bench.state == ("running", 0)
    executions = jobs.select_executions(bench.registry, "WHERE ended_ns IS NULL")
    reasons = wait_reasons(bench.registry, executions, bench.now_ns)
    assert {execution.device: reasons[execution.id] for execution in executions} == {
        "b": "waiting for its device",
        "c": "its wave has not begun",
    }
    assert bench.change("cancel", "b") == "cancelled; 1 executions not started, 0 being cancelled"
    orders = bench.orders()
    assert set(orders) == {"c"}
    bench.end(orders)
    bench.orders()
    assert bench.state == ("done", 1)


def test_paused_means_that_nothing_begins(bench):
    """Nothing begins in a paused job, not even a retry.

    An execution in flight goes on; if the job is cancelled, the device is ordered to end it.
    """
    bench.online("b", "c", state="lost")
    bench.begin({"a": 0, "b": 0, "c": 0}, ratio=1.0)
    orders = bench.orders()
    assert set(orders) == {"a"}
    assert "2 executions held" in bench.change("pause")
    bench.end(orders, "failed", reason="interrupted by a restart")
    bench.online("b", session=2)
    for _ in range(20):
        assert bench.orders() == {}
    bench.change("resume")
    orders = bench.orders()
    assert {name: order.attempt for name, order in orders.items()} == {"a": 2, "b": 1}
    assert "1 executions not started, 2 being cancelled" in bench.change("cancel")
    assert {type(order.work).__name__ for order in bench.orders().values()} == {"Cancel"}
    assert bench.state == ("cancelled", 0)
    with pytest.raises(jobs.ConfigError, match="is over"):
        bench.change("resume")


def test_one_of_those_that_share_a_tag_measures_at_a_time(bench):
    """One of the devices that share a tag measures at a time, across jobs.

    A device without the tag is not kept waiting.
    """
    first, second = bench.add("a", "b", exclusive="meter"), bench.add("c", exclusive="meter")
    bench.add("d")
    ordered_jobs = []
    for number in range(3):
        orders = bench.orders()
        assert len(orders) == (2 if number == 0 else 1)
        ordered_jobs += [order.job for name, order in orders.items() if name != "d"]
        for name, order in orders.items():
            bench.report(name, order, "done", order.version)
    assert Counter(ordered_jobs) == {first: 2, second: 1}
