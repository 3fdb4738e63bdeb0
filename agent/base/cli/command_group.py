"""Groups of commands that import a command only when it is called.

So `--help` imports neither numpy nor a runtime.
"""

from collections.abc import Collection, Mapping
from pkgutil import resolve_name
from typing import Any

import click
from click.core import ParameterSource

from edgemeter.agent.base.suggestions import did_you_mean

# By section of the help and by name: where the command is (module:attribute), and its line in the
# help.
Sections = Mapping[str, Mapping[str, tuple[str, str]]]
ALL_OPTIONS = "edgemeter.all_options"


class DefaultGroup(click.Group):
    """A group that suggests the nearest command for an unknown one.

    If it also works without a subcommand, options before the name of a subcommand are refused, not
    ignored.
    """

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if self.invoke_without_command and not ctx.resilient_parsing:
            early_options = [
                param
                for param in self.params
                if param.name
                and ctx.get_parameter_source(param.name) is ParameterSource.COMMANDLINE
            ]
            if early_options:
                raise click.UsageError(
                    f"write {early_options[0].opts[0]} after the subcommand: {ctx.command_path} "
                    f"{args[0]} {early_options[0].opts[0]} ..."
                )
        if (
            not args[0].startswith("-")
            and not ctx.resilient_parsing
            and self.get_command(ctx, args[0]) is None
        ):
            suggestion = did_you_mean(args[0], self.list_commands(ctx), limit=1)
            raise click.UsageError(
                f"no command is called {args[0]!r}{f': {suggestion}' if suggestion else ''}", ctx
            )
        return super().resolve_command(ctx, args)


class CommandGroup(DefaultGroup):
    """A group of the commands in `sections`; its help lists them by section, in order."""

    def __init__(self, *args: Any, sections: Sections, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self._sections = sections
        self._places = {
            name: address for section in sections.values() for name, (address, _) in section.items()
        }

    def list_commands(self, _ctx: click.Context) -> list[str]:
        return list(self._places)

    def get_command(self, _ctx: click.Context, cmd_name: str) -> click.Command | None:
        address = self._places.get(cmd_name)
        command: click.Command | None = resolve_name(address) if address else None
        return command

    def format_commands(self, _ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write each section without importing its commands."""
        for title, commands in self._sections.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, (_, summary) in commands.items()])


class ModalCommand(click.Command):
    """A command that becomes another one if a flag or first word in `modes` is given.

    The other one has its own options and help.
    """

    def __init__(self, *args: Any, modes: Mapping[str, str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.modes = modes

    def make_context(
        self,
        info_name: str | None,
        args: list[str],
        parent: click.Context | None = None,
        **extra: Any,
    ) -> click.Context:
        """Return the context of this command, or of the chosen one."""
        for flag, address in self.modes.items():
            if flag in (args if flag.startswith("-") else args[:1]):
                command: click.Command = resolve_name(address)
                return command.make_context(
                    f"{info_name} {flag}", [word for word in args if word != flag], parent, **extra
                )
        return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        return super().invoke(ctx) if ctx.command is self else ctx.command.invoke(ctx)


class LongCommand(click.Command):
    """A command with many options, most of which only `--help-all` shows.

    `--help` shows the parameters in `common`.
    """

    def __init__(self, *args: Any, common: Collection[str], **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.common = common
        self.params.append(
            click.Option(
                ["--help-all"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=self._show_all,
                help="Show every option and exit.",
            )
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options that `--help` or `--help-all` asks for."""
        option_records = [
            record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option)
            and (
                ctx.meta.get(ALL_OPTIONS)
                or param.name in self.common
                or {"--help", "--help-all"} & {*param.opts}
            )
            and (record := param.get_help_record(ctx))
        ]
        with formatter.section("Options"):
            formatter.write_dl(option_records, col_max=22)

    @staticmethod
    # Click calls it with these arguments.
    def _show_all(ctx: click.Context, _param: click.Parameter, value: bool) -> None:  # noqa: FBT001
        if value and not ctx.resilient_parsing:
            ctx.meta[ALL_OPTIONS] = True
            click.echo(ctx.get_help())
            ctx.exit()
