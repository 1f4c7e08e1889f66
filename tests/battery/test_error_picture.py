"""Where a gradient is wrong, as the page draws it: every wrong element, or a grid where there are too many to list."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
import torch

from pullback.battery.check import run_case
from pullback.battery.locate import compare
from pullback.battery.picture import GRID, LISTED
from pullback.battery.settings import Settings

CHECKS = Path(__file__).parent / "checks"
PICTURED = ("501", "502", "504", "505", "508", "511", "604", "605", "606", "607", "610", "614", "616", "621", "625", "701", "702")


def picture(got, expected):
    spot = compare("x", got, expected, [])
    assert spot is not None
    return spot.attachments["gradient"]


def test_every_wrong_element_is_listed_with_its_error():
    expected = torch.ones(3, 4, dtype=torch.float64)
    got = expected.clone()
    got[1, 2], got[2, 0], got[2, 3] = 1.5, -1.0, float("nan")
    drawn = picture(got, expected)
    assert (drawn["name"], drawn["shape"], drawn["wrong"]) == ("grad_x", [3, 4], 3)
    assert (drawn["where"], drawn["error"]) == ([6, 8, 11], [0.5, 2.0, None])
    json.dumps(drawn, allow_nan=False)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_single_numbers_are_listed(shape):
    drawn = picture(torch.full(shape, 2.0, dtype=torch.float64), torch.ones(shape, dtype=torch.float64))
    assert (drawn["where"], drawn["error"]) == ([0], [1.0])


@pytest.mark.parametrize("shape", [(LISTED + 1,), (2, 100, 100), (5000, 3)])
def test_many_elements_become_a_grid_of_shares(shape):
    expected = torch.ones(shape, dtype=torch.float64)
    got = expected.clone()
    got[-1:] = 3.0
    drawn = picture(got, expected)
    grid = drawn["grid"]
    assert "where" not in drawn
    assert grid["rows"] <= GRID[0]
    assert grid["columns"] <= GRID[1]
    assert len(grid["share"]) == grid["rows"] * grid["columns"]
    assert grid["share"][0] == 0 < grid["share"][-1] <= 1


def kills(code):
    for path in sorted(CHECKS.glob(f"pb{code}_*.py")):
        name = f"pictured_{path.stem}"
        spec = importlib.util.spec_from_file_location(name, path)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            spec.loader.exec_module(module)
        yield from module.kills


@pytest.mark.parametrize("code", PICTURED)
def test_every_check_that_compares_entries_pictures_them(code):
    settings = Settings(select=frozenset({f"PB{code}"}))
    found = (f for case in kills(code) for f in run_case(case, settings).findings if "gradient" in f.attachments)
    drawn = next(found).attachments["gradient"]
    assert 0 < drawn["wrong"] <= torch.Size(drawn["shape"]).numel()
    assert drawn["name"].startswith(("grad", "output"))
