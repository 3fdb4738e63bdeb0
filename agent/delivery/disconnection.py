"""Why a connection to a broker ended, in words that say what it means and what to do."""

# The broker's reason when another client came with our name; others are passed on in words, this one as it is.
TAKEN_OVER = "Session taken over"
# What paho-mqtt calls an end without a reason: the line broke, or the broker closed it and did not say why.
_UNSAID = "Unspecified error"

_CUT = "cut without a reason: the line or the broker failed, or the broker ended it (revoked, or another client came with this name)"
_NEVER_UP = "the broker ended it before it answered: it refuses our certificate (revoked, or run out by its clock), or is starting"
# Source: MQTT 5.0, section 3.14.2.1, as paho-mqtt names the codes.
_MEANINGS = {
    "Keep alive timeout": "no answer in time: the line is down, or the broker too busy",
    "Not authorized": "not authorized: was this client revoked, or are the broker's rules older than it?",
    "Server shutting down": "the broker is being stopped",
    "Administrative action": "somebody ended it at the broker: was this client revoked?",
    "Packet too large": "a message was larger than the broker takes: raise its packet limit",
    "Quota exceeded": "the broker's quota for this client is used up: raise it there",
    "Message rate too high": "the broker takes fewer messages a second: raise its limit",
}


def told(reason: str, *, was_up: bool) -> str:
    """Return what a reason means; `was_up` is whether the broker had accepted the connection that ended."""
    if reason == _UNSAID:
        return _CUT if was_up else _NEVER_UP
    return _MEANINGS.get(reason, reason)
