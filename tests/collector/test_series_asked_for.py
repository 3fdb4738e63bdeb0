import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.collector.cli.trend import trend, units
from tests.fixtures.comparison_factory import document
from tests.fixtures.series_factory import make_days, noisy


@pytest.fixture
def store(tmp_path):
    """Return the path of a store with two boards of one type."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(*make_days(noisy(100, 20)), *make_days(noisy(100, 20, seed=2), device="pi-2")))
    return str(path)


def refusal(command, *arguments):
    """Return the error that the command ends with."""
    with pytest.raises(ConfigError) as error:
        command.main(list(arguments), standalone_mode=False)
    return str(error.value)


def test_an_unknown_device_is_named_with_those_that_exist(store):
    """A typo is no steady series."""
    assert refusal(trend, "--ledger", store, "--device", "pi-3") == "no run has device 'pi-3'; known are pi-1, pi-2"
    assert refusal(units, "--ledger", store, "--board", "Pi 6").startswith("no run has board 'Pi 6'; known are ")


def test_filters_without_a_common_run_are_reported(tmp_path):
    """Each matches runs, and no run matches both."""
    path = tmp_path / "runs.json"
    path.write_bytes(document(*make_days(noisy(100, 5), fleet="a"), *make_days(noisy(100, 5, seed=2), device="pi-2", fleet="b")))
    assert refusal(trend, "--ledger", str(path), "--device", "pi-2", "--fleet", "a").startswith("no run has fleet 'a', device 'pi-2'")
