"""Apprise: whatever it has an address for. Library: `pip install 'edgemeter[apprise]'` (BSD-2).

Config: kind = "apprise", url_env = "EDGEMETER_APPRISE_URL". Tested with Apprise 2.2 against a real HTTP server (json://).
"""

from dataclasses import dataclass
from importlib import import_module

from edgemeter.agent.errors import ConfigError, TransientError, UnavailableError
from edgemeter.collector.alerts.notice import Notice, as_text, headline


@dataclass(frozen=True, slots=True)
class AppriseAddress:
    """One address of Apprise."""

    name: str
    url: str

    def send(self, notices: list[Notice]) -> None:
        """Send what happened as one message."""
        try:
            apprise = import_module("apprise")
        except ImportError as error:
            message = f"channel {self.name!r} needs Apprise, which is not installed: pip install 'edgemeter[apprise]'"
            raise UnavailableError(message) from error
        target = apprise.Apprise()
        if not target.add(self.url):
            message = f"channel {self.name!r}: Apprise does not know its address: see its list of services"
            raise ConfigError(message)
        if not target.notify(title=headline(notices), body=as_text(notices)):
            message = f"channel {self.name!r}: Apprise could not deliver: it is tried again at the next check"
            raise TransientError(message)
