"""Rules on the answers of a server, to a language model's queries or to a model's of one call: how many fail, and how long users wait."""

from edgemeter.agent.contract.load_sweep import fails_too_often
from edgemeter.agent.contract.record_generation import Generation
from edgemeter.agent.contract.record_served import Served
from edgemeter.agent.verdict.rule import Rules, RunFacts

# Of the users' time.
MOST_WAITED_RATIO = 0.05
# Of one core's time.
MOST_BUSY_RATIO = 0.7

Answers = Generation | Served
# Each function judges a run whose queries may fail; other runs violate nothing.
_RULES = Rules()


@_RULES.invalid(
    "at most 1% of the queries fail",
    "a loaded server that drops requests answers the others sooner; with 1% lost, p99 tells nothing",
    "read the server's log; a lower rate, or fewer users",
)
def _failed_answers(facts: RunFacts, answers: Answers) -> str | None:
    if not fails_too_often(answers, facts.measured.latency.count):
        return None
    return f"{_failures(facts, answers)}: read the server's log; ask for less at once"


@_RULES.note("every query is answered, of text with a token or more", "failed queries are in no statistic", "read the server's log")
def _some_failed(facts: RunFacts, answers: Answers) -> str | None:
    if not answers.failed_queries or fails_too_often(answers, facts.measured.latency.count):
        return None
    return f"{_failures(facts, answers)}; they are in no statistic"


def _failures(facts: RunFacts, answers: Answers) -> str:
    kinds = ", ".join(f"{kind}: {count}" for kind, count in answers.failures.items())
    return f"{answers.failed_queries} of {answers.failed_queries + facts.measured.latency.count} queries failed ({kinds})"


@_RULES.suspect(
    "users pause after refusals (as `Retry-After` asks, or 0.1 s) for at most 5% of their time",
    "meanwhile they send nothing",
    "fewer users, or a higher limit at the server",
)
def _users_waited(facts: RunFacts, _: Answers) -> str | None:
    load = facts.measured.load
    if load is None or not load.concurrency:
        return None
    ratio = load.paused_ms / (load.concurrency * facts.measured.timed.length_ns / 1e6)
    if ratio <= MOST_WAITED_RATIO:
        return None
    at_work = f"on average {load.concurrency * (1 - ratio):.3g} of {load.concurrency} users sent queries"
    return f"users paused {load.paused_ms / 1e3:,.3g} s in all after refusals: {at_work}"


@_RULES.suspect(
    "with several users, or at a rate, the asking process uses at most 70% of one core's time",
    "above that, latencies are partly the client's: Python, copies, TLS",
    "fewer users, or a lower rate",
)
def _client_busy(facts: RunFacts, answers: Answers) -> str | None:
    load, scheduling = facts.measured.load, facts.measured.scheduling
    if load is None or load.in_flight_max is None or scheduling is None or scheduling.ran_ms is None:
        return None
    ratio = scheduling.ran_ms / scheduling.window_ms
    if ratio <= MOST_BUSY_RATIO or (isinstance(answers, Generation) and answers.is_local):
        return None
    return f"the process that asked used {ratio:.0%} of one core's time: part of each latency may be its own"


@_RULES.note(
    "the engine runs in the measured process",
    "what the kernel counts for this process says nothing of a server's",
    "nothing",
)
def _served(facts: RunFacts, answers: Answers) -> str | None:
    if isinstance(answers, Generation) and answers.is_local:
        return None
    where = facts.measured.runtime.facts.get("server_url", "a server")
    did = "generated the text" if isinstance(answers, Generation) else "ran the model"
    connection = facts.measured.runtime.facts.get("connection")
    connects = f"; the connection is {connection}, so that each query opens one" if connection else ""
    return f"{where} {did}: load and waiting for cores are those of the process that asked it{connects}"


def _answers(facts: RunFacts) -> tuple[RunFacts, Answers] | None:
    answers = facts.measured.generation or facts.measured.served
    return None if answers is None else (facts, answers)


RULES = _RULES.given(_answers)
