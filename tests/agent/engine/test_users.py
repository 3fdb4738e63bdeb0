"""Facts about `edgemeter.agent.engine.users`.

Each user waits for an answer, and all are served at once.
"""

import threading

import pytest

from edgemeter.agent.base.errors import AnswerError, ConfigError, MeasurementError
from edgemeter.agent.engine.measure import measure_subject
from edgemeter.agent.engine.stopwatch import Stopwatch
from edgemeter.agent.engine.users import ask_users
from edgemeter.agent.engine.warm_up import warm_up
from tests.fixtures.run_jobs import brief_case, run_job
from tests.fixtures.timing_world import Answering, World


def test_each_user_has_one_query_at_a_time_and_all_are_at_work():
    """No query ends before three are under way at once, and no user has two."""
    meeting, at_work, counts, users = threading.Barrier(3, timeout=150), set(), [], set()

    def answer(number, user):
        assert user not in at_work
        at_work.add(user)
        users.add(user)
        counts.append(len(at_work))
        if number < 3:
            meeting.wait()
        at_work.remove(user)

    watch = Stopwatch(Answering(answer))
    begin_ns = ask_users(watch, 3, 30)
    assert watch.timed(begin_ns).numbers.tolist() == list(range(30))
    assert users == {0, 1, 2}
    assert max(counts) == 3


def test_the_first_failure_ends_the_loop_of_every_user():
    """No query begins after it except those under way."""
    answered = []

    def answer(number, _):
        answered.append(number)
        raise MeasurementError("the server failed")

    with pytest.raises(MeasurementError, match="the server failed"):
        ask_users(Stopwatch(Answering(answer)), 2, 1000)
    assert len(answered) <= 2


def test_the_first_query_of_each_user_is_before_all_others():
    """Half of the queries begin when every user is through with its first.

    That holds however late the slowest of them is.
    """
    slow, slowest, numbers, users, at_looks = threading.Event(), [], [], set(), []

    def answer(number, user):
        if number < 0:
            if user == 2:
                slowest.append(threading.get_ident())
                assert slow.wait(150)
            return
        numbers.append(number)
        users.add(user)
        if number >= 15 and len(users) == 2:
            slow.set()

    def clock():
        if threading.get_ident() in slowest:
            at_looks.append(len(numbers))
        return 0

    watch = Stopwatch(Answering(answer), clock)
    timed = watch.timed(ask_users(watch, 3, 12, ramp_up=[-1, -2, -3]))
    # Its first look ends its query, its second is when it is through.
    assert timed.numbers.size == len(numbers) >= at_looks[1] + 6
    assert timed.ramp_up_ns.size == 3


def test_a_failure_of_the_ramp_up_is_none_of_the_timed_queries():
    """The answers of the ramp-up are not timed either."""

    def answer(number, _):
        if number == -2:
            raise AnswerError("busy", kind="http 503")

    watch = Stopwatch(Answering(answer))
    timed = watch.timed(ask_users(watch, 3, 12, ramp_up=[-1, -2, -3]))
    assert timed.failures == []
    assert timed.ramp_up_ns.size == 2


def test_users_of_whom_none_is_answered_end_the_warm_up():
    """The error states the reason that the server gave."""

    def answer(*_):
        raise AnswerError("no slot", kind="http 503")

    with pytest.raises(MeasurementError, match=r"http 503: \d+\): no slot"):
        warm_up(Stopwatch(Answering(answer), sleep=lambda _: None), 1.0, users=2)


def test_a_model_in_the_process_has_no_users():
    """The number of users in a suite is refused for such a model."""
    case = brief_case("m.server", runtime="served", concurrency=4)
    with pytest.raises(ConfigError, match="measure a server"):
        measure_subject(run_job(case), World(lambda _: 1000), 0, lambda _: None)
