"""`edgemeter report` and `edgemeter collector web`: one file, a page, and errors of one line."""

import os
import re
import signal
import subprocess
import urllib.request

import pytest

from edgemeter.agent.cli.main import main
from tests.fixtures.collecting import EDGEMETER
from tests.fixtures.comparison_factory import document_at, make_reference, make_run
from tests.fixtures.ledgers import fill
from tests.fixtures.one_file import whole_text


def run(capsys, *arguments):
    """Return the exit status and what went to standard error."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    return ended.value.code, capsys.readouterr().err


def test_report_writes_one_file_of_a_ledger_and_of_documents(tmp_path, capsys):
    """Both files hold only the device that was picked; an empty choice writes nothing."""
    ledger = fill(
        tmp_path / "ledger.sqlite",
        [make_run(), make_run(device="pi-2", sha256="c" * 64), make_reference()],
    )
    printed = document_at(tmp_path / "runs.json", make_run(), make_reference())
    for store in (ledger, printed):
        file = tmp_path / f"{store.stem}.html"
        assert (
            run(capsys, "report", "--ledger", str(store), "-o", str(file), "--device", "pi-1")[0]
            == 0
        )
        text = whole_text(file)
        assert "pi-1" in text
        assert 'data-device="pi-2"' not in text
    status, output = run(
        capsys,
        "report",
        "--ledger",
        str(ledger),
        "-o",
        str(tmp_path / "out.html"),
        "--device",
        "pi-9",
    )
    assert (status, output.count("\n"), "'pi-9'" in output) == (2, 1, True)
    assert not (tmp_path / "out.html").exists()


def test_wrong_stores_and_tokens_are_one_line(tmp_path, capsys):
    """An absent, empty or garbled one gives status 2 and a remedy."""
    (tmp_path / "garbled").write_bytes(b"\x00\xff" * 50)
    (tmp_path / "empty").write_bytes(b"")
    for store in ("absent", "garbled", "empty"):
        status, output = run(
            capsys, "report", "--ledger", str(tmp_path / store), "-o", str(tmp_path / "out.html")
        )
        assert (status, output.count("\n")) == (2, 1)
    ledger = fill(tmp_path / "ledger.sqlite", [make_run()])
    status, output = run(
        capsys, "collector", "web", "--ledger", str(ledger), "--token-file", str(tmp_path / "empty")
    )
    assert (status, output.count("\n")) == (2, 1)
    status, output = run(
        capsys, "collector", "web", "--ledger", str(ledger), "--listen", "192.0.2.1"
    )
    assert (status, output.count("\n")) == (2, 1)


@pytest.mark.services
def test_web_serves_until_a_signal_ends_it(tmp_path):
    """The real command prints its address, serves, and ends with status 0."""
    ledger = fill(tmp_path / "ledger.sqlite", [make_run(), make_reference()])
    command = [*EDGEMETER, "collector", "web", "--ledger", str(ledger), "--port", "0"]
    with subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "EDGEMETER_HOME": str(tmp_path)},
    ) as process:
        try:
            url = re.search(r"http://[^ ;]+", process.stderr.readline()).group()
            with urllib.request.urlopen(url, timeout=100) as answer:  # noqa: S310 - our own page
                assert answer.status == 200
        finally:
            process.send_signal(signal.SIGTERM)
        assert process.wait(100) == 0
