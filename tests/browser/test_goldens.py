"""The page looks as it did when its pictures were last looked at."""

import itertools

import page_goldens
import pytest

TOLERANCE = 0.04  # another font of the same size changes under 0.025, another view over 0.07


PICTURES = [
    pytest.param(view, dark, id=page_goldens.name_of(view, dark), marks=[pytest.mark.slow] if (i + dark) % 2 else [])
    for i, view in enumerate(page_goldens.VIEWS)
    for dark in (False, True)
]


@pytest.mark.parametrize(("view", "dark"), PICTURES)
def test_view_looks_as_before(window, everything, view, dark):
    golden = (page_goldens.FOLDER / page_goldens.name_of(view, dark)).read_bytes()
    taken = page_goldens.take(window, everything, view, dark)
    assert page_goldens.distance(window, taken, golden) < TOLERANCE, "look at it, and if it is right: python tests/browser/page_goldens.py"


def test_other_views_would_be_told(window):
    window.blank()
    views = list(page_goldens.VIEWS)
    goldens = [(page_goldens.FOLDER / page_goldens.name_of(view, False)).read_bytes() for view in views]
    distances = [page_goldens.distance(window, one, other) for one, other in itertools.pairwise(goldens)]
    assert min(distances) > TOLERANCE
