"""Files that attack whoever opens them are run as a user would run them.

None writes beside the run, shows a key, or ends in a traceback.
"""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import model_card
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.suite import SuiteFile, expand
from edgemeter.agent.sandbox.run_grant import grant_for
from edgemeter.agent.session import checks
from tests.fixtures.archives import changed
from tests.fixtures.rows import table_row

FIXTURES = Path(__file__).parents[2] / "fixtures" / "runtimes"
SECRET = "PRIVATE-KEY-OF-THIS-TEST"
# As long as the name in the fixture, so that the lengths around it hold.
NAMED = b"onnx_external.bin"


def png(width, height):
    """Return the beginning of a picture that claims this size."""
    import struct  # noqa: PLC0415 - of this function only
    import zlib  # noqa: PLC0415 - as above

    header = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    data = b"IDAT" + zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(chunk) - 4) + chunk + struct.pack(">I", zlib.crc32(chunk))
        for chunk in (header, data, b"IEND")
    )


def scripted(folder, name, statement):
    """Write a TorchScript archive that computes as the fixture does, after this statement."""
    ends = f"    {statement}\n    return".encode()
    changed(
        FIXTURES / "pytorch_config.torchscript",
        folder / name,
        lambda member, content: (
            content.replace(b"    return", ends) if member.endswith(".py") else content
        ),
    )


def attacks(folder, key):
    """Write the hostile files and return the command line of each."""
    external = (FIXTURES / "onnx_external.onnx").read_bytes()
    for name, location in (
        ("absolute", b"/etc".ljust(len(NAMED) - 6, b"/") + b"passwd"),
        ("above", b"../home/.ssh/id_a"),
        ("hidden", b"./../home/.ssh/id"),
    ):
        assert len(location) == len(NAMED)
        (folder / f"{name}.onnx").write_bytes(external.replace(NAMED, location))
    onnx, tflite = (FIXTURES / "onnx.onnx").read_bytes(), (FIXTURES / "litert.tflite").read_bytes()
    (folder / "plain.onnx").write_bytes(onnx)
    (folder / "cut.tflite").write_bytes(tflite[: len(tflite) // 2] + b"\xff" * 64)
    (folder / "custom.tflite").write_bytes((FIXTURES / "litert_custom.tflite").read_bytes())
    (folder / "odd.gguf").write_bytes(b"GGUF\x03\0\0\0" + b"\xff" * 64)
    (folder / "huge.gguf").write_bytes(
        b"GGUF\x03\0\0\0" + (1 << 40).to_bytes(8, "little") * 2 + bytes(4096)
    )
    (folder / "pickle.pt").write_bytes(b"\x80\x02cposix\nsystem\nX\x04\0\0\0true\x85R.")
    scripted(folder, "save.pt", f'torch . save(x, "{folder}/planted")')
    scripted(folder, "aten.pt", f'ops.aten.save(x, "{folder}/planted")')
    scripted(folder, "alias.pt", f't = torch\n    t.save(x, "{folder}/planted")')
    scripted(folder, "read.pt", f'x = torch.add(x, torch.sum(torch.from_file("{key}", False, 4)))')
    with zipfile.ZipFile(folder / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("m/version", "3")
        archive.writestr("m/data/weights/weight_0", bytes(50_000_000))
    pictures = folder / "pictures"
    pictures.mkdir()
    (pictures / "bomb.png").write_bytes(png(60_000, 60_000))
    (pictures / "link.png").symlink_to(key)
    names = sorted(path.name for path in folder.iterdir() if path.suffix not in {".toml", ""})
    assert len(names) >= 14
    return [[name] for name in names] + [
        ["plain.onnx", "--data", "pictures"],
        ["custom.tflite", "--data", "pictures"],
    ]


@pytest.mark.nightly
def test_no_hostile_file_writes_reads_a_key_or_ends_in_a_trace(tmp_path):
    """Attacks use external data, code, sizes and pictures.

    Each file is measured, or refused in one line.
    """
    home, folder = tmp_path / "home", tmp_path / "models"
    (home / ".ssh").mkdir(parents=True)
    folder.mkdir()
    for name in ("id", "id_a"):
        (home / ".ssh" / name).write_text(SECRET)
    commands = attacks(folder, home / ".ssh" / "id_a")
    before = sorted(str(path) for path in tmp_path.rglob("*"))
    for words in commands:
        command = [
            "run",
            *words,
            "--mode",
            "rapid",
            "--repeats",
            "1",
            "-q",
            "--format",
            "json",
            "--no-save",
        ]
        completed = subprocess.run(
            [sys.executable, "-m", "edgemeter.agent.cli", *command], capture_output=True, text=True,
            check=False, cwd=folder, timeout=100,
            env={**os.environ, "HOME": str(home), "EDGEMETER_HOME": str(tmp_path / "state")},
        )  # fmt: skip
        with table_row(words):
            assert SECRET not in completed.stdout + completed.stderr
            assert "Traceback (most recent call last)" not in completed.stderr, completed.stderr
    after = sorted(
        str(path) for path in tmp_path.rglob("*") if tmp_path / "state" not in (path, *path.parents)
    )
    assert after == before


def test_a_model_opens_its_own_folder_only(tmp_path):
    """External data above the model, or anywhere else, may not be read by its run."""
    home, folder = tmp_path / "home", tmp_path / "models"
    (home / ".ssh").mkdir(parents=True)
    folder.mkdir()
    for name in ("id", "id_a"):
        (home / ".ssh" / name).write_text(SECRET)
    attacks(folder, home / ".ssh" / "id_a")
    for name in ("absolute.onnx", "above.onnx", "hidden.onnx"):
        (case,) = expand(SuiteFile(name="s", case=[Settings(model=name)]), folder).cases
        with table_row(name):
            assert {path.resolve().parent for path in grant_for(case).read} == {folder}


def test_an_option_that_is_too_long_for_a_name_is_no_file(tmp_path):
    """The system gives an error if it is asked for a file with so long a name.

    The inputs of a model that has many are such an option.
    """
    (tmp_path / "net.py").write_text("def make(): pass")
    for text in ("x=1x4," * 60, "/".join(["y" * 100] * 60)):
        (case,) = expand(
            SuiteFile(
                name="s",
                case=[Settings(model="net.py:make", runtime="python", options={"input": text})],
            ),
            tmp_path,
        ).cases
        assert {path.resolve() for path in grant_for(case).read} == {tmp_path.resolve()}


@pytest.mark.services
def test_a_card_is_read_in_the_sandbox(tmp_path, monkeypatch):
    """A card may come from the same source as its model, so the agent does not parse it.

    A parser's mistake would end the process that measures.
    """

    def parse(*_):
        raise AssertionError("the card was read by the session")

    monkeypatch.setattr(model_card, "decode_toml", parse)
    (tmp_path / "m.onnx").write_bytes((FIXTURES / "onnx.onnx").read_bytes())
    (tmp_path / "m.onnx.toml").write_text("[[" * 1000)
    suite = expand(
        SuiteFile(name="s", case=[Settings(model="m.onnx", mode="rapid", repeats=1)]), tmp_path
    )
    with pytest.raises(ConfigError, match=r"m\.onnx\.toml.*at line 1"):
        checks.runnable(suite)
