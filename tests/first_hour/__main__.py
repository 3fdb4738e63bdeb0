"""Walks through the first hour of new users, each in a new environment from the wheel and an empty home; without a network once installed.

python -m tests.first_hour FOLDER PYTHON [NAME...]    writes FOLDER/NAME-PYTHON.txt for each journey, and prints a row for each

Commands run in a network namespace that has the loopback alone (`unshare`, which needs root). A transcript has each command with its
status, how long it took, and the longest time without a word. The time to the answer is without the install, which is the network's.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.first_hour.journeys import JOURNEYS, Journey
from tests.fixtures.environments import build_wheel, copy_source, install

LIMIT_S = 900.0
# A namespace of a network with the loopback alone, for as long as its standard input is open; what runs in it ends with it.
NAMESPACE = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", "ip link set lo up && echo up && cat"]
IN_BASH = ["bash", "-c", 'cd "$(cat "$2")"; eval "$1"; status=$?; pwd > "$2"; exit $status', "-"]


def walked(journey: Journey, programs: Path, home: Path) -> tuple[str, int, float]:
    """Return the transcript, and the number of commands and the seconds until the answer."""
    environment = {"PATH": f"{programs}:/usr/sbin:/usr/bin:/bin", "HOME": str(home), "COLUMNS": "120", "LANG": "C.UTF-8"}
    environment["EDGEMETER_RUN_LOCK"] = str(home / ".run.lock")
    text, taken_s, answered = "", 0.0, (0, 0.0)
    (home / ".folder").write_text(str(home))
    with without_network() as within:
        for number, command in enumerate(journey.commands, start=1):
            started_s = time.monotonic()
            output, status, silent_s = output_of([*within, *IN_BASH, command, str(home / ".folder")], environment)
            took_s = time.monotonic() - started_s
            taken_s += took_s
            mark = "    <== the answer" if command == journey.answer and not answered[0] else ""
            if mark:
                answered = number, taken_s
            text += f"$ {command}\n{output}[status {status}, {took_s:.1f} s, at most {silent_s:.1f} s without a word]{mark}\n\n"
    return text, *answered


@contextmanager
def without_network() -> Iterator[list[str]]:
    """Give the words before a command that runs it without a network; all that still runs ends with it."""
    with subprocess.Popen(NAMESPACE, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdin
        assert holder.stdout
        assert holder.stdout.readline() == b"up\n"
        (first,) = Path(f"/proc/{holder.pid}/task/{holder.pid}/children").read_text().split()
        yield ["nsenter", "--target", first, "--net", "--pid", "--mount"]
        holder.stdin.close()


def output_of(command: list[str], environment: dict[str, str]) -> tuple[str, int, float]:
    """Return what a command printed (both streams), its status, and the longest time without a word."""
    process = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    assert process.stdout
    output, silent_s, last_s = b"", 0.0, time.monotonic()
    deadline_s = last_s + LIMIT_S
    while chunk := os.read(process.stdout.fileno(), 65_536):
        now_s = time.monotonic()
        silent_s, last_s, output = max(silent_s, now_s - last_s), now_s, output + chunk
        assert now_s < deadline_s, command
    status = process.wait(10)
    return output.decode(errors="replace"), status, max(silent_s, time.monotonic() - last_s)


def main(arguments: list[str]) -> None:
    """Write the transcripts and print a row for each."""
    out, python, *names = Path(arguments[0]).resolve(), *arguments[1:]
    out.mkdir(parents=True, exist_ok=True)
    version = subprocess.run(
        [python, "-c", "import sys; print('%d.%d.%d' % sys.version_info[:3])"], capture_output=True, text=True, check=True
    )
    print("| who | page | Python | extras | install | commands to the answer | minutes to the answer |\n|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        wheel = build_wheel(copy_source(Path(folder) / "source"), Path(folder))
        for journey in (journey for journey in JOURNEYS if not names or journey.name in names):
            walk_folder = Path(folder) / journey.name.replace(" ", "-")
            started_s = time.monotonic()
            programs = install(walk_folder / "venv", wheel, journey.extras, python, journey.packages).parent
            install_s = time.monotonic() - started_s
            (walk_folder / "home").mkdir()
            text, commands, seconds = walked(journey, programs, walk_folder / "home")
            head = f"{journey.name}: Python {version.stdout.strip()}, edgemeter[{journey.extras}], docs/{journey.page}\n\n"
            name = f"{journey.name.replace(' ', '-').replace(',', '')}-{'.'.join(version.stdout.split('.')[:2])}.txt"
            (out / name).write_text(head + text.replace(str(walk_folder / "home"), "~"))
            row = (journey.name, journey.page, version.stdout.strip(), journey.extras or "none", f"{install_s:.0f} s", commands)
            print("|", " | ".join(map(str, row)), f"| {seconds / 60:.1f} |", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
