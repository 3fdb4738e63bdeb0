"""The contract of jobs: what an order may not hold refuses all of it."""

import itertools

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import orders
from edgemeter.provisioning.release import install
from tests.fixtures.rows import table_row

SUITE = {"sha256": "a" * 64, "size_bytes": 10, "name": "nightly.toml"}
ORDER = {
    "job": "nightly-7",
    "attempt": 1,
    "version": 3,
    "timeout_s": 600,
    "work": {"type": "measure", "suite": SUITE},
}
RISING = [
    "0.9",
    "1.0.dev1",
    "1.0a1",
    "1.0b2",
    "1.0rc1",
    "1.0",
    "1.0.post1",
    "1.0.1",
    "1.2",
    "1.10",
    "2",
]


def test_an_order_comes_back_as_it_was_sent():
    """Every kind of work is kept, and so is the server's acknowledgement.

    An order without photographs is one that older agents take.
    """
    works = [
        orders.Measure(suite=orders.Content(**SUITE)),
        orders.Measure(suite=orders.Content(**SUITE), data=(orders.Data(**SUITE),)),
        orders.Update(version="1.2.3", bundle=orders.Content(**SUITE)),
        orders.Doctor(),
        orders.Logs(lines=5),
        orders.Restart(what="board"),
        orders.Measure(suite=orders.Content(**SUITE), at="02:30"),
        orders.Measure(suite=orders.Content(**SUITE), every_s=21_600),
        orders.Cancel(),
    ]
    for work in works:
        order = orders.Order(job="a", attempt=1, version=0, work=work, timeout_s=1.0)
        assert orders.decode_command(orders.encode_order(order)) == order
    noted = orders.ReportReceipt(noted="a", attempt=1, version=4)
    assert orders.decode_command(orders.encode_order(noted)) == noted
    order = orders.Order(
        job="a",
        attempt=1,
        version=0,
        work=orders.Measure(suite=orders.Content(**SUITE)),
        timeout_s=1.0,
    )
    assert b"data" not in orders.encode_order(order)


def test_a_path_a_shell_text_or_an_unknown_field_refuses_the_order():
    """The whole order is refused, with one line that says why."""
    for wrong in [
        {"job": "../x"},
        {"attempt": 0},
        {"shell": "reboot"},
        {"timeout_s": 0},
        {"work": {"type": "shell", "text": "reboot"}},
        {"work": {"type": "measure", "suite": SUITE | {"name": "../../etc/passwd"}}},
        {"work": {"type": "measure", "suite": SUITE | {"sha256": "A" * 64}}},
        {"work": {"type": "measure", "suite": SUITE, "path": "models"}},
        {"work": {"type": "measure", "suite": SUITE, "data": [SUITE | {"name": "../val.zip"}]}},
        {
            "work": {
                "type": "measure",
                "suite": SUITE,
                "data": [SUITE | {"size_bytes": orders.LARGEST_DATA_BYTES + 1}],
            }
        },
        {"work": {"type": "update", "version": "1.0/../2", "bundle": SUITE}},
        {"work": {"type": "measure", "suite": SUITE, "at": "24:00"}},
        {"work": {"type": "measure", "suite": SUITE, "every_s": 1}},
        {"work": {"type": "logs", "lines": 10**9}},
    ]:
        with table_row(wrong), pytest.raises(ConfigError, match="not an order"):
            orders.decode_command(msgspec.json.encode(ORDER | wrong))


def test_garbage_is_one_line():
    """Text that is empty, of another kind, truncated, deep or too large is refused."""
    for payload in [b"", b"[]", b"\xff", b'{"noted"', b"[" * 100_000, b"x" * (65 << 10)]:
        with table_row(payload[:20]), pytest.raises(ConfigError, match="not an"):
            orders.decode_command(payload)


def test_versions_rise_as_in_python():
    """The order of versions is the installer's.

    Zeros at the end and a local part do not count, and any other text is refused.
    """
    for older, newer in itertools.pairwise(RISING):
        assert orders.version_key(older) < orders.version_key(newer)
        assert install.version_key(older) < install.version_key(newer)
    assert orders.version_key("1") == orders.version_key("1.0.0") == orders.version_key("1.0+pi5")
    for text in ["", "v1", "1..2", "1-2", "latest", "1.0; reboot"]:
        with table_row(text), pytest.raises(ConfigError, match=r"1\.2\.3"):
            orders.version_key(text)
