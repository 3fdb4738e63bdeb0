"""Runs on a board, by the Python of the copied release: one `edgemeter run`.

The run is in a folder of its own, which is removed at the end. Standard input has the suite as a
tar, then a line now and then as a heartbeat. When it ends, or is silent for SILENCE_S, the run is
ended (SIGINT, then SIGKILL). Standard output has MARK, then the output of the run. The folder of a
killed process is not locked: the next run removes it. Changed settings of the board are restored by
the next `edgemeter` there.
"""

import contextlib
import fcntl
import os
import select
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

from edgemeter.agent.base import config
from edgemeter.agent.base.errors import EdgemeterError
from edgemeter.agent.base.toml import toml_document

MARK = b"#edgemeter\n"
SILENCE_S, INTERRUPT_S = 45.0, 20.0
# The board's own run lock, which all measurements there share.
KEPT_VARIABLE = "EDGEMETER_RUN_LOCK"
DROPPED_VARIABLES = ("EDGEMETER_", "PIP_", "PYTHON", "XDG_")


class LiveInput:
    """Standard input, which ends after SILENCE_S without a byte."""

    def read(self, most_bytes: int) -> bytes:
        """Return the available bytes; nothing at the end."""
        return os.read(0, most_bytes) if select.select([0], [], [], SILENCE_S)[0] else b""


def new_folder(above: Path) -> tuple[Path, int]:
    """Return a new folder with the descriptor that locks it, after removing unlocked ones."""
    gate = os.open(above, os.O_RDONLY)
    fcntl.flock(gate, fcntl.LOCK_EX)
    for path in above.glob("run-*"):
        lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path)
            report("removed what a lost connection left there")
        os.close(lock)
    folder = Path(tempfile.mkdtemp(prefix="run-", dir=above))
    lock = os.open(folder, os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    os.close(gate)
    return folder, lock


def report(text: str) -> None:
    """Show a line on the machine that started the measurement."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def receive(folder: Path) -> None:
    """Write the received files; raises TarError if they end too early."""
    with tarfile.open(fileobj=LiveInput(), mode="r|") as tar:  # type: ignore[call-overload]
        for member in tar:
            path = folder / member.name
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("wb") as file:
                shutil.copyfileobj(tar.extractfile(member), file)


def write_settings(path: Path) -> None:
    """Write the board's names and sensors, and no broker.

    The results go to the machine that asked.
    """
    try:
        settings = config.read()
    except EdgemeterError as error:
        report(f"the board's own configuration is not used: {error}")
        settings = config.Config()
    path.write_text(
        toml_document(
            {key: getattr(settings, key) for key in ("device", "fleet", "role", "power", "sensors")}
        )
    )


def measure(command: list[str], folder: Path, lock: int) -> int:
    """Return the status of a command, which ends with standard input at the latest."""
    inherited = {
        name: text
        for name, text in os.environ.items()
        if name == KEPT_VARIABLE or not name.startswith(DROPPED_VARIABLES)
    }
    home = str(folder / "home")
    environment = {
        **inherited,
        "HOME": home,
        "EDGEMETER_HOME": home,
        "TMPDIR": home,
        "PYTHONUNBUFFERED": "1",
    }
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        cwd=folder,
        env=environment,
        start_new_session=True,
        pass_fds=(lock,),
    )

    def end_with_input() -> None:
        while LiveInput().read(1 << 16):
            pass
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGINT)
            time.sleep(INTERRUPT_S)
            os.killpg(process.pid, signal.SIGKILL)

    threading.Thread(target=end_with_input, daemon=True).start()
    status = process.wait()
    with contextlib.suppress(ProcessLookupError):
        # None of its child processes outlives it.
        os.killpg(process.pid, signal.SIGKILL)
    return status if status >= 0 else 128 - status


def main(arguments: list[str]) -> int:
    """Run `edgemeter` of this release with these arguments, and return its status.

    It runs in a folder with the received files.
    """
    os.umask(0o077)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder, lock = new_folder(Path.home() / ".cache" / "edgemeter")
    try:
        (folder / "home").mkdir()
        receive(folder)
        write_settings(folder / "settings.toml")
        sys.stdout.buffer.write(MARK)
        sys.stdout.buffer.flush()
        return measure([str(Path(sys.executable).with_name("edgemeter")), *arguments], folder, lock)
    except (OSError, tarfile.TarError) as error:
        report(f"edgemeter: {error}")
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
