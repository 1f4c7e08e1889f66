"""The page in a real browser: it asks the network for nothing, works by keyboard, and shows what it should."""

import html as markup
import json
import re
from pathlib import Path
from xml.etree import ElementTree

import page_samples
import pytest

ROOT = Path(__file__).resolve().parents[2]
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
FINDINGS, TRACE, SAVED, GRAPH, MODEL, CHART = range(6)
VIEWS = {"findings": "s=0", "trace": "s=1", "saved": "s=2", "graph": "s=3&n=n2", "model": "s=4", "chart": "s=5"}
HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    '<img src=x onerror="window.pwned = 1">',
    "<svg onload='window.pwned=1'>",
    "\u202egnirts\u202c \x1b[31mred\x1b[0m",
)

LOOKS = [
    pytest.param(
        view, dark, id=f"{view}-{'dark' if dark else 'light'}", marks=[pytest.mark.slow] if dark and view not in ("findings", "graph") else []
    )
    for view in VIEWS
    for dark in (False, True)
]


def texts(window, selector):
    return window.run("return [...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", selector)


def focus_picture(window):
    window.run("document.querySelector('.canvas > svg').focus()")


def walk_to_group(window):
    for _ in range(20):
        if (selected(window) or "").startswith("×"):
            return
        window.press("Down")
    raise AssertionError(f"no group below {selected(window)}")


def selected(window):
    return window.run("return document.querySelector('[role=treeitem][aria-selected=true] b')?.textContent")


@pytest.mark.parametrize("view", VIEWS)
def test_views_ask_for_nothing_and_complain_of_nothing(show, everything, view):
    window = show(everything, VIEWS[view])
    assert window.requests() == []
    assert window.log() == []


@pytest.mark.skipif(not AXE.is_file(), reason="axe-core is not installed under web/node_modules: make web installs it")
@pytest.mark.parametrize(("view", "dark"), LOOKS)
def test_axe_finds_nothing(show, everything, view, dark):
    window = show(everything, VIEWS[view], dark=dark)
    window.run(AXE.read_text(encoding="utf-8"))
    found = window.run("return axe.run().then((result) => result.violations.map((v) => [v.id, v.help, v.nodes.map((n) => n.html).slice(0, 3)]))")
    assert found == []


def test_background_follows_the_host(show, everything):
    script = "const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g); return Number(r) + Number(g) + Number(b)"
    assert show(everything).run(script) > 600
    assert show(everything, dark=True).run(script) < 150


@pytest.mark.parametrize("view", ["findings", "trace", "graph"])
def test_nothing_sticks_out_of_a_narrow_window(show, everything, view):
    window = show(everything, VIEWS[view], width=480)
    assert window.run("return document.documentElement.scrollWidth") <= 480


def test_findings_are_filtered_by_severity_code_and_text(show, everything):
    window = show(everything)
    assert len(texts(window, ".card")) == 5
    window.click(".chip.note")
    assert len(texts(window, ".card")) == 4
    window.run(
        "const field = document.querySelector('.filters input'); field.value = 'CTX.mask'; field.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    window.wait("document.querySelectorAll('.card').length === 1")
    assert "q=CTX.mask" in window.run("return location.hash")
    (card,) = texts(show(everything, "s=0&code=PB002"), ".card")
    assert "another line" in card


def test_finding_shows_its_parts(show, everything):
    window = show(everything, "s=0&code=PB501")
    window.click(".doc summary")
    window.wait("document.querySelector('.doc pre')")
    (card,) = texts(window, ".card")
    parts = (
        "Gate.backward returns a wrong gradient for x",
        "differs by2.5e-1",
        "tolerance1.0e-8",
        "a factor of 2 is missing",
        "proved",
        "2 * dy * w",
    )
    for part in parts:
        assert part in card
    assert "Why it matters" in card


def test_error_map_colours_what_is_wrong(show, everything):
    window = show(everything, "s=0&code=PB501")
    shades = window.run("return [...document.querySelectorAll('.errormap rect')].map((r) => Number(r.getAttribute('class').slice(1)))")
    assert [i for i, shade in enumerate(shades) if shade] == [*range(0, 32, 4), 31]
    shades = show(everything, "s=0&code=PB511").run("return document.querySelectorAll('.errormap rect:not(.e0)').length")
    assert shades == 16


def test_trace_marks_where_a_gradient_ends(show, everything):
    window = show(everything, VIEWS["trace"])
    assert texts(window, ".timeline .mark") == ["becomes zero", "becomes Inf"]
    assert len(texts(window, ".moment.marked")) == 2
    window.click(".chip")
    rows = texts(window, ".steps tbody tr")
    assert len(rows) == 2
    assert all("becomes" in row for row in rows)


def test_timeline_leads_to_its_steps(show, everything):
    window = show(everything, VIEWS["trace"])
    window.run("document.querySelectorAll('.moment')[4].dispatchEvent(new MouseEvent('click', {bubbles: true, cancelable: true}))")
    assert window.run("return document.activeElement.parentElement.id") == "backward-2"
    assert "at=backward-2" in window.run("return location.hash")


def test_treemap_gives_every_block_its_area(show, everything):
    window = show(everything, VIEWS["saved"])
    script = "return [...document.querySelectorAll('.cell rect')].map((r) => [r.width.baseVal.value, r.height.baseVal.value, r.textContent])"
    areas = [((width + 2) * (height + 2), re.findall(r"([\d.]+)\sB", text)) for width, height, text in window.run(script)]
    density = [area / float(size[0]) for area, size in areas]
    assert len(areas) == len(page_blocks(everything))
    assert max(density) < 1.45 * min(density)


def page_blocks(path):
    import base64

    (data,) = re.findall(r'id="data">([^<]*)<', path.read_text(encoding="utf-8"))
    return json.loads(base64.b64decode(data))["sections"][SAVED]["blocks"]


def test_chart_draws_lines_and_lists_its_numbers(show, everything):
    window = show(everything, VIEWS["chart"])
    script = "const c = document.querySelector('canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
    colours = window.run(
        script + "return new Set([...d.keys()].filter((i) => i % 4 === 0 && d[i + 3] > 250).map((i) => [d[i], d[i + 1], d[i + 2]].join())).size"
    )
    assert colours > 4
    assert len(texts(window, ".chart details tbody tr")) == 24
    assert [name for name in texts(window, ".u-series:not(.bound) .u-label") if name in ("fused", "eager")] == ["fused", "eager"]


def test_a_lone_point_lies_in_the_middle_of_its_chart(show, write):
    series = [{"name": name, "x": [1e5], "y": [y], "low": [0.9 * y], "high": [1.1 * y]} for name, y in (("fused", 2e-5), ("eager", 6e-5))]
    page = page_samples.everything()
    page["sections"] = [page_samples.chart() | {"series": series}]
    window = show(write("lone", page))
    script = "const c = document.querySelector('canvas'); const d = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;"
    coloured = window.run(
        script + "const at = [...d.keys()].filter((i) => i % 4 === 0 && d[i + 3] > 250 && Math.abs(d[i] - d[i + 2]) > 60);"
        "return at.map((i) => ((i / 4) % c.width) / c.width)"
    )
    assert len(coloured) > 40
    assert 0.45 < min(coloured) < max(coloured) < 0.6


def test_keys_walk_along_edges(show, everything):
    window = show(everything, "s=3")
    focus_picture(window)
    window.press("Down")
    first = selected(window)
    assert first in ("x", "w")
    walked = []
    for _ in range(4):
        window.press("Down")
        walked.append(selected(window))
    assert walked == ["Gate", "Clip", "relu", "Root"]
    window.press("Up")
    assert selected(window) == "relu"
    window.press("Up", "Up", "Up")
    one = selected(window)
    window.press("Left" if one == "w" else "Right", "Right" if one == "w" else "Left")
    assert {one, selected(window)} <= {"x", "w"}


def test_groups_open_and_close_by_key_and_by_link(show, everything):
    window = show(everything, "s=4&open=-")
    (group,) = texts(window, ".box.group .title")
    assert group.startswith("×6")
    focus_picture(window)
    walk_to_group(window)
    window.press("e")
    window.wait("document.querySelector('.frame')")
    assert [text for text in texts(window, ".box .title") if text in ("addmm", "tanh", "native_layer_norm")] == ["addmm", "tanh", "native_layer_norm"]
    link = window.run("return location.hash.slice(1)")
    window.press("c")
    window.wait("!document.querySelector('.frame')")
    assert texts(show(everything, link), ".crest .title") == [group]


def test_link_to_a_node_opens_what_it_is_in(show, everything):
    window = show(everything, "s=4&open=-")
    inner = window.run("return document.querySelector('.box.group').id.replace('box-', '')")
    window = show(everything, f"s=4&open={inner}")
    key = window.run("return [...document.querySelectorAll('.box')].find((box) => box.textContent.startsWith('tanh')).id.replace('box-', '')")
    window = show(everything, f"s=4&open=-&n={key}")
    window.wait("document.querySelector('.frame')")
    assert selected(window) == "tanh"
    assert window.run("return document.querySelector('.details h2').textContent") == "tanh"


def test_search_finds_parameters_in_closed_groups(show, everything):
    window = show(everything, "s=4&open=-")
    window.press("/")
    assert window.run("return document.activeElement.type") == "search"
    window.press(*"0.2.bias")
    assert len(texts(window, "[role=option]")) == 1
    window.press("Enter")
    window.wait("document.querySelector('.frame')")
    assert selected(window) == "native_layer_norm"
    assert window.run("return document.activeElement.tagName") == "svg"


def test_help_lists_the_keys(show, everything):
    window = show(everything, "s=3")
    focus_picture(window)
    window.press("?")
    assert "search" in "".join(texts(window, ".keys dd"))
    window.press("?")
    assert texts(window, ".keys") == []


def test_zero_goes_back_to_the_first_view(show, everything):
    window = show(everything, "s=3")
    place = "return document.querySelector('.canvas > svg > g').getAttribute('transform')"
    first = window.run(place)
    focus_picture(window)
    window.press("+", "+")
    assert window.run(place) != first
    window.press("0")
    assert window.run(place) == first


def test_outline_says_what_the_picture_shows(show, everything):
    window = show(everything, "s=4")
    shown = [text.strip() for text in texts(window, ".crest > .title, .box > .title")]
    assert sorted(text.strip() for text in texts(window, "[role=treeitem] b")) == sorted(shown)


def test_outline_is_walked_by_keyboard(show, everything):
    window = show(everything, "s=4&open=-")
    window.run("document.querySelector('[role=treeitem][tabindex=\"0\"]').focus()")
    walk_to_group(window)
    focused = "return document.activeElement.getAttribute('aria-expanded')"
    assert window.run(focused) == "false"
    window.press("Right")
    window.wait("document.activeElement.getAttribute('aria-expanded') === 'true'")
    window.press("Right")
    assert window.run("return document.activeElement.getAttribute('aria-level')") == "2"
    window.press("Left", "Left")
    assert window.run(focused) == "false"
    window.press("Home")
    assert window.run("return document.activeElement === document.querySelector('[role=treeitem]')")


def test_names_of_findings_are_badges_on_their_functions(show, everything):
    window = show(everything, "s=3")
    assert texts(window, ".badge text") == ["3", "1"]


@pytest.mark.parametrize("view", ["graph", "model"])
def test_labels_lie_inside_of_their_boxes(show, everything, view):
    clipped = """
        const outside = (a, b) => a.left < b.left - 1 || a.right > b.right + 1 || a.top < b.top - 1 || a.bottom > b.bottom + 1;
        return [...document.querySelectorAll('.box')].flatMap((box) => {
            const whole = box.querySelector(':scope > rect:not(.shade)').getBoundingClientRect();
            const texts = [...box.querySelectorAll(':scope > text')];
            return texts.filter((text) => outside(text.getBoundingClientRect(), whole)).map((text) => text.textContent);
        })"""
    assert show(everything, VIEWS[view]).run(clipped) == []


def test_svg_and_png_are_saved(show, everything, downloads):
    window = show(everything, "s=3")
    for kind in ("SVG", "PNG"):
        window.run("[...document.querySelectorAll('.tools button')].find((b) => b.textContent === arguments[0]).click()", kind)
        path = downloads / f"page_samples.net.{kind.lower()}"
        for _ in range(200):
            if path.is_file() and path.stat().st_size:
                break
            window.run("return new Promise((done) => setTimeout(done, 20))")
        assert path.is_file()
    tree = ElementTree.parse(downloads / "page_samples.net.svg")
    assert {"Gate", "Clip", "relu", "Root", "sum"} <= {element.text for element in tree.iter("{http://www.w3.org/2000/svg}text")}
    assert not [element for element in tree.iter() if element.get("class") or element.get("style") or element.get("onclick")]
    png = (downloads / "page_samples.net.png").read_bytes()
    assert png.startswith(b"\x89PNG")
    assert int.from_bytes(png[16:20]) >= 2 * float(tree.getroot().get("width", "0")) - 2


@pytest.mark.parametrize("section", range(5))
def test_hostile_names_stay_text(show, write, section):
    window = show(write("hostile", page_samples.hostile(HOSTILE)), f"s={section}")
    assert window.run("return window.pwned") is None
    assert window.run("return document.querySelectorAll('script, img, iframe, object, svg[onload]').length") == 3
    shown = window.run("return document.body.innerText + [...document.querySelectorAll('text, title')].map((e) => e.textContent)")
    assert "<img src=x onerror" in shown
    assert "\\x1b[31m" in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert window.log() == []


@pytest.mark.parametrize("flat", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["flat", "tree"])
def test_large_graph_opens_in_sections(show, write, flat):
    window = show(write(f"large-{flat}", page_samples.large(3000, flat=flat)))
    boxes = texts(window, ".box .title")
    assert 10 < len(boxes) <= 160
    assert window.run("return document.querySelectorAll('*').length") < 3000
    window.press("/")
    window.press(*"layers.2992.")
    window.press("Enter")
    window.wait("document.querySelectorAll('.frame').length >= 1")
    assert len(texts(window, "[role=treeitem]")) <= 700
    assert "layers.2992.weight" in texts(window, ".details dt")


def test_layout_runs_in_a_worker(show, everything):
    window = show(everything)
    count = "const W = Worker; window.workers = 0; window.Worker = class extends W { constructor(...a) { super(...a); window.workers += 1 } }"
    identifier = window.devtools("Page.addScriptToEvaluateOnNewDocument", source=count)["identifier"]
    try:
        window = show(everything, "s=3")
        assert window.run("return window.workers") == 1
    finally:
        window.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=identifier)


def test_graph_is_drawn_where_no_worker_may_be_had(show, everything):
    window = show(everything)
    refuse = "window.Worker = class { constructor() { throw new Error('refused') } }"
    identifier = window.devtools("Page.addScriptToEvaluateOnNewDocument", source=refuse)["identifier"]
    try:
        window = show(everything, "s=3")
        assert "Gate" in texts(window, ".box .title")
    finally:
        window.devtools("Page.removeScriptToEvaluateOnNewDocument", identifier=identifier)


def test_page_works_in_the_frame_of_another_page(window, everything, tmp_path):
    outer = tmp_path / "outer.html"
    page = markup.escape(everything.read_text(encoding="utf-8"))
    outer.write_text(f'<!doctype html><iframe sandbox="allow-scripts" width="1000" height="600" srcdoc="{page}"></iframe>', encoding="utf-8")
    window.look()
    window.open(outer)
    with window.frame("iframe"):
        window.wait("document.querySelector('nav')")
        window.run("[...document.querySelectorAll('nav a')].find((a) => a.textContent === 'Graph').click()")
        window.wait("document.querySelector('.canvas > svg')?.dataset.ready")
        assert "Gate" in texts(window, ".box .title")
    assert window.log() == []


@pytest.mark.slow
@pytest.mark.parametrize(("count", "seconds"), [(3_000, 1.0), (30_000, 5.0)])
def test_large_graph_is_drawn_in_time(show, write, count, seconds):
    path = write(f"timed-{count}", page_samples.large(count))
    drawn = "return new Promise((done) => requestAnimationFrame(() => done(performance.now())))"
    assert min(show(path).run(drawn) for _ in range(3)) < 1e3 * seconds
