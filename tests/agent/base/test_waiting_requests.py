"""Facts about connections that wait for their client, by a clock that is passed in."""

from edgemeter.agent.base.waiting_requests import WaitingRequests


class Waits:
    """The waits of a server, a clock that a test sets, and the connections that were closed.

    The closed connections stand in order.
    """

    def __init__(self):
        self.now_s, self.closed = 0.0, []
        self.waiting = WaitingRequests(self.closed.append, lambda: self.now_s)


def test_a_connection_is_closed_once_after_its_own_time():
    """A head has ten seconds and a body thirty, and what arrived in time is not closed."""
    waits = Waits()
    for connection, within_s in (("head", 10.0), ("body", 30.0), ("in time", 10.0)):
        waits.waiting.expect(connection, within_s)
    waits.waiting.end("in time")
    for now_s, closed in (
        (10.0, []),
        (10.1, ["head"]),
        (29.9, ["head"]),
        (31.0, ["head", "body"]),
        (99.0, ["head", "body"]),
    ):
        waits.now_s = now_s
        waits.waiting.close_late()
        assert waits.closed == closed


def test_whoever_waits_longest_makes_room():
    """A connection that expects another part waits anew; if none waits, there is no room."""
    waits = Waits()
    for connection in ("first", "second", "third", "first"):
        waits.waiting.expect(connection, 10.0)
    assert [waits.waiting.close_longest() for _ in range(4)] == [True, True, True, False]
    assert waits.closed == ["second", "third", "first"]
