"""Slow twins of the corruptions: one image, h×w×c in [0, 1], pixel by pixel from the formula."""

import colorsys
import heapq
from io import BytesIO
from math import ceil, cos, exp, floor, hypot, radians, sin

import numpy as np
from PIL import Image

SIDE = 32
OFFICIAL = {
    "brightness": [0.05, 0.1, 0.15, 0.2, 0.3],
    "contrast": [0.75, 0.5, 0.4, 0.3, 0.15],
    "defocus_blur": [(0.3, 0.4), (0.4, 0.5), (0.5, 0.6), (1, 0.2), (1.5, 0.1)],
    "elastic_transform": [
        (SIDE * 0, SIDE * 0, SIDE * 0.08),
        (SIDE * 0.05, SIDE * 0.2, SIDE * 0.07),
        (SIDE * 0.08, SIDE * 0.06, SIDE * 0.06),
        (SIDE * 0.1, SIDE * 0.04, SIDE * 0.05),
        (SIDE * 0.1, SIDE * 0.03, SIDE * 0.03),
    ],
    "fog": [(0.2, 3), (0.5, 3), (0.75, 2.5), (1, 2), (1.5, 1.75)],
    "frost": [(1, 0.2), (1, 0.3), (0.9, 0.4), (0.85, 0.4), (0.75, 0.45)],
    "gaussian_blur": [0.4, 0.6, 0.7, 0.8, 1],
    "gaussian_noise": [0.04, 0.06, 0.08, 0.09, 0.1],
    "glass_blur": [(0.05, 1, 1), (0.25, 1, 1), (0.4, 1, 1), (0.25, 1, 2), (0.4, 1, 2)],
    "impulse_noise": [0.01, 0.02, 0.03, 0.05, 0.07],
    "jpeg_compression": [80, 65, 58, 50, 40],
    "motion_blur": [(6, 1), (6, 1.5), (6, 2), (8, 2), (9, 2.5)],
    "pixelate": [0.95, 0.9, 0.85, 0.75, 0.65],
    "saturate": [(0.3, 0), (0.1, 0), (1.5, 0), (2, 0.1), (2.5, 0.2)],
    "shot_noise": [500, 250, 100, 75, 50],
    "snow": [
        (0.1, 0.2, 1, 0.6, 8, 3, 0.95),
        (0.1, 0.2, 1, 0.5, 10, 4, 0.9),
        (0.15, 0.3, 1.75, 0.55, 10, 4, 0.9),
        (0.25, 0.3, 2.25, 0.6, 12, 6, 0.85),
        (0.3, 0.3, 1.25, 0.65, 14, 12, 0.8),
    ],
    "spatter": [
        (0.62, 0.1, 0.7, 0.7, 0.5, 0),
        (0.65, 0.1, 0.8, 0.7, 0.5, 0),
        (0.65, 0.3, 1, 0.69, 0.5, 0),
        (0.65, 0.1, 0.7, 0.69, 0.6, 1),
        (0.65, 0.1, 0.5, 0.68, 0.6, 1),
    ],
    "speckle_noise": [0.06, 0.1, 0.12, 0.16, 0.2],
    "zoom_blur": [1.06, 1.11, 1.16, 1.21, 1.26],
}
ZOOMS = {1.06: 7, 1.11: 12, 1.16: 16, 1.21: 21, 1.26: 26}


def corrupted(image, name, severity, rng, textures=None):
    """The corrupted bytes, h×w×c, of bytes; `rng` is the image's own generator."""
    given = OFFICIAL[name][severity - 1]
    values = given if isinstance(given, tuple) else (given,)
    more = (textures,) if name == "frost" else ()
    changed = globals()[name](image / 255, rng, *values, *more)
    return np.floor(np.clip(changed, 0, 1) * 255 + 1e-6).astype(np.uint8)


def chw(rng_call, x):
    """A draw of channels×rows×columns, as rows×columns×channels."""
    return rng_call((x.shape[2], *x.shape[:2])).transpose(1, 2, 0)


# Places outside of an image.


def clamp(i, n):
    return min(max(i, 0), n - 1)


def reflect(i, n):
    """… b a | a b c | c b …"""
    while not 0 <= i < n:
        i = -1 - i if i < 0 else 2 * n - 1 - i
    return i


def mirror(i, n):
    """… c b | a b c | b a …"""
    while not 0 <= i < n:
        i = -i if i < 0 else 2 * n - 2 - i
    return i


def filtered(x, kernel, border):
    """Σ kernel[a, b] · x[h + a, w + b], counted from the kernel's middle."""
    n, (ka, kb) = len(x), kernel.shape
    out = np.zeros(x.shape)
    for h in range(n):
        for w in range(n):
            for a in range(ka):
                for b in range(kb):
                    if kernel[a, b]:
                        row, column = border(h + a - ka // 2, n), border(w + b - kb // 2, n)
                        out[h, w] += kernel[a, b] * x[row, column]
    return out


def bell(sigma, reach):
    raw = [exp(-(k**2) / (2 * sigma**2)) for k in range(-reach, reach + 1)]
    return np.array(raw) / sum(raw)


def gaussian(x, sigma, truncate=4.0, border=clamp):
    reach = int(truncate * sigma + 0.5)
    if reach == 0:
        return x
    line = bell(sigma, reach)
    return filtered(filtered(x, line[:, None], border), line[None], border)


def bilinear(x, row, column, border):
    n, top, left = len(x), floor(row), floor(column)
    value = 0
    for r in (top, top + 1):
        for c in (left, left + 1):
            near = (1 - abs(row - r)) * (1 - abs(column - c))
            value = value + near * x[border(r, n), border(c, n)]
    return value


# The corruptions.


def gaussian_noise(x, rng, std):
    return x + chw(rng.standard_normal, x) * std


def shot_noise(x, rng, rate):
    return rng.poisson(x.transpose(2, 0, 1) * rate).transpose(1, 2, 0) / rate


def impulse_noise(x, rng, amount):
    hit, side = (chw(lambda s: rng.uniform(0, 1, s), x) for _ in range(2))
    out = x.copy()
    for place in np.ndindex(x.shape):
        if hit[place] <= amount:
            out[place] = 1 if side[place] <= 0.5 else 0
    return out


def speckle_noise(x, rng, std):
    return x * (1 + chw(rng.standard_normal, x) * std)


def gaussian_blur(x, rng, sigma):
    return gaussian(x, sigma)


def defocus_blur(x, rng, radius, sigma):
    places = range(-8, 9)
    disk = np.array([[float(a * a + b * b <= radius**2) for b in places] for a in places])
    line = bell(sigma, 1)
    kernel = filtered(disk / disk.sum(), np.outer(line, line), mirror)
    return filtered(x, kernel, mirror)


def glass_blur(x, rng, sigma, delta, iterations):
    x = np.floor(gaussian(x, sigma) * 255 + 1e-6) / 255
    inner = range(len(x) - delta, delta, -1)
    for _ in range(iterations):
        shifts = rng.integers(-delta, delta, (len(inner), len(inner), 2))
        for i, h in enumerate(inner):
            for j, w in enumerate(inner):
                dx, dy = shifts[i, j]
                # Both sides are views of one array: what is written first is read again.
                x[h, w], x[h + dy, w + dx] = x[h + dy, w + dx], x[h, w]
    return gaussian(x, sigma)


def tailed(x, radius, sigma, degrees):
    count, n = 2 * ceil(radius) + 1, len(x)
    weights = [exp(-(i**2) / (2 * sigma**2)) for i in range(count)]
    point_x, point_y = count * sin(radians(degrees)), count * cos(radians(degrees))
    length = hypot(point_x, point_y)
    out = np.zeros(x.shape)
    for h in range(n):
        for w in range(n):
            for i, weight in enumerate(weights):
                right, down = ceil(i * point_y / length - 0.5), ceil(i * point_x / length - 0.5)
                out[h, w] += weight * x[clamp(h + down, n), clamp(w + right, n)]
    return np.rint(out / sum(weights) * 255) / 255


def motion_blur(x, rng, radius, sigma):
    return tailed(x, radius, sigma, rng.uniform(-45, 45))


def zoomed(x, factor):
    n = len(x)
    inner = ceil(n / factor)
    start = (n - inner) // 2
    size = round(inner * factor)
    middle = x[start : start + inner, start : start + inner]
    ratio = (inner - 1) / (size - 1)
    large = np.array(
        [[bilinear(middle, r * ratio, c * ratio, clamp) for c in range(size)] for r in range(size)]
    )
    trim = (size - n) // 2
    return large[trim : trim + n, trim : trim + n]


def zoom_blur(x, rng, end):
    total = x.copy()
    factors = np.arange(1, end, 0.01)
    assert len(factors) == ZOOMS[end]
    for factor in factors:
        total += zoomed(x, float(factor))
    return total / (len(factors) + 1)


def by_pixel(x, change):
    return np.array([[change(*pixel) for pixel in row] for row in x])


def brightness(x, rng, added):
    def change(*rgb):
        h, s, v = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb(h, s, min(v + added, 1))

    return by_pixel(x, change)


def saturate(x, rng, factor, added):
    def change(*rgb):
        h, s, v = colorsys.rgb_to_hsv(*rgb)
        return colorsys.hsv_to_rgb(h, min(max(s * factor + added, 0), 1), v)

    return by_pixel(x, change)


def contrast(x, rng, factor):
    out = np.empty(x.shape)
    for c in range(x.shape[2]):
        mean = sum(x[:, :, c].ravel()) / x[:, :, c].size
        out[:, :, c] = mean + factor * (x[:, :, c] - mean)
    return out


def jpeg_compression(x, rng, quality):
    file = BytesIO()
    size = x.shape[1::-1]
    Image.frombytes("RGB", size, np.rint(x * 255).astype(np.uint8).tobytes()).save(
        file, format="jpeg", quality=quality
    )
    return np.array(Image.open(BytesIO(file.getvalue())).convert("RGB")) / 255


def boxed(x, size):
    """Means over the pixels whose centres lie in each box, columns first, rounded to bytes."""
    for axis in (1, 0):
        n = x.shape[axis]
        ratio = n / size
        parts = []
        for k in range(size):
            reach = max(ratio, 1) / 2
            low, high = (k + 0.5) * ratio - reach, (k + 0.5) * ratio + reach
            inside = [i for i in range(n) if low < i + 0.5 <= high] if ratio > 1 else []
            inside = inside or [int((k + 0.5) * ratio)]
            parts.append(np.floor(np.take(x, inside, axis).mean(axis) * 255 + 0.500001) / 255)
        x = np.stack(parts, axis)
    return x


def pixelate(x, rng, factor):
    return boxed(boxed(x, int(len(x) * factor)), len(x))


def elastic_transform(x, rng, alpha, sigma, jitter):
    n = len(x)
    centre, arm = n // 2, n // 3
    before = np.array(
        [
            (centre + arm, centre + arm),
            (centre + arm, centre - arm),
            (centre - arm, centre - arm),
        ],
        float,
    )
    after = before + rng.uniform(-jitter, jitter, (3, 2))
    # Forward: after = M (before, 1); a pixel of the result comes from the inverse of M.
    forward = np.linalg.solve(np.c_[before, np.ones(3)], after).T
    inverse = np.linalg.inv(forward[:, :2])
    turned = np.empty(x.shape)
    for h in range(n):
        for w in range(n):
            column, row = inverse @ (np.array([w, h]) - forward[:, 2])
            turned[h, w] = bilinear(x, row, column, mirror)
    dx, dy = (gaussian(rng.uniform(-1, 1, (n, n)), sigma, 3.0, reflect) * alpha for _ in range(2))
    return np.array(
        [
            [bilinear(turned, h + dy[h, w], w + dx[h, w], reflect) for w in range(n)]
            for h in range(n)
        ]
    )


def snow(x, rng, mean, std, zoom, threshold, radius, sigma, mix):
    n = len(x)
    layer = zoomed(mean + std * rng.standard_normal((n, n)), zoom)
    layer[layer < threshold] = 0
    layer = np.floor(np.clip(layer, 0, 1) * 255 + 1e-6) / 255
    layer = tailed(layer, radius, sigma, rng.uniform(-135, -45))
    out = np.empty(x.shape)
    for h in range(n):
        for w in range(n):
            red, green, blue = x[h, w]
            grey = 0.299 * red + 0.587 * green + 0.114 * blue
            white = np.maximum(x[h, w], 1.5 * grey + 0.5)
            turned = layer[n - 1 - h, n - 1 - w]
            out[h, w] = mix * x[h, w] + (1 - mix) * white + layer[h, w] + turned
    return out


def fog(x, rng, amount, decay):
    n, clouds, wibble, step = len(x), {(0, 0): 0.0}, 100.0, len(x)
    while step >= 2:
        half, places = step // 2, range(0, n, step)
        drawn = lambda: wibble * rng.uniform(-wibble, wibble, (n // step, n // step))  # noqa: E731, B023
        noise = drawn()
        for r in places:
            for c in places:
                corners = [clouds[(r + a) % n, (c + b) % n] for a in (0, step) for b in (0, step)]
                clouds[r + half, c + half] = sum(corners) / 4 + noise[r // step, c // step]
        for shift_r, shift_c in ((0, half), (half, 0)):
            noise = drawn()
            found = {}
            for r in places:
                for c in places:
                    y, z = r + shift_r, c + shift_c
                    around = [(y - half, z), (y + half, z), (y, z - half), (y, z + half)]
                    total = sum(clouds[a % n, b % n] for a, b in around)
                    found[y, z] = total / 4 + noise[r // step, c // step]
            clouds |= found
        step, wibble = half, wibble / decay
    plasma = np.array([[clouds[r, c] for c in range(n)] for r in range(n)])
    plasma = (plasma - plasma.min()) / (plasma.max() - plasma.min())
    return (x + amount * plasma[:, :, None]) * x.max() / (x.max() + amount)


def frost(x, rng, image_weight, frost_weight, textures):
    """`textures`: the photographs, h×w×3 bytes; every fifth pixel is what scaling by 0.2 gives."""
    texture = textures[rng.integers(0, 5, ())][2::5, 2::5]
    n = len(x)
    part = rng.uniform(0, 1, (2,))
    top, left = (int(p * (size - n)) for p, size in zip(part, texture.shape, strict=False))
    return image_weight * x + frost_weight * texture[top : top + n, left : left + n] / 255


def spatter(x, rng, mean, std, sigma, threshold, strength, mud):
    n = len(x)
    liquid = gaussian(mean + std * rng.standard_normal((n, n)), sigma)
    liquid[liquid < threshold] = 0
    if mud:
        cover = gaussian((liquid > threshold).astype(float), strength)
        cover[cover < 0.8] = 0
        return x * (1 - cover[:, :, None]) + np.array([63, 42, 20]) / 255 * cover[:, :, None]
    liquid = (liquid * 255 + 1e-6).astype(int)
    box = np.full((3, 3), 1 / 9)
    near = filtered(np.minimum(to_edges(canny(liquid)), 20), box, mirror)
    even = equalised(np.floor(near + 1e-6).astype(int))
    lit = filtered(even, np.array([[-2, -1, 0], [-1, 1, 1], [0, 1, 2]]), mirror).clip(0, 255)
    wet = liquid * np.rint(filtered(lit, box, mirror))
    share = strength * wet / wet.max()
    return x + share[:, :, None] * np.array([175, 238, 238]) / 255


def canny(image):
    n = len(image)
    over = np.array([[-1, 0, 1], [-2, 0, 2], [-1, 0, 1]])
    dx, dy = filtered(image, over, clamp), filtered(image, over.T, clamp)
    size = np.abs(dx) + np.abs(dy)

    def at(h, w):
        return size[h, w] if 0 <= h < n and 0 <= w < n else 0

    weak = set()
    for h in range(n):
        for w in range(n):
            ax, ay, m = abs(dx[h, w]), abs(dy[h, w]), size[h, w]
            if ay < ax * np.tan(np.pi / 8):
                top = m > at(h, w - 1) and m >= at(h, w + 1)
            elif ay > ax * np.tan(3 * np.pi / 8):
                top = m > at(h - 1, w) and m >= at(h + 1, w)
            else:
                s = -1 if (dx[h, w] < 0) != (dy[h, w] < 0) else 1
                top = m > at(h - 1, w - s) and m > at(h + 1, w + s)
            if top and m > 50:
                weak.add((h, w))
    strong = [place for place in weak if size[place] > 150]
    found = set(strong)
    while strong:
        h, w = strong.pop()
        for near in ((h + a, w + b) for a in (-1, 0, 1) for b in (-1, 0, 1)):
            if near in weak and near not in found:
                found.add(near)
                strong.append(near)
    return found


def to_edges(edges):
    """Shortest ways by moves of length 1, 1.4 (diagonal) and 2.1969 (a knight's), by Dijkstra."""
    moves = [(a, b) for a in range(-2, 3) for b in range(-2, 3) if abs(a) + abs(b) in (1, 2, 3)]
    length = {(0, 1): 1.0, (1, 1): 1.4, (1, 2): 2.1969}
    far = np.full((SIDE, SIDE), 1e6)
    queue = [(0.0, place) for place in edges]
    for _, place in queue:
        far[place] = 0
    heapq.heapify(queue)
    while queue:
        done, (h, w) = heapq.heappop(queue)
        if done > far[h, w]:
            continue
        for a, b in moves:
            cost = length.get(tuple(sorted((abs(a), abs(b)))))
            inside = 0 <= h + a < SIDE and 0 <= w + b < SIDE
            if cost is not None and inside and done + cost < far[h + a, w + b]:
                far[h + a, w + b] = done + cost
                heapq.heappush(queue, (done + cost, (h + a, w + b)))
    return far


def equalised(image):
    values, counts = np.unique(image, return_counts=True)
    if len(values) == 1:
        return image
    table, total = {values[0]: 0}, 0
    for value, count in zip(values[1:], counts[1:], strict=True):
        total += count
        table[value] = round(total * 255 / (image.size - counts[0]))
    return np.vectorize(table.get)(image)
