"""Names of positional arguments."""

import pytest

from pullback.capture.calls import positional_names


@pytest.mark.parametrize(
    ("parameters", "count", "names"),
    [
        (("x", "y"), 1, ["x"]),
        (("x", "*rest"), 3, ["x", "rest[0]", "rest[1]"]),
        (("x", "*rest", "scale"), 3, ["x", "rest[0]", "rest[1]"]),
        (("x", "**options"), 2, ["x", "argument 2"]),
    ],
)
def test_positional_names(parameters, count, names):
    assert positional_names(parameters, count) == names
