"""The join file: what it says, and how its secrets go."""

import os

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError, UnavailableError
from edgemeter.agent.contract import identity
from edgemeter.agent.contract.identity import JoinFile
from edgemeter.agent.identity import joining
from tests.fixtures.rows import table_row

SECRET, QUOTED = "s3cret-token", 'a "quoted" \\ token'
JOIN = JoinFile(
    fleet="lab",
    device="pi 1",
    broker="mqtts://b:8883",
    service="https://b:8443",
    ca="-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----",
    token=SECRET,
)


def test_a_file_is_read_as_it_was_written(tmp_path):
    """Every key is kept, a token with quotes and backslashes too.

    Python's representation of the file shows no secret.
    """
    path = tmp_path / "join.toml"
    path.write_text(identity.join_file_text(msgspec.structs.replace(JOIN, token=QUOTED)))
    join = identity.read_join_file(path)
    assert (join.device, join.token) == ("pi 1", QUOTED)
    assert "quoted" not in repr(join)


@pytest.mark.parametrize(("ending", "quote"), [("\n", '"'), ("\r\n", "'")])
def test_secrets_are_overwritten_where_they_stand_before_they_are_taken_out(
    tmp_path, monkeypatch, ending, quote
):
    """Filler of the same length reaches the disk before the file is replaced.

    All else in the file stays.
    """
    path = tmp_path / "join.toml"
    lines = [
        'fleet = "lab"',
        f"token = {quote}{SECRET}{quote} # home",
        f"  token={quote}0123{quote}",
        'broker = "b"',
    ]
    path.write_bytes(ending.join(lines).encode())
    synced = []
    number = path.stat().st_ino

    def fsync(descriptor, real=os.fsync):
        if os.fstat(descriptor).st_ino == number:
            synced.append(path.read_bytes())
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    assert joining.wipe_secrets(path)
    assert len(synced) == 1
    assert len(synced[0]) == len(ending.join(lines))
    assert SECRET.encode() not in synced[0]
    assert b"0123" not in synced[0]
    assert path.read_bytes() == ending.join(['fleet = "lab"', 'broker = "b"']).encode()
    assert not joining.wipe_secrets(path)


def test_a_quoted_secret_is_overwritten_whole(tmp_path):
    """Nothing is left of a secret with escaped quotation marks, and all else stays."""
    path = tmp_path / "join.toml"
    path.write_text(identity.join_file_text(msgspec.structs.replace(JOIN, token=QUOTED)))
    joining.wipe_secrets(path)
    assert "quoted" not in path.read_text()
    assert identity.read_join_file(path) == msgspec.structs.replace(
        JOIN, token=None, ca=f"{JOIN.ca}\n"
    )


def test_a_wrong_file_is_one_line_without_its_secrets(tmp_path):
    """An empty, garbled or cut file, or one with an unknown key, is refused."""
    for text in [
        "",
        "x",
        'fleet = "lab"',
        f'token = "{SECRET}"\nfleet = 1',
        f'token = "{SECRET}"\nunknown = 1',
        f'token = "{SECRET}',
    ]:
        path = tmp_path / "join.toml"
        path.write_text(text)
        with table_row(text), pytest.raises(ConfigError, match="fleet token") as refusal:
            identity.read_join_file(path)
        assert SECRET not in str(refusal.value), f"{text!r}"
        assert "\n" not in str(refusal.value), f"{text!r}"
    with pytest.raises(ConfigError, match="cannot read the join file"):
        identity.read_join_file(tmp_path / "absent")
    with pytest.raises(UnavailableError, match="cannot wipe"):
        joining.wipe_secrets(tmp_path / "absent")
