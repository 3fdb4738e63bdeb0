"""Test that a text which names a default names the default that holds."""

import pytest

from edgemeter.agent.base.cli.options import matters_option
from edgemeter.agent.base.decision import MATTERS_RATIO
from edgemeter.agent.contract import case_settings
from edgemeter.agent.contract.suite import MODES
from edgemeter.agent.settings.case_keys import setting_texts


@pytest.mark.parametrize(
    ("key", "default"),
    [
        ("mode", f"{case_settings.MODE} ({MODES[case_settings.MODE].seconds:g} s)"),
        ("prompt_tokens", f"{case_settings.PROMPT_TOKENS}"),
        ("output_tokens", f"{case_settings.OUTPUT_TOKENS}"),
        ("precision_ratio", f"{case_settings.PRECISION_RATIO:.0%}, or until"),
    ],
)
def test_the_text_of_a_key_names_its_default(key, default):
    assert f"Default: {default}" in setting_texts()[key]


def test_the_smallest_difference_that_matters_is_the_one_of_decisions():
    """The option does not import decisions, which takes long on a small board."""
    option = matters_option(lambda: None).__click_params__[0]
    assert option.default == f"{MATTERS_RATIO:.0%}"
    assert f"Default: {option.default}." in option.help
