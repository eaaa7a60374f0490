"""Colours that readers can tell apart: on light and dark, and with any common colour-vision deficiency."""

from __future__ import annotations

import re
from importlib.resources import files
from itertools import combinations

import numpy as np
import numpy.typing as npt
import pytest

from cel_lens.viz.theme import DARK, HARM, HELP, LIGHT, NEUTRAL, Palette

CSS = files("cel_lens.viz").joinpath("templates/report.css").read_text(encoding="utf-8")

# Full protanopia, deuteranopia and tritanopia on linear RGB: Machado, Oliveira and Fernandes (2009).
DEFICIENCIES = {
    "protan": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deutan": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritan": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}


def linear(colour: str) -> npt.NDArray[np.float64]:
    parts = np.array([int(colour[place : place + 2], 16) for place in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def luminance(colour: str) -> float:
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def lab(rgb: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """CIE L*a*b* of linear RGB, white point D65."""
    to_xyz = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    ratios = np.array(to_xyz) @ np.clip(rgb, 0, 1) / [0.9505, 1.0, 1.089]
    f = np.where(ratios > 0.008856, np.cbrt(ratios), 7.787 * ratios + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def variables(dark: bool) -> dict[str, str]:
    block = CSS.split("@media (prefers-color-scheme: dark)")[1] if dark else CSS
    return dict(re.findall(r"--([\w-]+): (#\w{6})", block.split("}")[0]))


@pytest.mark.parametrize("dark", [False, True])
def test_text_is_readable_on_every_background_it_stands_on(dark: bool) -> None:
    colour = variables(dark)
    for text in ("text", "quiet", "accent", "help", "harm"):
        for page in ("page", "panel", "chosen"):
            assert contrast(colour[text], colour[page]) >= 4.5, (text, page)
    assert contrast(colour["warn-text"], colour["warn-page"]) >= 4.5


@pytest.mark.parametrize("dark", [False, True])
def test_marks_with_a_meaning_stand_out_from_the_page(dark: bool) -> None:
    page = variables(dark)["page"]
    for mark in (HELP, HARM, NEUTRAL):
        assert contrast(mark, page) >= 3


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_no_harm_looks_like_a_gain(palette: Palette, deficiency: str) -> None:
    seen = [lab(np.array(DEFICIENCIES[deficiency]) @ linear(colour)) for colour in palette.scale]
    middle = len(seen) // 2
    harms, gains = seen[:middle], seen[middle + 1 :]
    assert min(np.linalg.norm(harm - gain) for harm in harms for gain in gains) > 20
    assert all(np.linalg.norm(one - other) > 10 for one, other in combinations(seen, 2))


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_no_change_is_nearest_to_the_page_and_colours_deepen_both_ways(palette: Palette) -> None:
    page = variables(dark=palette is DARK)["page"]
    steps = [contrast(colour, page) for colour in palette.scale]
    middle = len(steps) // 2
    assert steps[: middle + 1] == sorted(steps[: middle + 1], reverse=True)
    assert steps[middle:] == sorted(steps[middle:])
    assert len(palette.scale) % 2 == 1
    assert palette.stops[middle] == [0.5, palette.scale[middle]]
