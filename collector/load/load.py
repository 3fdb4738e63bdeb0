"""A load: the devices of a plan against one broker, as agents while that is possible and as crowds beyond."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Literal

from edgemeter.agent.delivery.broker_address import BrokerAddress
from edgemeter.agent.errors import UnavailableError
from edgemeter.collector.load.agents import Agents
from edgemeter.collector.load.crowd import Crowd
from edgemeter.collector.load.tally import Plan, Result, Tally
from edgemeter.collector.load.template import Number, Template

Mode = Literal["agents", "crowd"]
# An agent has some seven files and sockets open, and paho-mqtt waits with select, which knows no file number from 1024 on.
MOST_AGENTS = 100
CONNECTIONS = 8
TICK_S = 0.2

Watch = Callable[[Tally], None]


def mode_for(devices: int) -> Mode:
    """Return how so many devices are simulated where nobody asked for another way."""
    return "agents" if devices <= MOST_AGENTS else "crowd"


def run(address: BrokerAddress, plan: Plan, mode: Mode, template: Template, watch: Watch = lambda _: None) -> Result:
    """Put the load on the broker at `address` and return what came of it; `watch` sees the counts while it runs.

    Raises:
        UnavailableError: no broker answers, or it refuses what the devices say.
        ConfigError: the broker refuses who we say we are.
    """
    tally = Tally()
    with _watched(tally, watch):
        connections, resent = (_as_agents if mode == "agents" else _as_crowds)(address, plan, template, tally)
    size = len(template.payload(plan.device(0), plan.name, Number(2**52, 1, time.time_ns())))
    return tally.result(plan, mode, connections, resent, size)


def _as_agents(address: BrokerAddress, plan: Plan, template: Template, tally: Tally) -> tuple[int, int]:
    agents = Agents(address, plan, template, tally)
    agents.run()
    return plan.devices, agents.resent


def _as_crowds(address: BrokerAddress, plan: Plan, template: Template, tally: Tally) -> tuple[int, int]:
    step = min(CONNECTIONS, plan.devices)
    stop = threading.Event()
    with ExitStack() as stack:
        crowds = [Crowd(address, plan, template, tally, first, step) for first in range(step)]
        for crowd in crowds:
            stack.callback(crowd.close)
            crowd.connect()
        stack.callback(stop.set)
        tally.begin()
        threads = [threading.Thread(target=crowd.run, args=(time.monotonic(), stop), daemon=True) for crowd in crowds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    refused = next((crowd.refusal for crowd in crowds if crowd.refusal), None)
    if refused:
        message = (
            f"the broker at {address} refuses what {plan.devices} devices say over {step} connections ({refused}): "
            f"it lets each device write below its own name only; load a broker that anybody may write to"
        )
        raise UnavailableError(message)
    return step, sum(crowd.resent for crowd in crowds)


@contextlib.contextmanager
def _watched(tally: Tally, watch: Watch) -> Iterator[None]:
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(TICK_S):
            watch(tally)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
