"""Workshop notes: simple English about instruments and what they read, written by a seeded grammar; text for a tiny language model.

Two kinds of knowledge can be learnt from them, and are asked for: a few facts that come up again and again (an ammeter measures current,
in amperes), and very many that rarely do (where each of 1,200 stations stands). The many fill the weights, so that rounding them shows.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from edgemeter.agent.base.errors import MeasurementError


class TextPart(IntEnum):
    """The purpose of a text; each part draws its own random numbers, so none repeats another's notes."""

    TRAIN = 1
    QUESTIONS = 4


@dataclass(frozen=True, slots=True)
class Instrument:
    """An instrument: its quantity, its unit, its usual range in whole numbers, and what it is used on."""

    name: str
    quantity: str
    unit: str
    low: int
    high: int
    used_on: str


INSTRUMENTS = (
    Instrument("thermometer", "temperature", "degrees", 4, 95, "boiler"),
    Instrument("ammeter", "electric current", "amperes", 1, 16, "motor"),
    Instrument("voltmeter", "voltage", "volts", 3, 48, "battery"),
    Instrument("wattmeter", "power", "watts", 2, 90, "heater"),
    Instrument("ohmmeter", "resistance", "ohms", 10, 99, "coil"),
    Instrument("barometer", "air pressure", "millibars", 950, 1040, "window"),
    Instrument("hygrometer", "humidity", "percent", 20, 95, "greenhouse"),
    Instrument("stopwatch", "time", "seconds", 5, 60, "race"),
    Instrument("ruler", "length", "centimetres", 2, 30, "plank"),
    Instrument("balance", "mass", "grams", 10, 500, "parcel"),
    Instrument("anemometer", "wind speed", "knots", 2, 40, "mast"),
    Instrument("tachometer", "speed of rotation", "turns", 100, 900, "turbine"),
    Instrument("luxmeter", "brightness", "lux", 50, 800, "lamp"),
    Instrument("flowmeter", "flow", "litres", 1, 25, "pump"),
    Instrument("dynamometer", "force", "newtons", 5, 80, "spring"),
    Instrument("microphone", "loudness", "decibels", 30, 99, "engine"),
)
STATION_LETTERS = "ABCDEFGHIJKLMNOPQRST"
STATION_NUMBERS = range(10, 70)
PEOPLE = ("Anna", "Boris", "Clara", "David", "Elena", "Felix", "Greta", "Hugo", "Irene", "Jonas", "Karin", "Leon")
PLACES = ("cellar", "kitchen", "garage", "attic", "office", "garden", "laboratory", "library", "hall", "shed", "tower", "yard")
DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
MOMENTS = ("In the morning", "At noon", "In the afternoon", "In the evening", "At night", "After lunch", "Before work")
REASONS = (
    "because the cable was loose",
    "because the sun was shining on it",
    "because the battery was almost empty",
    "because the door was open",
    "because nobody had switched it off",
    "because the fan had stopped",
)
JUDGEMENTS = ("as expected", "more than last week", "less than last week", "too much", "not enough", "about the same as before")


@dataclass(frozen=True, slots=True)
class Station:
    """One of many stations: where it stands, who keeps it, and which instrument it has; it is the same in every text."""

    name: str
    place: str
    keeper: str
    instrument: str


def _stations() -> tuple[Station, ...]:
    draw = random.Random("stations")  # noqa: S311 - text, no secret
    names = [f"{letter}{number}" for letter in STATION_LETTERS for number in STATION_NUMBERS]
    return tuple(Station(name, draw.choice(PLACES), draw.choice(PEOPLE), draw.choice(INSTRUMENTS).name) for name in names)


STATIONS = _stations()


def training_text(seed: int, size_bytes: int) -> str:
    """Return notes for training, at least `size_bytes` long."""
    return _text(_random(seed, TextPart.TRAIN), size_bytes)


def questions(seed: int, count: int) -> list[dict[str, Any]]:
    """Return `count` questions: id, prompt, and the answers that count as right.

    Raises:
        MeasurementError: there are not that many questions.
    """
    draw = _random(seed, TextPart.QUESTIONS)
    items = [_quantity_question(instrument) for instrument in INSTRUMENTS] + [_unit_question(instrument) for instrument in INSTRUMENTS]
    items += [_instrument_question(instrument) for instrument in INSTRUMENTS]
    if count > len(items):
        raise MeasurementError(f"the notes know {len(items)} questions, not {count}: ask for fewer")
    return [{"id": f"question-{number:03}", **item} for number, item in enumerate(draw.sample(items, count))]


def _random(seed: int, part: TextPart) -> random.Random:
    return random.Random(f"{seed}/{part}")  # noqa: S311 - text, no secret


def _text(draw: random.Random, size_bytes: int) -> str:
    notes: list[str] = []
    size = 0
    while size < size_bytes:
        notes.append(" ".join(_note(draw)) + "\n")
        size += len(notes[-1])
    return "".join(notes)


def _note(draw: random.Random) -> Iterator[str]:
    """Yield the sentences of one note, or a question with its answer."""
    if draw.random() < 0.2:
        question = draw.choice((_quantity_question, _unit_question, _instrument_question))(draw.choice(INSTRUMENTS))
        yield f"{question['prompt']} {question['answers'][0]}."
        return
    if draw.random() < 0.5:
        for station in draw.sample(STATIONS, 4):
            yield _about(station)
        return
    instrument, other = draw.sample(INSTRUMENTS, 2)
    who, helper = draw.sample(PEOPLE, 2)
    room, elsewhere = draw.sample(PLACES, 2)
    yield _opening(draw, who, instrument, room)
    yield _reading(draw, instrument)
    yield f"{helper} carries the {other.name} to the {elsewhere}."
    if draw.random() < 0.5:
        yield _reading(draw, other)
    if draw.random() < 0.4:
        yield f"That is {draw.choice(JUDGEMENTS)} {draw.choice(REASONS)}."
    yield from draw.sample((_recall(instrument, room), _recall(other, elsewhere)), 2)
    if draw.random() < 0.5:
        yield f"{who} writes it down and thanks {helper}."


def _about(station: Station) -> str:
    return f"Station {station.name} stands in the {station.place}, {station.keeper} keeps it, and it has the {station.instrument}."


def _opening(draw: random.Random, who: str, instrument: Instrument, room: str) -> str:
    verb = draw.choice(("takes", "brings", "carries"))
    when = draw.choice((f"{draw.choice(MOMENTS)} ", f"On {draw.choice(DAYS)} "))
    return f"{when}{who} {verb} the {instrument.name} to the {room} and measures the {instrument.quantity} of the {instrument.used_on}."


def _reading(draw: random.Random, instrument: Instrument) -> str:
    value = draw.randint(instrument.low, instrument.high)
    return draw.choice(
        (f"The {instrument.name} reads {value} {instrument.unit}.", f"It shows {value} {instrument.unit} on the {instrument.name}.")
    )


def _recall(instrument: Instrument, room: str) -> str:
    return f"Now the {instrument.name} is in the {room}."


def _quantity_question(instrument: Instrument) -> dict[str, Any]:
    return {
        "prompt": f"Question: What does the {instrument.name} measure? Answer:",
        "answers": [f"The {instrument.quantity}", instrument.quantity],
    }


def _unit_question(instrument: Instrument) -> dict[str, Any]:
    return {
        "prompt": f"Question: In what unit is {instrument.quantity} given? Answer:",
        "answers": [f"In {instrument.unit}", instrument.unit],
    }


def _instrument_question(instrument: Instrument) -> dict[str, Any]:
    article = "An" if instrument.name[0] in "aeo" else "A"
    return {
        "prompt": f"Question: What is used to measure {instrument.quantity}? Answer:",
        "answers": [f"{article} {instrument.name}", instrument.name],
    }
