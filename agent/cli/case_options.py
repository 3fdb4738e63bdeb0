"""The options for the settings of a case, each made from its key in a suite."""

from collections.abc import Callable, Mapping
from types import NoneType
from typing import Annotated, Any, Literal, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import click
import msgspec

from edgemeter.agent.base.cli.options import PATH, FiniteRange, added, ratio_of
from edgemeter.agent.contract.case_settings import Settings
from edgemeter.agent.contract.suite import MODES, PATHS
from edgemeter.agent.settings.case_keys import CASE_KEYS, checked_settings, setting_texts

_Command = TypeVar("_Command", bound=Callable[..., Any])
_Type: TypeAlias = "click.ParamType[Any]"
# Keys for suites only.
SUITE_ONLY = {"power_mode", "governor"}
CASE_OPTIONS = tuple(key for key in CASE_KEYS if key not in SUITE_ONLY)
MODEL_OPTIONS = ("data", "annotations", "runtime", "backend", "threads")
# Options of commands that interleave many runs.
SHORT_MODES = {"type": click.Choice([mode for mode in MODES if mode != "sustained"])}
_NAMES = {
    "data": ("-d", "--data"),
    "annotations": ("-a", "--annotations"),
    "rate_per_s": ("--rate",),
    "options": ("--option",),
    "time_s": ("--time",),
    "precision_ratio": ("--precision",),
}
_METAVARS = {
    "runtime": "NAME",
    "backend": "NAME",
    "task": "NAME",
    "time_s": "SECONDS",
    "seconds": "SECONDS",
}
# Options with several values, if their key has a list.
_SWEPT = ("prompt_tokens", "output_tokens", "concurrency", "rate_per_s")


def case_settings(options: Mapping[str, Any]) -> Settings:
    """Return the settings of a case that the options of a command give."""
    settings = {key: options.get(key) for key in CASE_KEYS}
    # `--together` is a flag, not the name of a group.
    if options.get("together"):
        settings["together"] = "together"
    return checked_settings(settings)


class CommaSeparated(click.ParamType):  # type: ignore[type-arg]
    """A list of values of the type `item`, separated by commas."""

    def __init__(self, item: _Type) -> None:
        self.item = item
        word = "N" if isinstance(item, click.IntRange | click.FloatRange) else "NAME"
        self.name = f"{word}[,{word}]"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[Any]:
        return [self.item.convert(part.strip(), param, ctx) for part in value.split(",")]


class KeyValue(click.ParamType):  # type: ignore[type-arg]
    """A setting `KEY=VALUE` of a runtime."""

    name = "KEY=VALUE"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, str]:
        key, equals, text = value.partition("=")
        if not (key and equals):
            self.fail(
                f"{value!r} is not KEY=VALUE: give a setting such as kv_type=q8_0", param, ctx
            )
        return key, text


class SettingOption(click.Option):
    """The option of a setting.

    Its help is the setting's text, which is parsed only when help is shown: that takes longer than
    all else.
    """

    def _text(self) -> str | None:
        return self._help_here or setting_texts()[self.name or ""]

    def _set_text(self, text: str | None) -> None:
        self._help_here = text

    help = property(_text, _set_text)

    def get_help_extra(self, ctx: click.Context) -> Any:
        """Return what click adds to the help, without the range.

        The error of a wrong value names the range.
        """
        extra = super().get_help_extra(ctx)
        extra.pop("range", None)
        return extra


def case_options(*keys: str, **changes: Mapping[str, Any]) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the options of these keys, in order.

    `changes` are attributes of an option in this command only.
    """
    annotations = get_type_hints(Settings, include_extras=True)
    return added(
        *(
            click.option(
                *_NAMES.get(key, (f"--{key.replace('_', '-')}",)),
                key,
                cls=SettingOption,
                **{**_form_of(key, annotations[key]), **changes.get(key, {})},
            )
            for key in keys
        )
    )


def _form_of(key: str, annotation: Any) -> dict[str, Any]:
    if key == "options":
        return {
            "type": KeyValue(),
            "multiple": True,
            "callback": lambda _ctx, _param, pairs: dict(pairs) or None,
        }
    if key == "precision_ratio":
        return {
            "callback": lambda ctx, param, text: (
                None if text is None else ratio_of(ctx, param, text)
            ),
            "metavar": "PERCENT",
        }
    if bool in get_args(annotation):
        return {"is_flag": True, "default": None}
    # A single value comes before a list.
    kinds = [kind for kind in get_args(annotation) if kind is not NoneType]
    kind = PATH if key in PATHS else _click_type(kinds[-1 if key in _SWEPT else 0])
    return {
        "type": kind,
        "metavar": _METAVARS.get(key)
        or ("N" if isinstance(kind, click.IntRange | click.FloatRange) else None),
    }


def _click_type(annotation: Any) -> _Type:
    kind, limits = (
        get_args(annotation)[:2]
        if get_origin(annotation) is Annotated
        else (annotation, msgspec.Meta())
    )
    if get_origin(kind) is Literal:
        return click.Choice(get_args(kind))
    if get_origin(kind) is list:
        return CommaSeparated(_click_type(*get_args(kind)))
    if kind is int:
        return click.IntRange(limits.ge, limits.le)
    if kind is float and limits != msgspec.Meta():
        return FiniteRange(
            limits.gt if limits.ge is None else limits.ge, limits.le, min_open=limits.ge is None
        )
    return click.FLOAT if kind is float else click.STRING
