"""What grows is found, what does not is not, and a short real run is flat."""

import random

import pytest

from .director import Options, endure
from .line import Bound, fitted


def samples(measure, count=60):
    return [(float(at), float(measure(at))) for at in range(count)]


def noisy(at, seed):
    return random.Random(f"{at} {seed}").uniform(-300, 300)


@pytest.mark.parametrize("seed", range(20))
def test_what_grows_beyond_its_bound_and_by_more_than_chance_is_found(seed):
    line = fitted("memory", samples(lambda at: 10_000 + 20 * at + noisy(at, seed)), Bound(500))
    assert line.grows, line
    assert line.grown == pytest.approx(20 * 41, rel=0.5)


@pytest.mark.parametrize("seed", range(20))
def test_noise_is_no_growth(seed):
    assert not fitted("memory", samples(lambda at: 10_000 + noisy(at, seed)), Bound(0)).grows


def test_what_fills_before_the_warm_up_is_over_is_no_growth():
    assert not fitted("rows", samples(lambda at: min(at, 15)), Bound(0)).grows
    assert fitted("rows", samples(lambda at: min(at, 50)), Bound(10)).grows


def test_a_saw_is_no_growth_and_a_saw_on_a_slope_is():
    assert not fitted("bytes", samples(lambda at: at % 7 * 100), Bound(50)).grows
    assert fitted("bytes", samples(lambda at: at % 7 * 100 + at * 20), Bound(50)).grows


def test_what_a_measure_may_grow_is_so_much_and_a_part_of_what_it_was():
    slope = samples(lambda at: 1_000 + at)
    assert not fitted("memory", slope, Bound(0, 0.05)).grows
    assert fitted("memory", slope, Bound(0, 0.03)).grows


def test_too_few_samples_are_no_flat_line():
    with pytest.raises(ValueError, match="run for longer"):
        fitted("memory", samples(lambda at: at, 7), Bound(0))


@pytest.mark.slow
@pytest.mark.parametrize(("target", "reconnects"), [("sqlite", 0), ("redis", 5)])
def test_a_short_run_is_flat(target, reconnects):
    report = endure(Options(target=target, seconds=10, reconnects=reconnects))
    assert not report.grows, report
    assert report.runs >= 50, report
    assert report.severed >= reconnects - 2, report
    assert {line.name for line in report.lines} >= {"instance 1, memory KB", "instance 2, open files"}


@pytest.mark.slow
def test_what_a_handler_leaves_behind_is_found():
    report = endure(Options(target="sqlite", seconds=5, instances=1, leak=200_000))
    assert [line.name for line in report.lines if line.grows] == ["instance 1, memory KB"], report
