"""The curves of our plots differ for every reader: under color blindness, and from the paper.

The matrices are those of Machado, Oliveira, and Fernandes (2009), "A Physiologically-based Model
for Simulation of Color Vision Deficiency", at severity 1.0.
"""

from itertools import combinations

import numpy as np
import pytest

from d2l_mgpu.plotting import STYLES

VISION = {
    "normal": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
XYZ = np.array(
    [[0.412456, 0.357576, 0.180438], [0.212673, 0.715152, 0.072175], [0.019334, 0.119192, 0.950304]]
)
DISTINCT = 12  # CIELAB units; 2.3 is a just noticeable difference of large neighboring areas
CONTRAST = 3  # WCAG 1.4.11, for parts of a graphic


def linear(color: str) -> np.ndarray:
    """A color such as "#0072B2" as linear light."""
    s = np.array([int(color[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(s <= 0.04045, s / 12.92, ((s + 0.055) / 1.055) ** 2.4)


def lab(light: np.ndarray) -> np.ndarray:
    """Linear light in CIELAB, where distances are about what people see."""
    t = XYZ @ np.clip(light, 0, 1) / (XYZ @ np.ones(3))
    x, y, z = np.where(t > (6 / 29) ** 3, np.cbrt(t), t / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def least_distance(colors: list[str], vision: str) -> float:
    """How far apart the two most similar colors are, as someone with that vision sees them."""
    seen = [lab(np.asarray(VISION[vision]) @ linear(color)) for color in colors]
    return min(float(np.linalg.norm(a - b)) for a, b in combinations(seen, 2))


@pytest.mark.parametrize("vision", VISION)
def test_curves_differ_in_every_vision(vision: str) -> None:
    assert least_distance([color for color, _ in STYLES], vision) >= DISTINCT


def test_red_and_green_of_equal_lightness_are_found() -> None:
    assert least_distance(["#a05000", "#5a7000"], "normal") >= DISTINCT
    assert least_distance(["#a05000", "#5a7000"], "deuteranopia") < DISTINCT


def test_curves_differ_without_colors() -> None:
    assert len({line for _, line in STYLES}) == len(STYLES)


@pytest.mark.parametrize("color", [color for color, _ in STYLES])
def test_a_curve_stands_out_from_the_paper(color: str) -> None:
    luminance = XYZ[1] @ linear(color)
    assert 1.05 / (luminance + 0.05) >= CONTRAST
