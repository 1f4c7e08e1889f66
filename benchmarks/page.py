"""How long the report page takes from its file to a drawn graph, in a headless Chromium.

    python benchmarks/page.py [--rounds 5]

Milliseconds from the start of the navigation to the first frame after the layout, minimum and median of a few rounds; elements in the page; size
of the file. Nothing in the graphs repeats, so that nothing folds; every node takes two others.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "browser"))

import page_browser
import page_samples

from pullback.report.render import html

DRAWN = "return new Promise((done) => requestAnimationFrame(() => done(performance.now())))"


def opened(window: page_browser.Browser, path: Path) -> float:
    window.open(path)
    window.wait("document.querySelector('.canvas > svg')?.dataset.ready")
    return window.run(DRAWN)


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the opening of graphs in the report page.")
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    absent = page_browser.missing()
    if absent:
        sys.exit(f"{absent} not installed")
    print(f"{'nodes':>8}  {'minimum ms':>10}  {'median ms':>10}  {'elements':>8}  {'file MB':>8}")
    with tempfile.TemporaryDirectory() as folder, page_browser.browser(Path(folder)) as window:
        window.look()
        for count in (150, 3_000, 30_000):
            path = Path(folder) / f"{count}.html"
            path.write_text(html.render(page_samples.large(count)), encoding="utf-8")
            times = [opened(window, path) for _ in range(rounds)]
            elements = window.run("return document.querySelectorAll('*').length")
            size = path.stat().st_size / 1e6
            print(f"{count:8,}  {min(times):10.0f}  {statistics.median(times):10.0f}  {elements:8,}  {size:8.2f}")


if __name__ == "__main__":
    main()
