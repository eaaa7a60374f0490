"""The report as a reader sees it, in headless Chromium without a network."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from cel_lens.results import OPTIMISTIC
from cel_lens.viz import write_report
from tests.builders import build_result
from tests.viz.browser import Browser, start_browser, why_absent

pytestmark = pytest.mark.skipif(bool(why_absent()), reason=why_absent() or "chromium is installed")

LONG = "<script>alert(1)</script>" + "/a_folder_with_a_long_name" * 8
RESULTS = {
    "found": build_result(heldout=(12, 2)),
    "nothing found": build_result({"L0H0": (0, 3), "L5H8": (0, 5)}, n_layers=30, n_heads=9, layers=(0, 5)),
    "large": build_result(
        {"L30H20": (20, 3), "L17H11": (9, 0), "L22H23": (5, 1), "L3H3": (0, 60)},
        n_layers=36, n_heads=24, n_discovery=200, n_heldout=400, heldout=(25, 9), pool_size=8, max_heads=3,
    ),
    "hostile": build_result(
        model=LONG, task="</script><img src=x onerror=alert(2)>", device=LONG, versions={LONG: LONG},
        seconds={LONG: 1.0}, heldout_flags={"intact": {LONG: 2}}, prompt_digest="e" * 400,
    ),
}  # fmt: skip
VIEWS = {"desktop": (1280, False), "phone": (390, True), "tablet": (768, False)}
CASES = [(name, view) for name in RESULTS for view in ("desktop", "phone")] + [("large", "tablet")]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with start_browser() as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    return {name: write_report(result, folder / f"{name}.html") for name, result in RESULTS.items()}


@pytest.mark.parametrize(("name", "view"), CASES)
def test_nothing_is_cut_and_nothing_complains(
    name: str, view: str, browser: Browser, pages: dict[str, Path]
) -> None:
    width, dark = VIEWS[view]
    browser.open(pages[name], width=width, dark=dark)
    assert browser.console() == []
    assert browser.ask("return document.documentElement.scrollWidth") <= width
    assert browser.ask("return performance.getEntriesByType('resource').map(one => one.name)") == []
    assert browser.ask(CUT_TABLES) == []
    assert browser.ask(CUT_LABELS) == []
    assert browser.ask(OVERLAPPING_LABELS) == []


CUT_TABLES = """
return [...document.querySelectorAll('.scroll, dd, dt, h1')]
  .filter(one => one.scrollWidth > one.clientWidth + 1).map(one => one.textContent.trim().slice(0, 80));
"""
CUT_LABELS = """
return [...document.querySelectorAll('.plot')].flatMap(plot => {
  const edge = plot.getBoundingClientRect();
  return [...plot.querySelectorAll('svg text')].filter(text => text.textContent.trim()).filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < edge.left - 1 || box.right > edge.right + 1
        || box.top < edge.top - 1 || box.bottom > edge.bottom + 1;
  }).map(text => plot.id + ': ' + text.textContent);
});
"""
OVERLAPPING_LABELS = """
return [...document.querySelectorAll('.plot')].flatMap(plot => {
  const texts = [...plot.querySelectorAll('svg text')].filter(text => text.textContent.trim());
  const boxes = texts.map(text => text.getBoundingClientRect());
  return texts.flatMap((text, i) => texts.slice(i + 1).map((other, k) => [text, other, boxes[i], boxes[i + 1 + k]]))
    .filter(([, , a, b]) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
                         && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 3)
    .map(([a, b]) => plot.id + ': ' + a.textContent + ' | ' + b.textContent);
});
"""


@pytest.mark.parametrize("name", RESULTS)
def test_every_plot_shows_its_data(name: str, browser: Browser, pages: dict[str, Path]) -> None:
    result = RESULTS[name]
    browser.open(pages[name])
    drawn = ["gain-map", "best-subsets"] + (["panel-gains"] if result.found else [])
    assert sorted(browser.ask("return [...document.querySelectorAll('.plot')].map(one => one.id)")) == sorted(
        drawn
    )
    assert browser.ask("return document.querySelectorAll('#best-subsets .bars .point').length") == 2 * min(
        15, len(result.subsets)
    )
    gains = {round(one.gain, 6) for one in result.screening}
    colours = browser.ask_later(
        "const picture = new Image();"
        "picture.onload = () => {"
        "  const canvas = document.createElement('canvas');"
        "  canvas.width = picture.naturalWidth; canvas.height = picture.naturalHeight;"
        "  const pen = canvas.getContext('2d'); pen.drawImage(picture, 0, 0);"
        "  const values = new Uint32Array(pen.getImageData(0, 0, canvas.width, canvas.height).data.buffer);"
        "  done(new Set([...values].filter(value => value >>> 24)).size);"
        "};"
        "picture.src = document.querySelector('#gain-map .heatmaplayer image').getAttribute('xlink:href')"
        "  || document.querySelector('#gain-map .heatmaplayer image').href.baseVal;"
    )
    assert min(3, len(gains)) <= colours <= len(gains)
    if result.found:
        assert browser.ask(
            "return document.querySelectorAll('#gain-map .scatterlayer .point').length"
        ) == len({one.heads.heads[0] for one in result.subsets if len(one.heads) == 1})
        assert browser.ask("return document.querySelectorAll('#panel-gains .xerror').length") == 2


def test_pointing_at_a_cell_gives_its_figures(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["found"], height=3000)
    x, y = browser.ask(
        "const plot = document.getElementById('gain-map'), layout = plot._fullLayout,"
        " edge = plot.getBoundingClientRect();"
        "return [edge.left + layout.xaxis._offset + layout.xaxis.d2p(2),"
        "        edge.top + layout.yaxis._offset + layout.yaxis.d2p(1)];"
    )
    browser.hover(x, y)
    shown = browser.ask_later(
        "const wait = () => { const text = document.querySelector('#gain-map .hoverlayer .hovertext');"
        " text ? done(text.textContent) : setTimeout(wait, 20); }; wait();"
    )
    for part in ("L1H2", "gain −20.0 percentage points", "0 rescued, 4 damaged of 20", OPTIMISTIC):
        assert part in shown


def test_a_hostile_name_is_shown_and_not_run(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["hostile"])
    assert browser.ask("return document.images.length") == 0
    scripts = browser.ask("return document.scripts.length")
    assert LONG in browser.ask("return document.querySelector('header').textContent")
    browser.open(pages["found"])
    assert browser.ask("return document.scripts.length") == scripts


BRIGHTNESS = """
const channels = colour => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
const light = colour => channels(colour).reduce((sum, value) => sum + value, 0) / 3;
const measure = () => [
    getComputedStyle(document.body).backgroundColor,
    getComputedStyle(document.body).color,
    getComputedStyle(document.querySelector('#gain-map .xtick text')).fill].map(light);
const wait = left => {
    const found = measure();
    left > 0 && (found[2] > 128) !== WANTED ? setTimeout(wait, 20, left - 1) : done(found);
};
wait(500);
"""


def brightness(browser: Browser, *, of_labels: str) -> list[float]:
    """Brightness of page, text and plot labels, once the plots are redrawn with light or dark labels."""
    found: list[float] = browser.ask_later(BRIGHTNESS.replace("WANTED", str(of_labels == "light").lower()))
    return found


def test_the_page_and_its_plots_follow_the_readers_colours_and_print_dark_on_white(
    browser: Browser, pages: dict[str, Path]
) -> None:
    browser.open(pages["found"])
    page, text, label = brightness(browser, of_labels="dark")
    assert page > 240
    assert max(text, label) < 60
    browser.prefer("dark")
    page, text, label = brightness(browser, of_labels="light")
    assert page < 40
    assert min(text, label) > 200
    browser.ask("window.dispatchEvent(new Event('beforeprint'))")
    assert brightness(browser, of_labels="dark")[2] < 60
    browser.ask("window.dispatchEvent(new Event('afterprint'))")
    assert brightness(browser, of_labels="light")[2] > 200
    browser.open(pages["found"], dark=True)
    assert brightness(browser, of_labels="light")[2] > 200


def test_the_page_prints_on_a_few_sheets(browser: Browser, pages: dict[str, Path]) -> None:
    browser.open(pages["large"], dark=True)
    paper = browser.print()
    assert paper.startswith(b"%PDF-")
    assert 4 <= paper.count(b"/Type /Page\n") + paper.count(b"/Type /Page ") <= 9
