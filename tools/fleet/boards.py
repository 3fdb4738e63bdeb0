"""Boards on this machine: each has a release, an agent and a supervisor at their places.

The places are mounts that nobody else sees.
"""

import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

from tools.chaos.supervised import Supervised

NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount", "sh", "-euc")
# $0 the board's folder, then the command: what is the board's own lies over what is this machine's.
ON_BOARD = """
for folder in /opt /var/lib; do mount -t tmpfs tmpfs "$folder"; mkdir "$folder/edgemeter"; done
mount --bind "$0/opt" /opt/edgemeter
mount --bind "$0/home" /var/lib/edgemeter
mount --bind "$0/lock" /run/lock
mount --bind "$0/machine-id" /etc/machine-id
echo $$ > "$0/home/$1.pid"
shift
exec "$@"
"""
VARIABLES = {
    "EDGEMETER_HOME": "/var/lib/edgemeter",
    "EDGEMETER_CONFIG": "/var/lib/edgemeter/config.toml",
    # Somebody starts it again.
    "INVOCATION_ID": "test",
}
AGENT = "/opt/edgemeter/current/bin/edgemeter"
# There is no systemd: the agent is started again when it ends, and nobody counts that.
SUPERVISOR = {
    "restart-command": "sh -c 'kill -9 $(cat /var/lib/edgemeter/agent.pid)'",
    "starts-command": "echo 0",
    "reboot-command": "true",
    "settle-s": 5,
}


class LoopbackBoard:
    """A board named `name` below `folder`: `join` once, then `start`.

    Its release is installed in `installed`.
    """

    def __init__(self, name: str, number: int, folder: Path, installed: Path) -> None:
        self.name = name
        self._folder = folder / name
        for part in ("home", "lock"):
            (self._folder / part).mkdir(parents=True)
        shutil.copytree(installed, self._folder / "opt", symlinks=True)
        (self._folder / "machine-id").write_text(f"{number + 1:032x}\n")
        options = [f"--{option}={value}" for option, value in SUPERVISOR.items()]
        self.agent = self._kept_up("agent", AGENT, "agent", "up")
        self.supervisor = self._kept_up(
            "supervisor", sys.executable, "/opt/edgemeter/proven/supervisor.py", *options
        )

    def join(self, join_file: Path) -> None:
        """Join with the token in a file, and take orders without a sandbox."""
        command = self._command(
            "join",
            AGENT,
            "agent",
            "join",
            str(join_file),
            "--config",
            VARIABLES["EDGEMETER_CONFIG"],
        )
        subprocess.run(
            command, env=os.environ | VARIABLES, check=True, capture_output=True, timeout=300
        )
        with (self._folder / "home" / "config.toml").open("a") as config:
            config.write('unconfined_orders = "allow"\n')

    def start(self, stack: ExitStack) -> None:
        """Keep its agent and its supervisor up until the stack ends."""
        for process in (self.supervisor, self.agent):
            stack.callback(process.stop)
            process.start()

    def copy(self) -> "LoopbackBoard":
        """Return the same board with a copy of the card as it was when the board had joined."""
        copied = LoopbackBoard(f"{self.name}-copy", 0, self._folder.parent, self._folder / "opt")
        shutil.copy(self._folder / "machine-id", copied._folder)
        shutil.copytree(self._folder / "home" / "identity", copied._folder / "home" / "identity")
        for name in ("config.toml", "joined"):
            shutil.copy(self._folder / "home" / name, copied._folder / "home")
        return copied

    def release(self) -> str:
        return (self._folder / "opt" / "current").readlink().name

    def _kept_up(self, name: str, *command: str) -> Supervised:
        return Supervised(
            f"{self.name} {name}",
            self._command(name, *command),
            self._folder / f"{name}.log",
            VARIABLES,
        )

    def _command(self, name: str, *command: str) -> list[str]:
        return [*NAMESPACE, ON_BOARD, str(self._folder), name, *command]


def install(release: Path, public_key: Path, folder: Path) -> Path:
    """Install a release, to be copied to each board, and return where it lies."""
    installed, tools = folder / "installed", folder / "tools"
    for path in (installed, tools):
        path.mkdir()
    subprocess.run(["tar", "-xf", str(release), "-C", str(tools), "install.py"], check=True)
    # A virtual environment works where it was built only.
    script = (
        'mount -t tmpfs tmpfs /opt; mkdir /opt/edgemeter; mount --bind "$0" '
        '/opt/edgemeter; exec "$@"'
    )
    command = [*NAMESPACE, script, str(installed), sys.executable, str(tools / "install.py")]
    subprocess.run(
        [*command, "--release", str(release), "--public-key", str(public_key)],
        check=True,
        capture_output=True,
    )
    return installed
