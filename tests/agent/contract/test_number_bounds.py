"""Facts about the bounds of numbers.

Any number that travels fits 64 bits, so that no reader of it can fail on a number that is valid.
"""

import importlib
import pkgutil
from collections.abc import Iterator

import msgspec
import pytest
from msgspec import inspect

from edgemeter.agent import contract
from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.contract import health, messages, order_suite, orders
from edgemeter.agent.contract.case_identity import CaseKey
from edgemeter.agent.contract.mode_answer import ModeAnswer
from edgemeter.agent.contract.order_suite import OrderedSuite
from edgemeter.agent.contract.record import RunRecord
from edgemeter.agent.contract.record_conditions import RecordPart
from edgemeter.agent.contract.series import SeriesKey
from edgemeter.agent.contract.suite import Case
from tests.fixtures.health_factory import make_health

# Made here of what was read, and never read from elsewhere.
COMPUTED = {Case, CaseKey, ModeAnswer, SeriesKey}
# Its keys are read one by one, as `Settings`.
UNTYPED = {OrderedSuite}


def structs() -> Iterator[type[msgspec.Struct]]:
    for module_info in pkgutil.iter_modules(contract.__path__):
        module = importlib.import_module(f"{contract.__name__}.{module_info.name}")
        for value in vars(module).values():
            if (
                isinstance(value, type)
                and issubclass(value, msgspec.Struct)
                and value.__module__ == module.__name__
            ):
                yield value


def unbounded(kind: inspect.Type) -> bool:
    """Return whether a type holds an integer without bounds, or anything at all.

    The fields of other structs are not looked at.
    """
    if isinstance(kind, inspect.IntType):
        lowest, highest = (
            (kind.gt if kind.ge is None else kind.ge),
            (kind.lt if kind.le is None else kind.le),
        )
        return lowest is None or highest is None or lowest < -(2**63) or highest > 2**63 - 1
    inner: list[inspect.Type] = []
    for name in ("types", "item_types"):
        inner += getattr(kind, name, ())
    for name in ("item_type", "key_type", "value_type"):
        inner += [getattr(kind, name)] if hasattr(kind, name) else []
    return isinstance(kind, inspect.AnyType) or any(map(unbounded, inner))


def test_every_integer_that_travels_has_bounds():
    """A new field without bounds fails here and needs a type of `agent/base/types.py`."""
    names = [
        f"{struct.__module__}.{struct.__name__}.{field.name}"
        for struct in structs()
        if struct not in COMPUTED | UNTYPED
        for field in inspect.type_info(struct).fields  # type: ignore[attr-defined]
        if unbounded(field.type)
    ]
    assert names == []


def has_free_float(kind: inspect.Type) -> bool:
    """Return whether a type holds a float without bounds; what other structs hold is theirs."""
    if isinstance(kind, inspect.FloatType):
        return kind.ge is None or kind.le is None
    inner = [*getattr(kind, "types", ()), *getattr(kind, "item_types", ())]
    inner += [getattr(kind, name) for name in ("item_type", "value_type") if hasattr(kind, name)]
    return any(map(has_free_float, inner))


def test_every_number_of_a_record_has_bounds():
    """A new figure without bounds fails here and needs a type of `agent/base/types.py`."""
    parts = [struct for struct in structs() if issubclass(struct, RecordPart)]
    assert RunRecord in parts
    fields = [
        (struct, field)
        for struct in parts
        for field in inspect.type_info(struct).fields  # type: ignore[attr-defined]
    ]
    assert [
        f"{struct.__name__}.{field.name}" for struct, field in fields if has_free_float(field.type)
    ] == []


def test_a_message_with_a_larger_number_is_refused_in_one_line():
    """The line names the field of health, an order, its suite or any other message."""
    for number in (2**63, 2**64, -(2**63) - 1, 10**400):
        check_refused(number)


def check_refused(number):
    report = msgspec.json.decode(health.encode_health(make_health()))
    order = {
        "job": "j",
        "attempt": 1,
        "version": number,
        "work": {"type": "doctor"},
        "timeout_s": 1.0,
    }
    for decode, document, where in (
        (health.decode_health, report | {"throttle_events": {"oc1": number}}, "throttle_events"),
        (health.decode_health, report | {"clock": {"off_by_ns": number}}, "off_by_ns"),
        (orders.decode_command, order, "version"),
        (messages.decode_birth, {"session": number}, "session"),
    ):
        with pytest.raises(ConfigError) as refused:
            decode(msgspec.json.encode(document))
        assert where in str(refused.value) or number == 10**400, where
        assert "\n" not in str(refused.value)
    with pytest.raises(ConfigError, match=r"Expected `int` .*seed"):
        order_suite.read(b'name = "s"\n[[case]]\nmodel = "m.onnx"\nseed = %d\n' % number)
