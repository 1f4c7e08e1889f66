"""One headless Chromium for all browser tests of a worker; without Chromium they are skipped."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import page_browser
import page_samples

from pullback.report.render import html


@pytest.fixture(scope="session")
def downloads(tmp_path_factory):
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="session")
def window(downloads):
    absent = page_browser.missing()
    if absent:
        pytest.skip(f"{absent} not installed: the page is not opened")
    with page_browser.browser(downloads) as opened:
        opened.look()
        yield opened


@pytest.fixture(scope="session")
def write(tmp_path_factory):
    """Return a function that writes a page and returns its path."""
    folder = tmp_path_factory.mktemp("pages")

    def write_page(name, page):
        path = folder / f"{name}.html"
        path.write_text(html.render(page), encoding="utf-8")
        return path

    return write_page


@pytest.fixture(scope="session")
def everything(write):
    return write("everything", page_samples.everything())


@pytest.fixture(scope="session")
def show(window):
    """Return a function that opens a page at a fragment and waits until it is drawn."""

    def open_page(path, fragment="", **look):
        window.look(**look)
        window.open(path, fragment)
        window.wait("!document.querySelector('.canvas') || document.querySelector('.canvas > svg').dataset.ready")
        return window

    return open_page
