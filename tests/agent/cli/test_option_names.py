"""Facts about the names of options over all commands: one name for one thing, and the names of the release before."""

import click

from tests.fixtures.command_lines import every_command

# A text may be checked by the command (a list, a place with an address in it); a flag is never a value.
OPTIONS = [
    (" ".join(path), option)
    for path, command in every_command()
    for option in command.params
    if isinstance(option, click.Option) and not option.hidden
]


def test_a_name_is_a_flag_on_all_commands_or_on_none():
    """`--board NAME` on one command and `--board` on another would be two things."""
    for name in {name for _, option in OPTIONS for name in option.opts}:
        kinds = {option.is_flag for _, option in OPTIONS if name in option.opts}
        assert len(kinds) == 1, name
