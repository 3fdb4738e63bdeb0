"""What passes between the agent that stays and the process that brings a content to its end: a task, and an exit status."""

import msgspec

from edgemeter.agent.jobs.contract import Content

HERE, FAILED, WRONG_HASH, INCOMPLETE = 0, 1, 3, 4


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """What to bring, from where, to where; `tls` are CA, certificate and key."""

    content: Content
    part: str
    final: str
    url: str | None = None
    tls: tuple[str | None, str | None, str | None] = (None, None, None)
