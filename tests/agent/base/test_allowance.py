"""Facts about how much each of many senders may send."""

from edgemeter.agent.base import allowance
from edgemeter.agent.base.allowance import Allowance


class Time:
    """A clock that the test moves."""

    def __init__(self):
        self.now_s = 0.0

    def __call__(self):
        return self.now_s


def test_a_burst_is_allowed_and_then_so_much_a_second():
    """Each sender has an allowance of its own, and a refused request uses up none of it."""
    clock = Time()
    spending = Allowance(10.0, 100.0, clock)
    assert [spending.spend("pi-1") for _ in range(150)].count(True) == 100
    assert spending.spend("pi-2", 100.0)
    clock.now_s = 1.0
    assert [spending.spend("pi-1") for _ in range(50)].count(True) == 10
    clock.now_s = 1000.0
    assert [spending.spend("pi-1") for _ in range(150)].count(True) == 100


def test_who_exceeds_it_is_named_once():
    """A sender is named again only after it has exceeded its allowance again."""
    spending = Allowance(10.0, 2.0, Time())
    for name in ("pi-2", "pi-1", "pi-1", "pi-1", "pi-2", "pi-2"):
        spending.spend(name)
    assert (spending.exceeded(), spending.exceeded()) == (["pi-1", "pi-2"], [])


def test_names_that_come_once_do_not_stay(monkeypatch):
    """The names come from the network, and a sender with its full burst need not be remembered."""
    monkeypatch.setattr(allowance, "MOST_REMEMBERED", 10)
    clock = Time()
    spending = Allowance(10.0, 100.0, clock)
    for number in range(100):
        clock.now_s += 5.0
        spending.spend(str(number))
    assert len(spending._balances) <= 11
