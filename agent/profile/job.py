"""What passes between the command and the process that profiles: a job in, an answer or a failure out, JSON."""

import msgspec

from edgemeter.agent.engine.suites import Case
from edgemeter.agent.profile.profiler import Event


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One model to profile, over so many queries."""

    case: Case
    queries: int


class Recorded(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What was seen: wall time of each query without and with the profiler, taken in turns, and the profiler's events of the latter."""

    model: str
    package: str
    version: str
    backend: str
    threads: int
    data: str
    plain_ns: list[int]
    profiled_ns: list[int]
    events: list[Event]


class Failed(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """It ended without a profile; `kind` names the class of the error."""

    kind: str
    message: str


encode = msgspec.json.Encoder().encode
decode_job = msgspec.json.Decoder(Job).decode
decode_answer = msgspec.json.Decoder(Recorded | Failed).decode
