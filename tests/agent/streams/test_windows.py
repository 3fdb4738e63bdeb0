"""Facts about `edgemeter.agent.streams.windows`: detections are counted as MLPerf Tiny's runner counts them."""

import random

import msgspec
import pytest

from edgemeter.agent.base.errors import ConfigError
from edgemeter.agent.streams.windows import count_detections, counted_again, read_windows, summarise_detections


def counted_by_the_words(detected_ms, windows):
    """Return how many windows were found and the false detections in ms, as the rule is worded, in a list that shrinks."""
    remaining, found_windows = list(detected_ms), 0
    for start, stop in windows:
        inside = [moment for moment in remaining if start <= moment / 1000 <= stop + 1.0]
        if inside:
            found_windows += 1
            remaining = [moment for moment in remaining if moment not in inside]
    index = 0
    while index < len(remaining):
        suppressing = remaining[index]
        remaining = [moment for moment in remaining if not suppressing < moment <= suppressing + 1000]
        index += 1
    return found_windows, remaining


def test_random_detections_are_counted_as_the_rule_is_worded():
    """2,000 recordings: rows of detections, some at the very ends, windows that overlap with their grace and stand in any order."""
    draw = random.Random(7)  # noqa: S311 - a repeatable draw is wanted
    for _ in range(2000):
        windows = []
        for _ in range(draw.randrange(8)):
            start = draw.randrange(30_000)
            windows.append((start / 1000, (start + draw.randrange(1, 1500)) / 1000))
        detected = {draw.randrange(32_000) for _ in range(draw.randrange(60))}
        for start, stop in windows:
            detected |= {end for end in (round(start * 1000), round(stop * 1000) + 1000, round(stop * 1000) + 1001) if draw.random() < 0.3}
        row = draw.randrange(30_000)
        detected |= {row + 32 * index for index in range(draw.randrange(80))}
        moments = sorted(detected)
        by_words, false = counted_by_the_words(moments, windows)
        counted = count_detections([moment / 1000 for moment in moments], windows)
        assert (counted.found, [round(moment * 1000) for moment in counted.false_s]) == (by_words, false)


def test_a_detection_until_a_second_after_a_window_finds_it():
    """The ends belong to it; the same detection finds no second window, and what is taken away is not false."""
    assert count_detections([5.0, 6.5], [(5.0, 5.5)]) == count_detections([5.2], [(5.0, 5.5)])
    assert count_detections([6.501], [(5.0, 5.5)]).found == 0
    assert count_detections([6.0], [(5.0, 5.5), (5.8, 6.2)]).found == 1


def test_a_row_of_false_detections_counts_once_a_second():
    """Five seconds without an end are five; nothing detected is nothing false."""
    row = [10 + 0.032 * index for index in range(157)]
    assert len(count_detections(row, []).false_s) == 5
    assert count_detections([], [(1.0, 2.0)]) == count_detections([], [])


def test_detections_count_the_same_from_a_record():
    """Moments, windows and limits are in it; a count that was changed shows."""
    detections = summarise_detections([3.2, 9.0, 9.5, 40.0], [(2.0, 3.0), (20.0, 21.0)], 60.0, "marvin", 0.95)
    detections = msgspec.structs.replace(detections, most_missed=8)
    assert (detections.found, detections.missed, detections.false, detections.false_per_h) == (1, 1, 2, 120.0)
    assert counted_again(detections) == detections
    assert counted_again(msgspec.structs.replace(detections, false=1)) == detections


@pytest.mark.parametrize(
    "text",
    ["[[1.5, 2.0],\n [30, 31.25]]", '[{"start_s": 1.5, "stop_s": 2}, {"start_s": 30, "stop_s": 31.25}]',
     "start_s,stop_s\n1.5,2.0\n\n30,31.25\n", "1.5\t2.0\n30\t31.25\n"],
)  # fmt: skip
def test_windows_are_read_in_each_form(tmp_path, text):
    """MLPerf Tiny's JSON, objects, CSV with a heading, and two columns as editors of sound export labels."""
    path = tmp_path / "windows"
    path.write_text(text)
    assert read_windows(path, 60.0) == ((1.5, 2.0), (30.0, 31.25))


def test_a_recording_without_the_word_has_no_windows(tmp_path):
    """Then every detection is false."""
    path = tmp_path / "windows.json"
    path.write_text("[]")
    assert read_windows(path, 60.0) == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[1, 2, 3]]", r"windows\.json.*start, stop"),
        ("[[1, ", r"windows\.json.*truncated.*seconds"),
        ('{"windows": []}', r"windows\.json.*give JSON"),
        ("[[2, 1]]", "number 1 is 2 to 1 s: the stop comes after the start"),
        ("[[-1, 1]]", "number 1 is -1 to 1 s"),
        ("[[1, 2], [61, 62]]", "number 2 is 61 to 62 s, and the stream has 60 s: give those of this stream"),
        ("1.5,2.0,marvin\n", "line 1 is '1.5,2.0,marvin'"),
        ("start,stop\n1.5,nan\n", "line 2 is '1.5,nan'"),
    ],
)
def test_what_is_no_windows_is_one_line(tmp_path, text, message):
    """With the file, the line, and the form that is wanted."""
    path = tmp_path / "windows.json"
    path.write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_windows(path, 60.0)
