"""The page as a text: one file, a strict policy, and no string of a checked program outside of the data."""

import base64
import hashlib
import html as markup
import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from pullback.report.finding import Evidence, Finding, Location
from pullback.report.render import html
from pullback.report.report import CheckRun, Report

ROOT = Path(__file__).resolve().parents[2]
BUILT = ROOT / "src" / "pullback" / "report" / "_web"
HOSTILE = (
    "</script><script>window.pwned = 1</script>",
    '<img src=x onerror="window.pwned = 1">',
    "--><svg onload='window.pwned=1'>",
    "\u202egnirts\u202c \x1b[31mred\x1b[0m \x00",
    "{{constructor.constructor('window.pwned = 1')()}} ${window.pwned = 1}",
    "\ud800 lone surrogate",
)


def hostile_report():
    evil = " ".join(HOSTILE)
    finding = Finding(
        "PB501",
        "wrong-gradient",
        "error",
        "fail",
        f"mod.{evil}",
        evil,
        Location(f"/{evil}.py", 3),
        (Evidence(evil, evil, evil, float("inf"), float("nan"), evil),),
        cause=evil,
        fix=evil,
        repro=evil,
        attachments={"output": evil, evil: {"path": evil, "line": 1}},
    )
    return Report((finding,), (CheckRun("PB501", f"mod.{evil}", "fail", evil),), (f"mod.{evil}",), {evil: evil})


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__(convert_charrefs=False)
        self.tags, self.scripts, self.styles, self.inside = [], [], [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.inside.append(tag)

    def handle_endtag(self, tag):
        self.inside.pop()

    def handle_data(self, data):
        last = self.inside[-1] if self.inside else ""
        if last in ("script", "style"):
            getattr(self, f"{last}s").append(data)


def data_of(page):
    (encoded,) = re.findall(r'<script type="text/plain" id="data">([^<]*)</script>', page)
    return json.loads(base64.b64decode(encoded))


def sha256(text):
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def test_report_becomes_one_section_of_findings():
    data = data_of(html.render(hostile_report()))
    (section,) = data["sections"]
    assert (data["schema"], section["kind"]) == (1, "findings")
    assert "Why it matters:" in section["codes"]["PB501"]
    assert section["report"]["findings"][0]["code"] == "PB501"
    assert section["report"]["findings"][0]["evidence"][0]["error"] == "inf"


def test_lines_around_a_finding_are_shown(tmp_path):
    source = tmp_path / "op.py"
    source.write_text("".join(f"line {i}\n" for i in range(1, 11)))
    finding = Finding("PB501", "wrong-gradient", "error", "fail", "op.Op", "wrong", Location(str(source), 2))
    (section,) = data_of(html.render(Report((finding,))))["sections"]
    assert section["sources"] == [[[1, "line 1"], [2, "line 2"], [3, "line 3"], [4, "line 4"], [5, "line 5"]]]


def test_policy_names_what_may_run_and_nothing_else():
    page = html.render(Report())
    elements = Elements(page)
    (policy,) = (attrs["content"] for tag, attrs in elements.tags if attrs.get("http-equiv") == "Content-Security-Policy")
    data, licenses, script = elements.scripts
    (style,) = elements.styles
    assert f"script-src '{sha256(script)}';" in policy
    assert f"style-src '{sha256(style)}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "Permission is hereby granted" in licenses
    assert not set("<>") & set(data)


def test_nothing_is_loaded_from_elsewhere():
    elements = Elements(html.render(Report()))
    assert not [attrs for _, attrs in elements.tags if attrs.keys() & {"src", "href", "srcset", "action", "style", "onload"}]


def test_hostile_strings_become_no_markup():
    tags = [tag for tag, _ in Elements(html.render(Report())).tags]
    page = html.render(hostile_report())
    assert [tag for tag, _ in Elements(page).tags] == tags
    assert "onerror" not in page.replace(html._built("page.js"), "")


def test_hostile_title_is_text():
    page = html.render({"schema": 1, "title": HOSTILE[0], "sections": []})
    assert f"<title>{markup.escape(HOSTILE[0])}</title>" in page


def test_control_characters_are_written_as_escapes():
    text = json.dumps(data_of(html.render(hostile_report())), ensure_ascii=False)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", text)
    assert r"\\x1b[31mred" in text


def test_numbers_that_json_lacks_are_named():
    page = html.render({"schema": 1, "title": "", "sections": [{"kind": "chart", "x": [float("nan"), float("-inf"), 1.5]}]})
    assert data_of(page)["sections"][0]["x"] == ["nan", "-inf", 1.5]


@pytest.mark.parametrize("page", [{"schema": 2, "title": "", "sections": []}, {"schema": 1, "title": ""}, {}])
def test_other_pages_are_refused(page):
    with pytest.raises(ValueError, match="a page has the schema 1 and a list of sections"):
        html.render(page)


def test_built_page_is_small():
    assert len((BUILT / "page.js").read_bytes()) < 150_000
    assert len((BUILT / "page.css").read_bytes()) < 20_000


def test_built_page_is_of_the_sources():
    web = ROOT / "web"
    if not web.is_dir():
        pytest.skip("web/ is not here: this is not a checkout")

    def files(name):
        return [file for entry in sorted((web / name).iterdir()) for file in files(f"{name}/{entry.name}")] if (web / name).is_dir() else [name]

    digest = hashlib.sha256()
    for name in (file for source in ("package-lock.json", "tsconfig.json", "vite.config.ts", "src") for file in files(source)):
        digest.update(name.encode() + b"\0" + (web / name).read_bytes() + b"\0")
    assert (BUILT / "sources.sha256").read_text().strip() == digest.hexdigest(), "web/ has changed: run `make web` and commit what it writes"
