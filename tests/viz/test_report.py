"""The report as a file: what it says, that it needs nothing else, and that no name can break it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from cel_lens.errors import InvalidInput
from cel_lens.results import OPTIMISTIC, BeneficialHeads
from cel_lens.viz import write_report
from tests.builders import build_result

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}&\"'<!--"


class Page(HTMLParser):
    """Text, tags and embedded JSON of a page, styles and scripts left out of the text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[str] = []
        self.words: list[str] = []
        self.data: dict[str, str] = {}
        self._inside: list[tuple[str, str]] = []
        self.feed(source)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.tags.append(tag)
        if tag in ("div", "dd", "dt", "p", "small", "td", "th"):
            self.words.append(" ")
        self.links += [values[name] or "" for name in ("src", "href") if name in values]
        if tag in ("script", "style"):
            self._inside.append((tag, values.get("id") or ""))

    def handle_endtag(self, tag: str) -> None:
        if self._inside and self._inside[-1][0] == tag:
            self._inside.pop()

    def handle_data(self, data: str) -> None:
        if not self._inside:
            self.words.append(data)
        elif self._inside[-1][1]:
            self.data[self._inside[-1][1]] = data

    @property
    def text(self) -> str:
        return " ".join("".join(self.words).split())


def read(result: BeneficialHeads, folder: Path) -> tuple[str, Page]:
    source = write_report(result, folder / "report.html").read_text(encoding="utf-8")
    return source, Page(source)


def test_the_report_says_what_was_found(tmp_path: Path) -> None:
    result = build_result(heldout=(12, 2))
    _, page = read(result, tmp_path)
    assert result.headline in page.text
    assert "Accuracy, intact → ablated 50.0% → 75.0% 20 → 30 of 40 right" in page.text
    assert "The interval lies above zero" in page.text
    for part in (
        "L0H1+L1H0",
        "toy-model",
        "arithmetic",
        "completion-6shot",
        "integer-match",
        "2.13.0",
        "d" * 64,
    ):
        assert part in page.text, part


@pytest.mark.parametrize(
    ("heldout", "words"), [((1, 12), "The interval lies below zero"), ((3, 2), "The interval includes zero")]
)
def test_a_gain_that_does_not_hold_is_called_so(heldout: tuple[int, int], words: str, tmp_path: Path) -> None:
    _, page = read(build_result(heldout=heldout), tmp_path)
    assert words in page.text


def test_finding_nothing_is_said_in_words(tmp_path: Path) -> None:
    result = build_result({"L0H0": (0, 3)})
    _, page = read(result, tmp_path)
    assert "No head set raised accuracy on the discovery examples, so none was chosen" in page.text
    assert "That is an ordinary result" in page.text
    assert "Accuracy of the intact model, held-out 50.0%" in page.text
    assert "Removing L" not in page.text
    assert "panel-gains-data" not in page.data


def test_a_partial_screening_is_said_at_the_top(tmp_path: Path) -> None:
    _, page = read(build_result({"L1H1": (2, 0)}, n_layers=6, layers=(1, 2)), tmp_path)
    notice = "Only 6 of 18 heads were screened; layers 0, 3–5 were not looked at. Heads outside the screening may help"
    assert page.text.index(notice) < page.text.index("Measured once")
    _, whole = read(build_result(), tmp_path)
    assert "not looked at" not in whole.text


def test_every_discovery_figure_is_called_optimistic(tmp_path: Path) -> None:
    source, _ = read(build_result(), tmp_path)
    body = source[source.index("<main>") : source.index("</main>")]
    discovery = body[body.index('<section id="discovery"') : body.index('<section id="heads"')]
    tiles = re.findall(r"<div><dt>.*?</div>", discovery)
    assert len(tiles) == 5
    assert all(OPTIMISTIC in tile for tile in tiles)
    for section in ("heads", "subsets"):
        part = body[body.index(f'<section id="{section}"') :].split("</section>")[0]
        captions = re.findall(r"<(caption|figcaption)>(.*?)</\1>", part)
        assert len(captions) == 2
        assert all(OPTIMISTIC in text for _, text in captions)
    assert re.search(rf"<h3>Discovery, 20 examples.*{OPTIMISTIC}", body)
    held = body[body.index('<section id="heldout"') :].split('class="columns')[0]
    assert OPTIMISTIC not in held


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    source, page = read(build_result(), tmp_path)
    assert all(link.startswith("#") for link in page.links)
    assert not {"link", "iframe", "img", "object", "embed", "base", "form"} & set(page.tags)
    assert "default-src 'none'" in source
    styles = source[source.index("<style>") : source.index("</style>")]
    assert "url(" not in styles
    assert "@import" not in styles


def test_plots_are_embedded_as_they_are_drawn(tmp_path: Path) -> None:
    _, page = read(build_result(), tmp_path)
    figures = {name: json.loads(text) for name, text in page.data.items() if name.endswith("-data")}
    assert set(figures) == {"gain-map-data", "best-subsets-data", "panel-gains-data"}
    assert "<b>L0H1</b>" in figures["gain-map-data"]["data"][0]["text"][0][1]
    assert not any("<" in page.data[name] for name in figures)  # nothing in them can end the script element
    assert [[round(gain) for gain in row] for row in figures["gain-map-data"]["data"][0]["z"]] == [
        [0, 15, 0],
        [5, 0, -20],
    ]


def test_a_hostile_name_is_only_text(tmp_path: Path) -> None:
    names = dict.fromkeys(
        ("model", "task", "protocol", "metric", "device", "dtype", "started", "freeze_digest"), HOSTILE
    )
    flags = {"intact": {HOSTILE: 3}, "ablated": {HOSTILE: 1}}
    hostile = build_result(
        **names,
        versions={HOSTILE: HOSTILE},
        seconds={HOSTILE: 1.0},
        heldout_flags=flags,
        discovery_flags=flags,
    )
    friendly = build_result(
        **dict.fromkeys(names, "plain"), versions={"x": "y"}, seconds={"x": 1.0},
        heldout_flags={"intact": {"x": 3}}, discovery_flags={"intact": {"x": 3}},
    )  # fmt: skip
    source, page = read(hostile, tmp_path / "hostile")
    _, plain = read(friendly, tmp_path / "plain")
    assert page.tags == plain.tags
    assert page.text.count(HOSTILE) >= 12
    assert HOSTILE not in source


def test_a_name_with_stray_bytes_can_be_written(tmp_path: Path) -> None:
    _, page = read(build_result(model="models/\udcff"), tmp_path)
    assert r"models/\udcff" in page.text


def test_the_folder_is_made_and_an_earlier_report_replaced(tmp_path: Path) -> None:
    target = tmp_path / "new" / "report.html"
    assert write_report(build_result({}), target) == target
    write_report(build_result(), target)
    assert "Removing L0H1+L1H0" in Page(target.read_text(encoding="utf-8")).text
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_the_same_result_gives_the_same_bytes(tmp_path: Path) -> None:
    one, other = (write_report(build_result(), tmp_path / name) for name in ("one.html", "other.html"))
    assert one.read_bytes() == other.read_bytes()


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("mine", encoding="utf-8")
    with pytest.raises(InvalidInput, match=r"report\.html cannot be written"):
        write_report(build_result(), tmp_path / "taken" / "report.html")
