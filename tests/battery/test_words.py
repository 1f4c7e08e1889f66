"""Names and numbers in findings."""

import math

import pytest

from pullback.battery.words import interval, listed, told_apart


@pytest.mark.parametrize(("names", "said"), [(["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")])
def test_names_in_a_sentence(names, said):
    assert listed(iter(names)) == said


def test_numbers_have_as_many_digits_as_tell_them_apart():
    assert told_apart(1.5, 2.0) == ("1.5", "2")
    assert told_apart(1.53934, 1.53934 + 1.6e-7) == ("1.53934", "1.5393402")
    assert told_apart(0.1 + 0.2, 0.3) == ("0.30000000000000004", "0.29999999999999999")
    assert told_apart(2.0, 2.0) == ("2", "2")
    assert told_apart(4 - 4j, 4 + 4j) == ("4-4j", "4+4j")
    assert told_apart(math.nan, 1.0) == ("nan", "1")
    assert told_apart(True, False) == ("True", "False")


def test_an_interval_is_one_number_where_its_ends_agree():
    assert interval(1.0, 2.0, 2.0) == ("1", "2")
    assert interval(1.0, 2.0, 2.5) == ("1", "2 … 2.5")
