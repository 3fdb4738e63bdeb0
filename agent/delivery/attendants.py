"""The attendants of the agent that stays, by name: a room adds its line here."""

import logging
from collections.abc import Mapping
from importlib import import_module

from edgemeter.agent.delivery.attendant import Attendant, Post
from edgemeter.agent.errors import EdgemeterError

logger = logging.getLogger(__name__)

ATTENDANTS: Mapping[str, str] = {
    "update": "edgemeter.agent.update.healthy:Healthy",
    "renewal": "edgemeter.agent.identity.renewal:Renewal",
    "health": "edgemeter.agent.health.health_attendant:HealthAttendant",
    "jobs": "edgemeter.agent.jobs.jobs_attendant:JobsAttendant",
}


def make(post: Post, table: Mapping[str, str] = ATTENDANTS) -> dict[str, Attendant]:
    """Return every attendant, ready, by name; one that cannot be made is said and left out, since results have to go out in any case."""
    made: dict[str, Attendant] = {}
    for name, where in table.items():
        module, _, kind = where.partition(":")
        try:
            made[name] = getattr(import_module(module), kind)(post)
        except EdgemeterError as error:
            logger.error("%s: %s", name, error)  # noqa: TRY400 - no traceback for what is known
    return made
