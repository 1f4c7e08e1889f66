"""Sizes and times read well at every magnitude."""

import pytest

from pullback.views import measures


@pytest.mark.parametrize(
    ("count", "says"),
    [(0, "0 B"), (999, "999 B"), (1000, "1,000 B"), (1024, "1 KiB"), (1023 * 1024, "1,023 KiB"), (1536, "1.5 KiB"), (2**40, "1 TiB")],
)
def test_sizes(count, says):
    assert measures.size(count) == says


@pytest.mark.parametrize(("seconds", "says"), [(2e-6, "2 µs"), (1.5e-3, "1.5 ms"), (0.25, "250 ms"), (3.0, "3 s")])
def test_durations(seconds, says):
    assert measures.duration(seconds) == says
