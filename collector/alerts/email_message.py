"""E-mail by SMTP: one message for all that happened at once.

Config: kind = "email", host, port (587), security = "starttls" | "tls" | "none", sender, recipients, user, password_env. Tested with a
real SMTP server.
"""

import smtplib
import ssl
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Literal

from edgemeter.agent.errors import TransientError, UnavailableError
from edgemeter.collector.alerts.notice import Notice, as_text, headline

TIMEOUT_S = 10.0
_PORTS = {"starttls": 587, "tls": 465, "none": 25}


@dataclass(frozen=True, slots=True)
class EmailSender:
    """Where mails are handed in, and from whom to whom."""

    name: str
    host: str
    sender: str
    recipients: tuple[str, ...]
    port: int | None = None
    security: Literal["starttls", "tls", "none"] = "starttls"
    user: str | None = None
    password: str | None = None

    def send(self, notices: list[Notice]) -> None:
        """Send what happened."""
        message = EmailMessage()
        message["Subject"] = f"Edgemeter: {' '.join(headline(notices).split())}"
        message["From"] = self.sender
        message["To"] = ", ".join(self.recipients)
        link = next((one.link for one in notices if one.link), None)
        message.set_content(as_text(notices) + (f"\n\n{link}\n" if link else "\n"))
        try:
            with self._connected() as server:
                if self.user is not None and self.password is not None:
                    server.login(self.user, self.password)
                server.send_message(message)
        except (smtplib.SMTPAuthenticationError, smtplib.SMTPNotSupportedError, smtplib.SMTPRecipientsRefused) as error:
            text = f"channel {self.name!r}: the mail server {self.host} refuses: {error}: correct user, password, security or recipients"
            raise UnavailableError(text) from error
        except (smtplib.SMTPException, OSError) as error:
            text = f"channel {self.name!r}: the mail server {self.host} cannot be reached ({error}): it is tried again at the next check"
            raise TransientError(text) from error

    def _connected(self) -> smtplib.SMTP:
        port = self.port or _PORTS[self.security]
        if self.security == "tls":
            return smtplib.SMTP_SSL(self.host, port, timeout=TIMEOUT_S, context=ssl.create_default_context())
        server = smtplib.SMTP(self.host, port, timeout=TIMEOUT_S)
        if self.security == "starttls":
            try:
                server.starttls(context=ssl.create_default_context())
            except BaseException:
                server.close()
                raise
        return server
