"""A line chart as an SVG file, in the manner of plot_bars.py: readable on light and dark pages."""

import math

from plot_bars import COLOURS, INK, text

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 360, 64, 20, 64, 52


def ticks(most, count=5):
    """Round numbers from 0 to at least `most`, about `count` steps."""
    step = 10.0 ** math.floor(math.log10(most / count))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step * count >= most)
    return [step * place for place in range(math.ceil(most / step - 1e-9) + 1)]


def write_line_chart(path, title, x_label, y_label, lines, log_x=False):
    """lines: {series: [(x, y)]}, drawn in their order, x rising. The y axis begins at 0; with log_x, x is drawn by its
    logarithm, and every x of a line is a tick."""
    xs = sorted({x for points in lines.values() for x, _ in points})
    y_ticks = ticks(max(y for points in lines.values() for _, y in points))
    scale = math.log2 if log_x else float
    first, last = scale(xs[0]), scale(xs[-1])

    def place(x, y):
        across = (scale(x) - first) / ((last - first) or 1)
        return (LEFT + across * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - y / y_ticks[-1] * (HEIGHT - TOP - BOTTOM))

    parts = [text(0, 18, title, 15)]
    for number, (name, points) in enumerate(lines.items()):
        x = LEFT + 160 * number
        parts.append(f'<rect x="{x}" y="32" width="12" height="12" fill="{COLOURS[number]}"/>' + text(x + 18, 43, name))
    for tick in y_ticks:
        _, y = place(xs[0], tick)
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="{INK}" '
                     'stroke-opacity="0.3"/>' + text(LEFT - 8, y + 4, f"{tick:g}", 12, "end"))
    for tick in xs:
        x, y = place(tick, 0)
        parts.append(text(x, y + 18, f"{tick:g}", 12, "middle"))
    parts.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 12, x_label, 13, "middle"))
    parts.append(text(0, TOP - 8, y_label, 12))
    for number, points in enumerate(lines.values()):
        path_points = " ".join("{:.1f},{:.1f}".format(*place(x, y)) for x, y in points)
        parts.append(f'<polyline points="{path_points}" fill="none" stroke="{COLOURS[number]}" stroke-width="2"/>')
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
                   f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n' + "\n".join(parts) + "\n</svg>\n")
