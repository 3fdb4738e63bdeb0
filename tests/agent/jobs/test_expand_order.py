"""Facts about the suites that come with orders: what they may say of language models."""

import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import order_suite
from edgemeter.agent.jobs import measure_order
from tests.fixtures.rows import table_row


def expanded(folder, keys, name="m.gguf"):
    models = folder / "given"
    models.mkdir()
    (models / name).write_bytes(b"x")
    links = folder / "links"
    links.mkdir()
    suite = order_suite.read(f'name = "o"\n[[case]]\nmodel = "{name}"\n{keys}\n'.encode())
    return measure_order.expand_order(suite, {name: models / name}, links).cases


def test_an_order_may_sweep_the_lengths_of_a_language_model(tmp_path):
    """Lengths are numbers and refer to nothing on the board."""
    cases = expanded(tmp_path, "prompt_tokens = [128, 512]\noutput_tokens = 16")
    assert [(case.runtime, case.prompt_tokens, case.output_tokens) for case in cases] == [
        ("llama", 128, 16),
        ("llama", 512, 16),
    ]


SERVER = "an order cannot contain a server"
STEADY = 'scenario = "steady"\nrate_per_s = 1.0\n'


@pytest.mark.parametrize(
    ("name", "keys", "reason"),
    [
        ("m.server", "", SERVER),
        ("m.unknown", 'runtime = "server"', SERVER),
        (
            "m.replay.json",
            STEADY + 'data = "/etc/shadow"',
            r"case 1: Expected `str` matching .*\$\.data",
        ),
        ("m.replay.json", STEADY + 'data = "a.zip"', "unknown photographs 'a.zip'"),
        ("m.replay.json", STEADY + 'annotations = "a.zip"', "unknown field `annotations`"),
    ],
)
def test_an_order_may_bring_no_server_and_no_data_but_its_own(tmp_path, name, keys, reason):
    """A server's file could make the board send one of its own files to any address.

    Data are named by their archive, which holds the annotations: an order cannot name a file of the
    board.
    """
    with pytest.raises(ConfigError, match=reason):
        expanded(tmp_path, keys, name)


def test_an_order_may_bring_no_code(tmp_path):
    """Every way in which a suite could name a factory is refused.

    The error says where a factory can be named instead.
    """
    for model, keys in [
        ('"package.module:make"', ""), ('"net.py:make"', ""), ('"net.py"', ""),
        ('["m.gguf", "net.py"]', ""), ('"m.gguf"', 'runtime = "python"'),
        ('"m.gguf"', 'runtime = ["llama", "python"]'),
    ]:  # fmt: skip
        document = f'name = "o"\n[[case]]\nmodel = {model}\n{keys}\n'.encode()
        with (
            table_row(model),
            pytest.raises(
                ConfigError,
                match=r"refused: (a factory or plug-in|case 1: Expected `str` matching)",
            ),
        ):
            measure_order.expand_order(order_suite.read(document), {}, tmp_path)


def test_a_wrong_key_names_its_case():
    """The author need not search a thousand cases for the mistake."""
    cases = '[[case]]\nmodel = "m.gguf"\n' * 2
    for line, reason in (("treads = 2", "unknown field `treads`"), ('threads = "two"', "Expected")):
        with table_row(line), pytest.raises(ConfigError, match=f"case 3: .*{reason}"):
            order_suite.read(f'name = "o"\n{cases}[[case]]\nmodel = "m.gguf"\n{line}\n'.encode())


def test_lengths_count_among_the_combinations_of_a_case():
    """An order cannot ask for a million cases in one line."""
    many = ", ".join(map(str, range(1, 60)))
    with pytest.raises(ConfigError, match=r"3481 combinations"):
        order_suite.read(
            (
                f'name = "o"\n[[case]]\nmodel = "m.gguf"\nprompt_tokens = [{many}]\n'
                f"output_tokens = [{many}]\n"
            ).encode()
        )
