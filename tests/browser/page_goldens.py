"""Pictures of every view of the page, kept small: how they are taken, and how two are compared.

python tests/browser/page_goldens.py    # takes them anew; look at them before they are committed
"""

import base64
import tempfile
from pathlib import Path

import page_browser
import page_samples

from pullback.report.render import html

FOLDER = Path(__file__).resolve().parents[1] / "golden" / "page"
VIEWS = {"findings": "s=0", "trace": "s=1", "saved": "s=2", "graph": "s=3&n=n2", "model": "s=4", "chart": "s=5"}
SIZE = {"width": 1000, "height": 640}
CELL = 8

_SMALLER = """
    const picture = async (source) => {
        const image = new Image();
        image.src = `data:image/png;base64,${source}`;
        await image.decode();
        return image;
    };
    const drawn = (image, width, height) => {
        const canvas = document.createElement("canvas");
        [canvas.width, canvas.height] = [width, height];
        const context = canvas.getContext("2d");
        context.imageSmoothingQuality = "high";
        context.drawImage(image, 0, 0, width, height);
        return canvas;
    };
"""


def half(window, png):
    """Return a picture at half its size."""
    script = _SMALLER + "return picture(arguments[0]).then((i) => drawn(i, i.width / 2, i.height / 2).toDataURL('image/png').split(',')[1])"
    return base64.b64decode(window.run(script, base64.b64encode(png).decode()))


def distance(window, one, other):
    """Return the share of cells whose mean colours differ visibly; 1 where the sizes differ.

    A cell is as large as a letter, so that another font of the same size changes few cells, and a box, bar or line that moved changes many.
    """
    script = (
        _SMALLER
        + """
        const [one, other, cell] = arguments;
        return Promise.all([picture(one), picture(other)]).then((images) => {
            if (images[0].width !== images[1].width || images[0].height !== images[1].height) return 1;
            const [width, height] = [Math.floor(images[0].width / cell), Math.floor(images[0].height / cell)];
            const [a, b] = images.map((image) => drawn(image, width, height).getContext("2d").getImageData(0, 0, width, height).data);
            let differing = 0;
            for (let i = 0; i < a.length; i += 4) if (Math.max(...[0, 1, 2].map((c) => Math.abs(a[i + c] - b[i + c]))) > 24) differing++;
            return differing / (width * height);
        });"""
    )
    return window.run(script, *(base64.b64encode(png).decode() for png in (one, other)), CELL)


def name_of(view, dark):
    """Return the name of a golden picture."""
    return f"{view}-{'dark' if dark else 'light'}.png"


def take(window, path, view, dark):
    """Return the picture of a view at half size."""
    window.look(**SIZE, dark=dark)
    window.open(path, VIEWS[view])
    window.wait("document.querySelector('main > *')")
    window.wait("!document.querySelector('.canvas') || document.querySelector('.canvas > svg').dataset.ready")
    png = window.picture()
    window.blank()
    return half(window, png)


def main():
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, page_browser.browser(Path(folder)) as window:
        path = Path(folder) / "everything.html"
        path.write_text(html.render(page_samples.everything()), encoding="utf-8")
        for view in VIEWS:
            for dark in (False, True):
                (FOLDER / name_of(view, dark)).write_bytes(take(window, path, view, dark))


if __name__ == "__main__":
    main()
