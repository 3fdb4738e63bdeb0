import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.datacenter import constants
from tests.fixtures.rows import table_row


def test_a_user_overrides_one_entry_and_adds_another(tmp_path):
    """The other entries stay as they ship."""
    path = tmp_path / "own.toml"
    path.write_text(
        '[pue]\nlow = 1.05\nhigh = 1.2\nsource = "our hall"\nyear = 2026\n'
        '[network.ours]\naccess = "fixed"\nkwh_per_gb = 0.01\nsource = "our provider"\n'
        "year = 2026\n"
    )
    shipped, read = constants.read_constants(), constants.read_constants(path)
    assert (read.pue.low, read.network["ours"].kwh_per_gb) == (1.05, 0.01)
    assert {*shipped.network, "ours"} == set(read.network)


def test_a_wrong_override_is_refused_and_named(tmp_path):
    """Each error names the wrong entry."""
    for text, message in (
        ("[pue]\nlow = 1.1\nhigh = 1.2\n", "missing required field `source`"),
        ('[pue]\nlow = 1.6\nhigh = 1.2\nsource = "x"\nyear = 2026\n', "is above high"),
        ('[pu]\nlow = 1.1\nsource = "x"\nyear = 2026\n', "unknown field `pu`"),
        (
            '[network.x]\naccess = "fixed"\nsource = "x"\nyear = 2026\n',
            "either kwh_per_gb or w_per_mbit_per_s",
        ),
        (
            (
                '[stated_server]\nidle_w = 9\nmax_w = 5\nrate_per_s = 1\nscope = "wall-ac"\n'
                'source = "x"\nyear = 2026\n'
            ),
            "above its 5 W",
        ),
        ("[pue", "has its source and year"),
    ):
        with table_row(text):
            path = tmp_path / "own.toml"
            path.write_text(text)
            with pytest.raises(ConfigError, match=r"own\.toml'") as error:
                constants.read_constants(path)
            assert message in str(error.value)
    with pytest.raises(ConfigError, match=r"cannot read the constants .*No such file"):
        constants.read_constants(tmp_path / "none.toml")
