"""Queries of a served model: one after the other, of several users, or at arrivals."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from edgemeter.agent.base.errors import AnswerError
from edgemeter.agent.engine import request_loops
from edgemeter.agent.engine.request_loops import FailedRequest, RequestSubject, TimedRequest
from edgemeter.agent.engine.scenarios import poisson
from edgemeter.agent.engine.scenarios.timing import DRAWN, KEPT_OUTPUTS, TimedQueries, TimingPlan, TimingSubject
from edgemeter.agent.engine.warm_up import Warmed, warm_up
from edgemeter.agent.runtimes import Array, ConcurrentRuntime

# Of each user between two looks at whether latencies have settled.
WARM_QUERIES = 8


@dataclass(slots=True)
class ServedSubject(RequestSubject):
    """A model behind a server with the inputs that it is sent; `kept` holds the outputs of a few timed queries, by input index."""

    runtime: ConcurrentRuntime
    inputs: Sequence[Sequence[Array]]
    kept: dict[int, list[Array]] = field(default_factory=dict)
    _order: Sequence[int] = (0,)
    _kept_every: int = 1
    _arrivals: dict[int, Callable[[], Any]] = field(default_factory=dict)

    def bind_alone(self, number: int) -> Callable[[], Any]:
        """Return the bare query on the connection of those before it."""
        return self.runtime.bind(self.inputs[self._item(number)])

    def bind(self, number: int, user: int | None = None) -> Callable[[], Any]:
        """Return the bare query; arrivals with the same input share theirs, so that the requests of a long schedule fit in memory."""
        item = self._item(number)
        if user is not None:
            return self.runtime.bind_concurrent(self.inputs[item], user)
        if item not in self._arrivals:
            self._arrivals[item] = self.runtime.bind_concurrent(self.inputs[item])
        return self._arrivals[item]

    def attempt(self, number: int, call: Callable[[], Any], arrival_ns: int | None = None) -> TimedRequest | FailedRequest:
        """Run a query of `bind`; outside the clock, read what is unlike the answers before, and keep the outputs of some."""
        request = request_loops.attempt_call(number, call, arrival_ns)
        if isinstance(request, FailedRequest):
            return request
        answer, item = request.answer, self._item(number)
        answer.end()
        keeps = number >= 0 and number % self._kept_every == 0 and len(self.kept) < KEPT_OUTPUTS and item not in self.kept
        if keeps or answer.is_unlike:
            try:
                outputs = answer.outputs()
            except AnswerError as error:
                return FailedRequest(number, request.start_ns, request.arrival_ns, time.monotonic_ns(), error)
            if keeps:
                self.kept[item] = outputs
        return replace(request, answer=None)

    def warm_up(self, limit_s: float, users: int | None) -> Warmed:
        """Run queries until they have settled, for `limit_s` at most; of several users at once, each on a connection that stays open."""
        if users is None:
            return warm_up_answered(TimingSubject(self.runtime.bind, list, self.inputs), limit_s)
        return request_loops.warm_up(self, limit_s, users, WARM_QUERIES)

    def make_ready(self, plan: TimingPlan) -> None:
        """Draw the inputs of a plan as in every scenario, and make the requests of its arrivals, which is no part of their time."""
        self._order = plan.drawn(len(self.inputs))
        if plan.rate_per_s:
            for number in range(len(poisson.schedule_ns(plan))):
                self.bind(number)

    def run(self, plan: TimingPlan) -> TimedQueries:
        """Run the queries of a plan, once they are ready."""
        likely = len(poisson.schedule_ns(plan)) if plan.rate_per_s else plan.capacity() * 4 // 5 * (plan.users or 1)
        self._kept_every = max(1, likely // KEPT_OUTPUTS)
        timed = request_loops.run(self, plan).timed()
        return replace(timed, kept=self.kept)

    def _item(self, number: int) -> int:
        return self._order[number % min(DRAWN, len(self._order))]


def warm_up_answered(subject: TimingSubject, limit_s: float) -> Warmed:
    """Warm up by calls one after the other; one that the server does not answer is made again."""
    return warm_up(replace(subject, bind=lambda inputs: lambda: request_loops.answered_ns(partial(subject.bind, inputs))), limit_s)
