"""Facts about what a device tells of itself: no secret goes with it."""

from edgemeter.agent.jobs.carry_out import redacted
from tests.fixtures.rows import table_row

SHA256 = "0123456789abcdef" * 4
TOKEN = "Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4Zm9vYmFyYmF6cXV4"


def test_what_looks_like_a_secret_is_taken_out():
    """Only the secret is removed; hashes, addresses and paths stay, since a log needs them."""
    for line, secret in [
        ("password=hunter2", "hunter2"),
        ("Password: 'two words'", "two words"),
        ('psk="a b c"', "a b c"),
        ("token abcdef", "abcdef"),
        ("Authorization: Bearer abc.def", "abc.def"),
        ("api_key = 12345", "12345"),
        ("mqtts://pi:hunter2@broker.example:8883", "hunter2"),
        (f"joined with {TOKEN}", TOKEN),
        (
            "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEE\n-----END EC PRIVATE KEY-----\nafter",
            "MHcCAQEE",
        ),
        ("-----BEGIN PRIVATE KEY-----\nMHcCAQEE", "MHcCAQEE"),
    ]:
        with table_row(line):
            shortened = redacted(f"before {line}")
            assert secret not in shortened
            assert shortened.startswith("before ")
            assert "[redacted]" in shortened
    for line in [
        f"model {SHA256} fetched",
        (
            "2026-11-20T12:00:00Z info agent of 'pi-1', broker mqtts://broker.example:8883, 3 "
            "records wait"
        ),
        "the broker at broker.example:1883 refuses user 'pi' (Not authorized)",
        (
            "cannot import torch: "
            "/usr/lib/python3/dist-packages/torch/lib/libtorch_cpu.so: no such file"
        ),
    ]:
        assert redacted(line) == line, f"{line!r}"
