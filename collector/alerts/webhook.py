"""A webhook: JSON to any address; in the form `slack` what Slack and Mattermost take.

Config: kind = "webhook", url_env = "EDGEMETER_CHAT_URL", format = "slack". Tested with a real HTTP server.
"""

from dataclasses import asdict, dataclass
from typing import Literal

from edgemeter.collector.alerts.notice import Notice, as_text
from edgemeter.collector.alerts.post import post


@dataclass(frozen=True, slots=True)
class Webhook:
    """`json` sends a message for every alert, `slack` one text for all that happened at once."""

    name: str
    url: str
    form: Literal["json", "slack"] = "json"

    def send(self, notices: list[Notice]) -> None:
        """Send what happened."""
        if self.form == "slack":
            post(self.name, self.url, {"text": as_text(notices)})
            return
        for notice in notices:
            post(self.name, self.url, {"text": as_text([notice]), "event": notice.event, "alert": asdict(notice)})
