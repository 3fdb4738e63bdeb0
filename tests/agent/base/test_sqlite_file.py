"""Facts about our own SQLite files.

They concern what a full disk leaves of a new file, and file systems whose locks keep nobody out.
"""

import ast
import contextlib
import os
import re
import subprocess
import sys

import pytest

from edgemeter.agent.base import sqlite_file
from edgemeter.agent.base.errors import ConfigError, TransientError, UnavailableError
from edgemeter.agent.base.sqlite_file import FileFormat
from tests.fixtures.own_imports import MODULES, ROOT, tree
from tests.fixtures.small_disk import small_disk

FORM = FileFormat(
    what="ledger",
    application_id=1,
    version=1,
    schema="".join(f"CREATE TABLE t{number} (value);\n" for number in range(12)),
    elsewhere="give the path of a ledger",
)
PAGE_BYTES = 4096


def test_no_statement_numbers_its_values():
    """Python 3.12.0 and 3.12.1 warn of `?1` with a sequence, so values are `?` or have names."""
    numbered = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {node.value[:60]}"
        for path in MODULES
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and re.search(r"(?<!\w)\?[1-9]", node.value)
    ]
    assert numbered == []


@pytest.mark.services
def test_a_disk_that_fills_while_a_file_is_created_leaves_nothing_or_a_file_that_can_be_used(
    tmp_path,
):
    """However many pages were free, the file can be used as soon as there is room."""
    with small_disk(tmp_path / "disk", 1) as disk:
        path, filler = disk / "ledger.sqlite", disk / "filler"
        for pages in range(0, 64, 3):
            filler.write_bytes(bytes(PAGE_BYTES * (os.statvfs(disk).f_bfree - pages)))
            with contextlib.suppress(UnavailableError):
                sqlite_file.Database(path, FORM).close()
            filler.unlink()
            with sqlite_file.Database(path, FORM) as database:
                assert database.query("SELECT * FROM t11") == []
            for file in disk.glob("ledger*"):
                file.unlink()


def test_a_torso_is_put_aside_and_a_used_file_is_not(tmp_path, caplog):
    """A new file of which only some pages were written holds nothing.

    A damaged file that has been used may hold data, and is refused.
    """
    path = tmp_path / "ledger.sqlite"
    sqlite_file.Database(path, FORM).close()
    torso = path.read_bytes()[: 3 * PAGE_BYTES]
    path.write_bytes(torso)
    with pytest.raises(ConfigError, match="malformed"):
        sqlite_file.Database(path, FORM, "read")
    with sqlite_file.Database(path, FORM) as database, database.transaction() as connection:
        connection.execute("INSERT INTO t0 VALUES (randomblob(100000))")
    assert (tmp_path / "ledger.sqlite.torso").read_bytes() == torso
    assert "moved to 'ledger.sqlite.torso'" in caplog.text
    path.write_bytes(path.read_bytes()[: 3 * PAGE_BYTES])
    with pytest.raises(ConfigError, match="malformed"):
        sqlite_file.Database(path, FORM)
    assert path.stat().st_size == 3 * PAGE_BYTES


@pytest.mark.services
def test_a_second_connection_of_a_process_leaves_the_locks_of_the_first(tmp_path):
    """SQLite's locks belong to the process, and closing the file would release them all.

    Then another process would remove the log that is in use.
    """
    path = tmp_path / "ledger.sqlite"
    with sqlite_file.Database(path, FORM) as database:
        with database.transaction() as connection:
            connection.execute("INSERT INTO t0 VALUES (1)")
        sqlite_file.Database(path, FORM).close()
        code = (
            "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); print(*c.execute('SELECT * "
            "FROM t0')); c.close()"
        )
        assert subprocess.check_output([sys.executable, "-c", code, path], text=True) == "(1,)\n"
        assert path.with_name("ledger.sqlite-wal").exists()


@pytest.mark.parametrize(
    ("kind", "options", "is_refused"),
    [
        ("nfs", "rw,vers=3,nolock,local_lock=all,addr=192.0.2.1", True),
        ("nfs4", "rw,vers=4.2,local_lock=none", False),
        ("nfs4", "rw,vers=4.2,local_lock=posix", True),
        ("cifs", "rw,nobrl,vers=3.1.1", True),
        ("fuse.sshfs", "rw,user_id=0", True),
        ("ext4", "rw,nolock", False),
    ],
)
def test_a_file_system_whose_locks_end_at_this_machine_is_refused_by_its_type(
    tmp_path, monkeypatch, kind, options, is_refused
):
    """On such a file system, two collectors on two machines would both write.

    No file is made there, and an existing one is not written to; it can be read.
    """
    path = tmp_path / "ledger.sqlite"
    sqlite_file.Database(path, FORM).close()
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mountinfo"
    number = f"{os.major(device)}:{os.minor(device)}"
    line = f"36 35 {number} / %s rw,noatime shared:7 - {kind} server:/x y {options}\n"
    mounts.write_text(f"21 1 0:5 / /proc rw - proc proc rw\n{line % '/mnt'}")
    monkeypatch.setattr(sqlite_file, "MOUNTS", mounts)
    if not is_refused:
        sqlite_file.Database(path, FORM).close()
        return
    for name in ("ledger.sqlite", "new", "folder/new"):
        with pytest.raises(
            ConfigError, match=f"would be on {kind.removeprefix('fuse.')}.*local disk"
        ):
            sqlite_file.Database(tmp_path / name, FORM)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "folder").exists()
    sqlite_file.Database(path, FORM, "read").close()
    # The root of a board that boots over the network, with `nolock` by default: no other machine
    # uses it.
    mounts.write_text(line % "/")
    sqlite_file.Database(path, FORM).close()


def test_how_long_a_file_has_been_locked_is_what_was_waited(tmp_path, monkeypatch):
    """The error states the busy timeout only if that time has passed.

    SQLite refuses some transactions at once, and then no time is claimed.
    """
    path = tmp_path / "ledger.sqlite"
    monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 0.0)
    with (
        sqlite_file.Database(path, FORM) as database,
        sqlite_file.Database(path, FORM) as holder,
        holder.transaction(),
    ):
        with pytest.raises(TransientError, match="another process"):
            database.query("BEGIN IMMEDIATE")
        monkeypatch.setattr(sqlite_file, "BUSY_TIMEOUT_S", 30.0)
        with pytest.raises(TransientError, match="another connection"):
            database.query("BEGIN IMMEDIATE")


@pytest.mark.services
def test_a_file_system_that_gives_no_locks_is_named_and_no_other_process_is_blamed(tmp_path):
    """Without its lock service NFS answers ENOLCK, which SQLite reports as locked."""
    sqlite_file.Database(tmp_path / "ledger.sqlite", FORM).close()
    code = f"""
import sys
from pathlib import Path
from edgemeter.agent.base import sqlite_file
sqlite_file.BUSY_TIMEOUT_S = 0.1
form = sqlite_file.{FORM!r}
try:
    sqlite_file.Database(Path(sys.argv[1]), form)
except Exception as error:
    print(type(error).__name__, error)
"""
    command = [
        sys.executable,
        "-m",
        "tests.fixtures.lesser_kernel",
        sys.executable,
        "-c",
        code,
        str(tmp_path / "ledger.sqlite"),
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.stdout.startswith("UnavailableError the ledger"), result
    assert "gives no locks (ENOLCK)" in result.stdout
    assert "another process" not in result.stdout
