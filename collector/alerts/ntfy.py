"""ntfy: push messages to phones, from ntfy.sh or a server of one's own.

Config: kind = "ntfy", url = "https://HOST", topic = "edge-fleet", token_env = "EDGEMETER_NTFY_TOKEN". The name of a public topic is its
password. Source: docs.ntfy.sh/publish. Tested with a real HTTP server.
"""

from dataclasses import dataclass

from edgemeter.collector.alerts.notice import Notice, as_text, headline
from edgemeter.collector.alerts.post import post

_PRIORITY = {"critical": 5, "warning": 4, "info": 3}
_QUIET = 2
# Beyond this ntfy turns a message into a file.
_LONGEST_BYTES = 4000


@dataclass(frozen=True, slots=True)
class Ntfy:
    """One message for all that happened at once, as urgent as the most urgent of it; what is over is quiet."""

    name: str
    url: str
    topic: str
    token: str | None = None

    def send(self, notices: list[Notice]) -> None:
        """Send what happened."""
        priority = max(_QUIET if one.event == "closed" else _PRIORITY[one.severity] for one in notices)
        text = as_text(notices).encode()[:_LONGEST_BYTES].decode("utf-8", "ignore")
        body: dict[str, object] = {"topic": self.topic, "title": headline(notices), "message": text, "priority": priority}
        link = next((one.link for one in notices if one.link), None)
        post(self.name, self.url, body | ({"click": link} if link else {}), self.token)
