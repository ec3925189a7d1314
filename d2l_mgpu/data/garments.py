"""Generated drawings of garments: what stands in where Fashion-MNIST cannot be had.

The ten classes, their order, the 28x28 grey images and the black background are those
of Fashion-MNIST; the drawings are not. Each is a silhouette put together from bars,
boxes and ellipses, with its size, place, slant, sleeves, light, cloth and noise drawn
at random.

The same seed gives the same bytes on every machine. That is why this file uses numpy's
frozen ``RandomState``, draws only uniform numbers, and computes with ``+ - * /``,
``sqrt``, ``floor`` and comparisons, which IEEE 754 rounds alike everywhere; ``exp`` or
``sin`` may differ in the last bit between two builds of numpy, and one flipped bit can
flip a byte of an image.
"""

import functools
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from d2l_mgpu.arguments import integer

Array = NDArray[np.floating]

LABELS = (
    "t-shirt",
    "trouser",
    "pullover",
    "dress",
    "coat",
    "sandal",
    "shirt",
    "sneaker",
    "bag",
    "ankle boot",
)
SIDE = 28  # pixels
BLOCK = 1000  # images drawn together, 100 of each class


def generate(
    num_examples: int, seed: int = 0, *, train: bool = True
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Draw garments: images uint8 (n, 28, 28) and labels int64 (n,) in 0..9.

    Every ten consecutive images show each class once, and a shorter set is the
    beginning of a longer one. ``train=False`` draws from another random stream of the
    same ``seed`` (an integer from 0 to 2**32 - 1). Raises ValueError for fewer than one
    image.
    """
    num_examples, seed = (
        integer("num_examples", num_examples),
        integer("seed", seed, least=0),
    )
    rng = np.random.RandomState([seed, 0 if train else 1])
    blocks = [_block(rng) for _ in range(-(-num_examples // BLOCK))]
    images = np.concatenate([images for images, _ in blocks])
    labels = np.concatenate([labels for _, labels in blocks])
    return images[:num_examples], labels[:num_examples]


def _block(rng: np.random.RandomState) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """The next 1,000 images and their labels."""
    images = np.empty((BLOCK, SIDE, SIDE), np.uint8)
    labels = (
        rng.random_sample((BLOCK // 10, 10))
        .argsort(axis=1)
        .reshape(-1)
        .astype(np.int64)
    )
    for label, draw in enumerate(DRAW):
        images[labels == label] = _Pen(rng, BLOCK // 10).photograph(draw)
    return images, labels


def _inside(distance: Array) -> Array:
    """Coverage 0..1 of a pixel whose center lies ``distance`` (half images) inside an
    edge."""
    return np.clip(distance * (SIDE / 2) + 0.5, 0.0, 1.0)


def _all(*shapes: Array) -> Array:
    """Where the shapes overlap."""
    return functools.reduce(np.minimum, shapes)


def _any(*shapes: Array) -> Array:
    """Where at least one of the shapes is."""
    return functools.reduce(np.maximum, shapes)


def _ellipse(x: Array, y: Array, width: Array | float, height: Array | float) -> Array:
    """An ellipse around the origin with these half axes."""
    radius = np.sqrt((x / width) * (x / width) + (y / height) * (y / height))
    return _inside((1.0 - radius) * np.minimum(width, height, dtype=np.float32))


def _ring(x: Array, y: Array, width: Array | float, height: Array | float) -> Array:
    """The outline, 0.11 wide, of such an ellipse."""
    hole = _ellipse(x, y, width - 0.11, np.maximum(height - 0.11, 0.04))
    return _ellipse(x, y, width, height) * (1.0 - hole)


class _Pen:
    """A sheet of n images: pixel coordinates x, y in -1..1 (n, 28, 28), and random
    numbers."""

    def __init__(self, rng: np.random.RandomState, n: int) -> None:
        self.rng, self.n = rng, n
        # Shift, scale, slant and tilt of the coordinates place the garment.
        grid = (np.arange(SIDE, dtype=np.float32) - (SIDE - 1) / 2) / (SIDE / 2)
        column, row = grid[None, None, :], grid[None, :, None]
        x = (column - self.between(-0.10, 0.10)) / self.between(0.82, 1.08)
        y = (row - self.between(-0.08, 0.08)) / self.between(0.86, 1.06)
        self.x = x + self.between(-0.14, 0.14) * y
        self.y = y + self.between(-0.10, 0.10) * x

    def between(self, low: float, high: float) -> Array:
        """One number for each image, uniform from low to high (n, 1, 1)."""
        return low + (high - low) * self.rng.random_sample((self.n, 1, 1)).astype(
            np.float32
        )

    def chance(self, probability: float) -> Array:
        """1.0 in this share of the images, else 0.0 (n, 1, 1)."""
        return (self.rng.random_sample((self.n, 1, 1)) < probability).astype(np.float32)

    def bar(
        self,
        start: tuple[Array | float, Array | float],
        end: tuple[Array | float, Array | float],
        wide: Array | float,
        wide_end: Array | float,
        *,
        mirrored: bool = False,
    ) -> Array:
        """A bar from start to end whose half width goes from wide to wide_end."""
        x = np.abs(self.x) if mirrored else self.x
        along_x, along_y = end[0] - start[0], end[1] - start[1]
        length = np.sqrt(along_x * along_x + along_y * along_y, dtype=np.float32)
        dx, dy = x - start[0], self.y - start[1]
        along = (dx * along_x + dy * along_y) / length
        across = np.abs(dx * along_y - dy * along_x) / length
        half = wide + (wide_end - wide) * (along / length)
        return _inside(np.minimum(half - across, np.minimum(along, length - along)))

    def rows(self, top: Array | float, bottom: Array | float) -> Array:
        """A horizontal band."""
        return _inside(np.minimum(self.y - top, bottom - self.y))

    def columns(self, half_width: Array) -> Array:
        """A vertical band around the middle, as wide as half_width says on each row."""
        return _inside(half_width - np.abs(self.x))

    def stripes(self, position: Array, period: Array) -> Array:
        """A wave that goes from 0 to 1 and back once a period."""
        phase = position / period
        return np.abs(2.0 * (phase - np.floor(phase)) - 1.0)

    def photograph(
        self, draw: Callable[["_Pen"], tuple[Array, Array]]
    ) -> NDArray[np.uint8]:
        """Draw the garment, dress it in cloth, light it, spoil it a little: uint8 (n,
        28, 28)."""
        shape, tone = draw(self)
        horizontal = self.chance(0.5)
        position = horizontal * self.y + (1.0 - horizontal) * self.x
        striped = self.chance(0.25) * self.between(0.2, 0.8)
        cloth = 1.0 - striped * self.stripes(position + 2.0, self.between(0.2, 0.5))
        badge = _ellipse(
            self.x, self.y + self.between(-0.1, 0.3), self.between(0.1, 0.3), 0.16
        )
        cloth = cloth + self.chance(0.2) * self.between(-0.7, 0.5) * badge
        light = self.between(0.3, 1.0)
        light = light * (1.0 + self.between(-0.25, 0.25) * self.x)
        light = light * (1.0 + self.between(-0.25, 0.25) * self.y)
        # Two bytes a pixel: their difference is a triangular noise around zero.
        noise = np.frombuffer(self.rng.bytes(2 * self.n * SIDE * SIDE), np.uint8)
        grain = noise.reshape(2, self.n, SIDE, SIDE).astype(np.float32) / 255.0
        grain = (grain[0] - grain[1]) * self.between(0.02, 0.24)
        hidden = self.chance(0.2) * _all(
            _inside(self.between(0.05, 0.2) - np.abs(self.x - self.between(-0.7, 0.7))),
            _inside(self.between(0.05, 0.3) - np.abs(self.y - self.between(-0.7, 0.7))),
        )
        grey = shape * (1.0 - hidden) * (tone * cloth * light + grain)
        return np.floor(255.0 * np.clip(grey, 0.0, 1.0)).astype(np.uint8)


def _top(
    pen: _Pen,
    width: tuple[float, float],
    flare: tuple[float, float],
    hem: tuple[float, float],
    neck: tuple[float, float],
    *,
    long_sleeves: float,
) -> tuple[Array, Array]:
    """Body, two sleeves and neckline that t-shirt, pullover, coat and shirt share.

    Each pair is the range of a half width, its growth downwards, the height of the hem,
    the depth of the neckline; ``long_sleeves`` is the share that has them.
    """
    shoulder = pen.between(-0.80, -0.66)
    half, bottom = pen.between(*width), pen.between(*hem)
    body = _all(
        pen.columns(half + pen.between(*flare) * (pen.y - shoulder)),
        _inside(pen.y - shoulder - pen.between(0.15, 0.45) * np.abs(pen.x)),
        _inside(bottom - pen.y),
    )
    long = pen.chance(long_sleeves)
    reach_x = long * pen.between(0.16, 0.42) + (1.0 - long) * pen.between(0.26, 0.44)
    reach_y = long * pen.between(0.85, 1.25) + (1.0 - long) * pen.between(0.22, 0.45)
    start_x, start_y = half - 0.10, shoulder + 0.20
    sleeve = pen.bar(
        (start_x, start_y),
        (start_x + reach_x, start_y + reach_y),
        pen.between(0.15, 0.20),
        long * pen.between(0.09, 0.13) + (1.0 - long) * pen.between(0.14, 0.19),
        mirrored=True,
    )
    collar = _ellipse(
        pen.x, pen.y - shoulder, pen.between(0.14, 0.24), pen.between(*neck)
    )
    # The seam where the sleeve is sewn on shows as a darker line beside the body.
    seam = _inside(0.03 - np.abs(np.abs(pen.x) - half)) * sleeve
    tone = 1.0 - pen.between(0.0, 0.5) * seam
    return _any(body, sleeve) * (1.0 - collar), tone


def _t_shirt(pen: _Pen) -> tuple[Array, Array]:
    return _top(
        pen, (0.36, 0.50), (-0.04, 0.06), (0.50, 0.82), (0.08, 0.26), long_sleeves=0.06
    )


def _trouser(pen: _Pen) -> tuple[Array, Array]:
    top, hip, crotch = -0.88, pen.between(0.26, 0.38), pen.between(-0.50, -0.12)
    spread = pen.between(0.02, 0.16)
    down = pen.y - top
    legs = pen.columns(hip + spread * down)
    gap = pen.columns((pen.y - crotch) * pen.between(0.05, 0.22)) * _inside(
        pen.y - crotch
    )
    shape = legs * pen.rows(top, pen.between(0.55, 0.92)) * (1.0 - gap)
    belt = pen.rows(top, top + 0.13)
    crease = _inside(0.03 - np.abs(np.abs(pen.x) - (hip + spread * down) * 0.55))
    return shape, 1.0 - pen.between(0.0, 0.5) * belt - pen.between(0.0, 0.35) * crease


def _pullover(pen: _Pen) -> tuple[Array, Array]:
    shape, tone = _top(
        pen, (0.36, 0.50), (-0.06, 0.06), (0.50, 0.80), (0.05, 0.16), long_sleeves=0.97
    )
    rib = _inside(pen.y - pen.between(0.42, 0.70))
    return shape, tone * (1.0 - pen.between(0.0, 0.45) * rib)


def _dress(pen: _Pen) -> tuple[Array, Array]:
    top, waist = pen.between(-0.92, -0.80), pen.between(-0.36, -0.05)
    slim = pen.between(0.14, 0.26)
    below, above = np.maximum(pen.y - waist, 0.0), np.maximum(waist - pen.y, 0.0)
    half = slim + pen.between(0.06, 0.42) * below + pen.between(0.05, 0.28) * above
    body = _all(pen.columns(half), pen.rows(top, pen.between(0.62, 0.94)))
    neck = _ellipse(
        pen.x, pen.y - top, pen.between(0.08, 0.18), pen.between(0.10, 0.34)
    )
    sleeve = pen.chance(0.35) * pen.bar(
        (slim, top + 0.14),
        (slim + pen.between(0.10, 0.30), top + pen.between(0.40, 1.0)),
        0.11,
        0.09,
        mirrored=True,
    )
    belt = pen.chance(0.4) * pen.rows(waist - 0.05, waist + 0.05)
    return _any(body, sleeve) * (1.0 - neck), 1.0 - pen.between(0.2, 0.7) * belt


def _front(pen: _Pen, tone: Array, line: tuple[float, float]) -> Array:
    """A front that opens: a line down the middle and the buttons beside it."""
    where = pen.between(-0.05, 0.05)
    opening = _inside(0.035 - np.abs(pen.x - where))
    buttons = _inside(0.04 - np.abs(pen.x - where - 0.09)) * (
        pen.stripes(pen.y + 2.0, pen.between(0.22, 0.34)) > 0.6
    )
    tone = tone * (1.0 - pen.between(*line) * opening)
    return tone + pen.between(-0.4, 0.4) * buttons


def _coat(pen: _Pen) -> tuple[Array, Array]:
    shape, tone = _top(
        pen, (0.36, 0.50), (-0.02, 0.12), (0.68, 0.92), (0.05, 0.20), long_sleeves=0.97
    )
    lapels = pen.columns(0.26 - 0.5 * (pen.y + 0.75)) * pen.rows(-0.75, -0.15)
    return shape, _front(pen, tone * (1.0 - pen.between(0.0, 0.4) * lapels), (0.2, 0.9))


def _shirt(pen: _Pen) -> tuple[Array, Array]:
    shape, tone = _top(
        pen, (0.34, 0.50), (-0.04, 0.08), (0.52, 0.86), (0.06, 0.24), long_sleeves=0.55
    )
    wing = pen.chance(0.8) * pen.bar(
        (0.06, -0.62), (0.26, -0.74), 0.05, 0.08, mirrored=True
    )
    return _any(shape, wing), _front(pen, tone, (0.0, 0.6)) + pen.between(
        -0.3, 0.3
    ) * wing


def _sole(pen: _Pen, thick: Array, heel: Array) -> tuple[Array, Array]:
    """The sole of a shoe that points to the left, and the height y of its upper
    side."""
    ground = pen.between(0.42, 0.58)
    rise = heel * np.maximum(pen.x + 0.1, 0.0)
    upper = ground - thick - rise
    arch = pen.chance(0.5) * _all(
        _inside(0.30 - np.abs(pen.x - 0.15)), _inside(pen.y - upper - thick)
    )
    sole = _all(
        _inside(0.86 - np.abs(pen.x)), _inside(ground - pen.y), _inside(pen.y - upper)
    )
    return sole * (1.0 - arch), upper


def _sandal(pen: _Pen) -> tuple[Array, Array]:
    sole, upper = _sole(pen, pen.between(0.08, 0.20), pen.between(0.0, 0.55))
    above = _inside(upper + 0.04 - pen.y)
    toe, instep, heel = (
        pen.between(-0.6, -0.4),
        pen.between(-0.1, 0.15),
        pen.between(0.45, 0.60),
    )
    straps = _any(
        _ring(
            pen.x - toe, pen.y - upper, pen.between(0.16, 0.3), pen.between(0.15, 0.40)
        ),
        _ring(
            pen.x - instep, pen.y - upper, pen.between(0.15, 0.3), pen.between(0.3, 0.7)
        ),
        pen.chance(0.7)
        * _ring(
            pen.x - heel, pen.y - upper, pen.between(0.15, 0.25), pen.between(0.4, 0.9)
        ),
        pen.chance(0.5)
        * pen.bar(
            (toe, upper - 0.1), (heel, upper - pen.between(0.2, 0.7)), 0.06, 0.06
        ),
    )
    # Some have a closed tip, which makes them look like shoes.
    tip = pen.chance(0.3) * _ellipse(
        pen.x - toe, pen.y - upper, 0.28, pen.between(0.2, 0.4)
    )
    return _any(sole, _any(straps, tip) * above), 1.0 - pen.between(-0.2, 0.5) * sole


def _shoe(
    pen: _Pen, shaft: tuple[float, float], heel: tuple[float, float]
) -> tuple[Array, Array]:
    """Sole, foot and a shaft of this height: a sneaker when it is low, a boot when it
    is tall."""
    sole, upper = _sole(pen, pen.between(0.08, 0.20), pen.between(*heel))
    back, throat = pen.between(0.68, 0.86), pen.between(-0.25, 0.15)
    ahead = pen.x - pen.between(-0.95, -0.80)
    instep = pen.between(0.14, 0.26) + pen.between(0.25, 0.50) * np.maximum(
        ahead - 0.25, 0.0
    )
    height = np.minimum(2.0 * ahead, instep)  # a blunt toe, then the rise to the ankle
    foot = _any(_inside(height - (upper - pen.y)), _inside(pen.x - throat))
    foot = _all(foot, _inside(back - pen.x), _inside(upper + 0.04 - pen.y))
    tall = _inside(pen.between(*shaft) - (upper - pen.y))
    shape = _any(sole, foot * tall)
    laces = (
        pen.chance(0.6)
        * pen.between(-0.6, 0.4)
        * pen.bar(
            (throat - 0.30, upper - 0.22), (throat + 0.10, upper - 0.50), 0.08, 0.08
        )
    )
    stripe = (
        pen.chance(0.4)
        * pen.between(-0.6, 0.4)
        * pen.bar((0.0, upper), (0.2, upper - 0.3), 0.06, 0.06)
    )
    return shape, 1.0 + laces + stripe - pen.between(-0.3, 0.6) * sole


def _sneaker(pen: _Pen) -> tuple[Array, Array]:
    return _shoe(pen, (0.32, 0.66), (0.0, 0.12))


def _ankle_boot(pen: _Pen) -> tuple[Array, Array]:
    return _shoe(pen, (0.62, 1.15), (0.0, 0.40))


def _bag(pen: _Pen) -> tuple[Array, Array]:
    top, bottom = pen.between(-0.35, 0.05), pen.between(0.45, 0.85)
    half = pen.between(0.42, 0.85) + pen.between(-0.15, 0.2) * (pen.y - top)
    body = _all(pen.columns(half), pen.rows(top, bottom))
    wide, tall = pen.between(0.20, 0.50), pen.between(0.15, 0.60)
    strap = pen.chance(0.8) * _ring(pen.x, pen.y - top, wide, tall)
    flap = pen.rows(top, top + pen.between(0.1, 0.4)) * pen.between(-0.4, 0.4)
    clasp = (
        pen.chance(0.5)
        * 0.4
        * _ellipse(pen.x, pen.y - (top + bottom) / 2.0, 0.10, 0.08)
    )
    return _any(body, strap), 1.0 + flap - clasp


# In the order of the labels.
DRAW: tuple[Callable[[_Pen], tuple[Array, Array]], ...] = (
    _t_shirt,
    _trouser,
    _pullover,
    _dress,
    _coat,
    _sandal,
    _shirt,
    _sneaker,
    _bag,
    _ankle_boot,
)
