"""The handler for jobs, with devices that answer by hand and a clock that the test moves."""

import msgspec

from edgemeter.agent.base.mqtt_session import Message
from edgemeter.agent.contract.messages import DeviceState, Topic, encode_message
from edgemeter.agent.contract.orders import (
    Cancel,
    Doctor,
    Measure,
    Order,
    ReportReceipt,
    decode_command,
)
from edgemeter.agent.contract.sealed import decode_addressed
from edgemeter.provisioning.jobs import waves
from edgemeter.provisioning.jobs.job_handler import BEFORE_RETRY_S
from edgemeter.provisioning.registry import devices, jobs
from edgemeter.provisioning.registry.devices import Device
from edgemeter.provisioning.registry.jobs import NewJob, Target
from edgemeter.provisioning.registry.registry import Registry
from tests.fixtures.fleet_key import command_in, signed_in
from tests.fixtures.job_bench import SUITE, S
from tests.fixtures.rows import table_row


def test_an_order_goes_out_when_its_device_is_there_and_each_report_is_noted(bench):
    """The noted states are queued, sent, accepted, running and done, with growing versions."""
    job = bench.add("a", "b")
    assert bench.poll() == []
    bench.online("a")
    ((device, order),) = bench.poll()
    assert device == "a"
    assert (order.job, order.attempt) == (job, 1)
    assert (order.timeout_s, order.work) == (100.0, Measure(suite=SUITE))
    assert bench.held(job, "a").state == "sent"
    version = order.version
    for state in ("accepted", "running", "running", "done"):
        fields = {"runs": ("r1",)} if state == "done" else {}
        assert bench.report_and_poll("a", order, state, version, **fields) == [
            ("a", ReportReceipt(noted=job, attempt=1, version=version + 1, state=state))
        ]
        assert (bench.held(job, "a").state, bench.held(job, "a").version) == (state, version + 1)
        version += 1
    ended = bench.held(job, "a")
    assert ended.runs == ("r1",)
    assert (ended.done_ratio, ended.is_final) == (1.0, True)
    assert bench.held(job, "b").state == "queued"


def test_one_execution_at_a_time_is_in_flight_on_a_device(bench):
    """A second order goes out when the first has ended; orders other than measurements go first."""
    first, second = bench.add("a"), bench.add("a")
    doctor = bench.add("a", work=Doctor())
    bench.online("a")
    seen_jobs = []
    for _ in range(3):
        ((_, order),) = [entry for entry in bench.poll() if isinstance(entry[1], Order)]
        seen_jobs.append(order.job)
        assert [entry for entry in bench.poll() if isinstance(entry[1], Order)] == []
        bench.report("a", order, "done", order.version)
    assert seen_jobs == [doctor, first, second]


def test_an_order_that_is_not_acknowledged_comes_again_later_and_later(bench):
    """An unacknowledged order is sent again after 10 s, 20 s, 40 s, and so on.

    It has the same attempt and version. When the device comes back, it is sent as soon as the
    device could have reported.
    """
    _, order = bench.send(timeout_s=10_000.0)
    times = []
    for second in range(160):
        for device, repeated in bench.poll(1):
            assert (device, repeated) == ("a", order)
            times.append(second + 1)
    assert times == [10, 30, 70, 150]
    bench.online("a", state="lost")
    assert bench.poll(400) == []
    bench.online("a", session=2)
    assert bench.poll() == []
    assert bench.poll(BEFORE_RETRY_S) == [("a", order)]


def test_an_order_that_a_session_has_taken_is_not_given_to_the_one_that_replaces_it(bench):
    """An order that one session took is not given to the session that replaces it.

    Another agent has the key of the board, and would measure the same; the first agent's report
    comes with its next connection.
    """
    job, order = bench.send()
    bench.online("a", session=2)
    assert bench.poll() == []
    bench.report("a", order, "running", 2)
    assert not [command for _, command in bench.poll(60) if isinstance(command, Order)]
    assert bench.held(job, "a").state == "running"


def test_a_service_that_lacks_the_challenge_of_an_online_device_asks_for_it(bench):
    """The service asks an online device for a challenge that it lacks; the order waits for it.

    A service that starts again asks again.
    """
    bench.add("a")
    topic = str(Topic("lab", "a", "state"))
    for session in (1, 2):
        bench.handler.received(
            Message(topic, encode_message(DeviceState(state="online", session=session)))
        )
        ((asked_on, payload),) = bench.sent
        assert asked_on == str(Topic("lab", "a", "command"))
        assert decode_addressed(signed_in(payload)).challenge is None
        assert bench.poll() == []
        bench.kill()
        bench.sent.clear()
    bench.online("a", session=2)
    ((device, order),) = bench.poll()
    assert (device, order.attempt) == ("a", 1)


def test_an_unanswered_order_comes_at_once_when_the_challenge_changes(bench):
    """A changed challenge makes the service send an unanswered order at once.

    A device renews the challenge once an hour, and reports it again where an order does not fit it.
    """
    _, order = bench.send(timeout_s=10_000.0)
    renewed = DeviceState(state="online", session=1, challenge="0b")
    bench.handler.received(Message(str(Topic("lab", "a", "state")), encode_message(renewed)))
    assert bench.poll(1) == [("a", order)]
    assert decode_addressed(signed_in(bench.sent[0][1])).challenge == "0b"


def test_a_killed_service_sends_the_same_order_again_and_starts_no_other(bench):
    """A restarted service repeats the same order, because decisions are stored before sending."""
    bench.add("a", "b")
    bench.add("a")
    bench.online("a", "b")
    orders = bench.poll()
    assert len(orders) == 2
    bench.kill()
    assert bench.poll() == []
    bench.online("a", "b")
    assert sorted(bench.poll(), key=lambda entry: entry[0]) == orders
    bench.report_and_poll("a", orders[0][1], "running", orders[0][1].version)
    bench.kill()
    bench.online("a", "b")
    assert bench.poll() == orders[1:]


def test_a_repeating_device_takes_other_orders_and_ends_when_it_is_requested(bench):
    """A repeating execution lets other orders pass, and ends when that is requested.

    No deadline ends it. The request is sent until it is answered, also by a service that was killed
    meanwhile.
    """
    job, order = bench.send(work=Measure(suite=SUITE, every_s=3600), timeout_s=100.0)
    bench.report_and_poll("a", order, "repeating", order.version, reason="every 3600 s")
    assert bench.poll(1000) == []
    assert (bench.held(job, "a").state, bench.held(job, "a").reason) == (
        "repeating",
        "every 3600 s",
    )
    other = bench.add("a")
    ((_, measuring),) = bench.poll(3)
    assert measuring.job == other
    waves.change_job(bench.registry, job, "cancel", None, bench.now_ns)
    bench.kill()
    bench.online("a", session=2)
    requested = {sent.job: sent for _, sent in bench.poll()}
    assert requested[job].work == Cancel()
    assert requested[other] == measuring
    bench.report_and_poll("a", requested[job], "cancelled", order.version + 1)
    assert bench.held(job, "a").state == "cancelled"
    assert bench.held(other, "a").state == "sent"


def test_a_stale_report_changes_nothing_and_gets_the_version_held(bench):
    """A repeated or late report, or one after the end, changes nothing.

    A report of another attempt does not either. The answer has the version that is held.
    """
    job, order = bench.send(retries=0)
    bench.report_and_poll("a", order, "running", order.version)
    for state, attempt, version in (
        ("accepted", 1, order.version),
        ("running", 1, order.version),
        ("done", 2, order.version + 1),
    ):
        ((_, noted),) = bench.report_and_poll(
            "a", msgspec.structs.replace(order, attempt=attempt), state, version
        )
        assert noted.version > version
        assert (bench.held(job, "a").state, bench.held(job, "a").version) == (
            "running",
            order.version + 1,
        )
    bench.report_and_poll("a", order, "failed", order.version + 1, reason="no such model")
    for state in ("done", "running"):
        bench.report_and_poll("a", order, state, order.version + 2)
    assert (bench.held(job, "a").state, bench.held(job, "a").reason) == ("failed", "no such model")


def test_a_result_is_taken_though_the_acknowledgement_before_it_was_lost(bench):
    """A result is taken although the acknowledgement of the report before it was lost.

    The device still expects the earlier version, but its result is later than the state that is
    held.
    """
    job, order = bench.send()
    bench.report("a", order, "accepted", order.version)
    bench.report_and_poll("a", order, "done", order.version, runs=("r",))
    assert (bench.held(job, "a").state, bench.held(job, "a").runs) == ("done", ("r",))


def test_nobody_reports_for_another_device(bench):
    """An execution is found by the device in the topic, which the broker's ACL guarantees."""
    job = bench.add("a")
    bench.online("a", "b")
    ((_, order),) = bench.poll()
    bench.report_and_poll("b", order, "done", order.version)
    assert bench.held(job, "a").state == "sent"
    assert bench.held(job, "b") is None


def test_what_times_out_is_ended_on_the_device_and_tried_once_more(bench):
    """A timed-out execution is ended on the device and tried once more, by the server's clock.

    The second attempt has its own number, and there is no third.
    """
    job, order = bench.send()
    bench.report_and_poll("a", order, "accepted", order.version)
    assert bench.poll(159) == []
    ((_, ended),) = bench.poll(1)
    assert (ended.work, ended.attempt) == (Cancel(), 1)
    execution = bench.held(job, "a")
    assert (execution.state, execution.reason) == (
        "queued",
        "attempt 1 timed out: not finished within 100 s, last state: accepted",
    )
    assert bench.poll(20) == []
    ((_, retry),) = bench.poll(11)
    assert (retry.attempt, retry.job) == (2, job)
    assert retry.version > order.version
    bench.poll(161)
    assert (bench.held(job, "a").state, bench.held(job, "a").reason) == (
        "timed_out",
        "no answer to the order within 100 s",
    )


def test_a_pause_of_the_service_gives_nobody_up(bench):
    """After a long pause of the service a device has a minute to report that it is done."""
    job, order = bench.send(retries=0)
    bench.kill()
    bench.now_ns += 1000 * S
    bench.online("a")
    assert [message for _, message in bench.poll(1)] == [order]
    bench.report_and_poll("a", order, "done", order.version)
    assert bench.held(job, "a").state == "done"


def test_a_device_that_is_silent_after_the_pause_is_given_up(bench):
    """A silent device is timed out one minute after its deadline, if the service was paused."""
    job = bench.add("a", retries=0)
    bench.online("a")
    bench.poll()
    bench.now_ns += 1000 * S
    bench.poll(59)
    assert bench.held(job, "a").state == "sent"
    bench.poll(10)
    assert bench.held(job, "a").state == "timed_out"


def test_a_result_that_comes_late_is_not_measured_again(bench):
    """A late result of an attempt that was given up prevents the next attempt.

    The next one has not been sent yet.
    """
    job, order = bench.send()
    bench.poll(161)
    assert bench.held(job, "a").state == "queued"
    bench.report_and_poll("a", order, "done", order.version, runs=("r",))
    assert bench.held(job, "a").state == "done"
    assert [entry for entry in bench.poll(60) if isinstance(entry[1], Order)] == []


def test_a_device_that_comes_back_reports_how_it_ended_before_it_is_ordered_again(bench):
    """A returning device reports its last attempt before it is ordered again.

    It measured while it was away; the retry is due, and its report is still on the way.
    """
    job, order = bench.send()
    bench.report_and_poll("a", order, "running", order.version)
    bench.online("a", state="lost")
    bench.poll(161)
    bench.poll(600)
    bench.online("a", session=2)
    assert bench.poll(1) == []
    bench.report("a", order, "done", order.version + 1)
    bench.poll(1)
    assert bench.held(job, "a").state == "done"
    assert [entry for entry in bench.poll(60) if isinstance(entry[1], Order)] == []


def test_what_was_interrupted_is_tried_again_and_what_is_wrong_is_not(bench):
    """Interruptions are tried again, failures and rejections never.

    A timeout is tried again once; power cuts and restarts, which are not the device's fault, three
    times.
    """
    bench.online("a")
    for state, reason, attempts in (
        ("failed", "interrupted: the board started anew", 4),
        ("failed", "no such model", 1),
        ("rejected", "a field is unknown", 1),
        ("timed_out", None, 2),
    ):
        with table_row(state, reason):
            job, orders = bench.add("a"), []
            for _ in range(60):
                for order in [
                    command for _, command in bench.poll(5) if isinstance(command, Order)
                ]:
                    orders.append(order.attempt)
                    bench.report("a", order, state, order.version, reason=reason)
            assert orders == list(range(1, attempts + 1))
            assert (bench.held(job, "a").state, bench.held(job, "a").reason) == (state, reason)


def test_a_cancelled_job_is_ended_at_once_or_by_its_device(bench):
    """A cancelled execution ends at once if no device has it.

    A device that has it is ordered to end it until it reports that.
    """
    job = bench.add("a", "b")
    bench.online("a")
    ((_, order),) = bench.poll()
    bench.report_and_poll("a", order, "running", order.version)
    other = Registry(bench.folder.registry)
    for counts in (
        "1 executions not started, 1 being cancelled",
        "0 executions not started, 0 being cancelled",
    ):
        assert waves.change_job(other, job, "cancel", None, bench.now_ns) == f"cancelled; {counts}"
    other.close()
    ((device, ended),) = bench.poll()
    assert (device, ended.work) == ("a", Cancel())
    assert (ended.job, ended.attempt) == (job, 1)
    assert bench.held(job, "b").state == "cancelled"
    assert bench.poll(11) == [("a", ended)]
    bench.report_and_poll("a", order, "cancelled", ended.version)
    assert bench.held(job, "a").state == "cancelled"
    assert bench.poll(30) == []


def revoke(bench):
    with bench.registry.transaction() as connection:
        devices.put(connection, Device("a", "lab", "a", None, (), "revoked", 2))
    bench.poll(5)


def revoked_while_running(bench):
    """Return what device a was at when it was thrown out."""
    job, order = bench.send()
    bench.report_and_poll("a", order, "running", order.version)
    revoke(bench)
    assert bench.held(job, "a").state == "cancelled"
    return order


def test_a_device_that_was_revoked_and_comes_back_learns_at_once_what_is_over(bench):
    """A revoked device that comes back is told once, without a report of its own, what is over."""
    order = revoked_while_running(bench)
    bench.online("a", session=2)
    ((device, cancel),) = bench.poll()
    assert (device, type(cancel.work)) == ("a", Cancel)
    assert (cancel.job, cancel.attempt) == (order.job, order.attempt)
    bench.online("a", session=3)
    assert bench.poll() == []


def test_what_a_revoked_device_repeats_is_over_too(bench):
    """A repeating execution of a revoked device ends, or its job would never end.

    The same holds for an execution that waits for a later wave.
    """
    job, order = bench.send(work=Measure(suite=SUITE, every_s=3600))
    bench.report_and_poll("a", order, "repeating", order.version)
    with bench.registry.transaction() as statements:
        new = NewJob((Doctor(),), "t", 100.0)
        waiting = jobs.add(
            statements, new, [Target("b", "lab"), Target("a", "lab", wave=1)], bench.now_ns
        )
    bench.poll()
    revoke(bench)
    assert {
        (bench.held(name, "a").state, bench.held(name, "a").reason) for name in (job, waiting)
    } == {("cancelled", "its device was revoked")}
    bench.online("a", session=2)
    ((device, cancel),) = bench.poll()
    assert (device, cancel.job, cancel.work) == ("a", job, Cancel())


def test_a_board_that_joins_again_is_ordered_again_what_it_had(bench):
    """A board that joins again is ordered again what it had, because its journal is lost.

    It would repeat and measure nothing any more. An execution that it is to give up is not ordered
    again.
    """
    repeated, order = bench.send(work=Measure(suite=SUITE, every_s=3600))
    bench.report_and_poll("a", order, "repeating", order.version)
    cancelled, order = bench.send(work=Measure(suite=SUITE, every_s=3600))
    bench.report_and_poll("a", order, "repeating", order.version)
    running, order = bench.send()
    bench.report_and_poll("a", order, "running", order.version)
    waves.change_job(bench.registry, cancelled, "cancel", None, bench.now_ns)
    bench.online("a", state="lost")
    with bench.registry.transaction() as statements:
        jobs.order_again(bench.registry, statements, "a", bench.now_ns)
    assert {bench.held(name, "a").state for name in (repeated, running)} == {"queued"}
    bench.online("a", session=2)
    repeated_orders = []
    for _ in range(15):
        orders = [
            command
            for _, command in bench.poll(1)
            if isinstance(command, Order) and command.work != Cancel()
        ]
        for order in orders:
            repeated_orders.append((order.job, order.attempt, order.work.every_s))
            bench.report("a", order, "repeating" if order.work.repeats else "done", order.version)
    assert repeated_orders == [(repeated, 2, 3600), (running, 2, None)]
    assert bench.held(cancelled, "a").requested == "cancel"


def test_a_report_on_an_unknown_job_is_put_to_rest(bench):
    """A report on a job of a lost registry is answered, so that the device does not repeat it."""
    bench.online("a")
    bench.report(
        "a", Order(job="gone", attempt=1, version=1, work=Doctor(), timeout_s=1.0), "done", 7
    )
    ((_, payload),) = bench.sent
    assert decode_command(command_in(payload)) == ReportReceipt(
        noted="gone", attempt=1, version=8, state="done"
    )
    assert bench.poll() == []
