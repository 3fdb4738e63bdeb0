"""Programs that run as root on the device. A password goes to sudo over standard input: no process list and no log shows it."""

from dataclasses import dataclass

from edgemeter.agent.errors import ConfigError, UnavailableError
from edgemeter.provisioning.apply.found import Rights
from edgemeter.provisioning.apply.ssh import Answer, Connection

# Whatever sudo did not take of standard input (a password that it did not ask for) is skipped, never run as a program.
_BEGIN = b"#edgemeter\n"
_SKIP = 'while IFS= read -r line; do [ "$line" = "#edgemeter" ] && exec "$@"; done; exit 97'
# -k: sudo is to ask although it may remember the password; -p '': without a prompt.
_WITH_PASSWORD = ["sudo", "-k", "-S", "-p", "", "--"]
# What sudo, and sudo in Rust, say to those who may not.
_NOT_ALLOWED = ("not in the sudoers", "not allowed", "may not run", "afraid I can't do that")
_WITHOUT = {"root": [], "unneeded": [], "sudo": ["sudo", "-n", "--"]}


@dataclass(frozen=True, slots=True)
class Root:
    """Root on one device, by `rights`; `password` only where sudo wants one."""

    connection: Connection
    rights: Rights
    password: str | None

    def check(self) -> None:
        """Make sure that we may be root there.

        Raises:
            UnavailableError: this user may not use sudo, or there is none.
            ConfigError: sudo wants a password and none was given, or the password is wrong.
        """
        login = self.connection.target.login
        if self.rights == "none":
            message = f"{login} is not root and has no sudo: install sudo there and let this user use it, or log in as root"
            raise UnavailableError(message)
        if self.rights != "password":
            return
        if self.password is None:
            message = f"sudo wants a password of {login}: give --ask-sudo-password or --sudo-password-file FILE"
            raise ConfigError(message)
        answer = self.connection.run([*_WITH_PASSWORD, "true"], self._line())
        if any(words in answer.complaint for words in _NOT_ALLOWED):
            message = (
                f"{login} may not use sudo: `adduser {self.connection.target.user or 'USER'} sudo` as root there, or log in as another user"
            )
            raise UnavailableError(message)
        if answer.status != 0:
            said = (answer.complaint.splitlines() or ["no word"])[-1][:200]
            message = (
                f"sudo refuses the password of {login} ({said}): give the right one with --ask-sudo-password or --sudo-password-file FILE"
            )
            raise ConfigError(message)

    def run(self, interpreter: list[str], program: bytes, timeout_s: float) -> Answer:
        """Return what `program` answered, read from standard input and run as root by `interpreter`."""
        skipping = ["sh", "-c", _SKIP, "sh", *interpreter]
        if self.rights == "password":
            return self.connection.run([*_WITH_PASSWORD, *skipping], self._line() + _BEGIN + program, timeout_s)
        return self.connection.run([*_WITHOUT[self.rights], *skipping], _BEGIN + program, timeout_s)

    def _line(self) -> bytes:
        return f"{self.password}\n".encode()
