"""A grouped bar chart as an SVG file, readable on light and dark pages."""

import html

COLOURS = ("#2f6f4f", "#b07d2b", "#5b6ea8", "#8a5a83")
WIDTH, BAR, GAP, LEFT, TOP = 720, 22, 14, 210, 64
INK = "#808080"


def text(x, y, content, size=13, anchor="start", colour=INK):
    return (f'<text x="{x:.0f}" y="{y:.0f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}">{html.escape(content)}</text>')


def write_bar_chart(path, title, values):
    """values: {(group, series): number}, drawn in their order; the longest bar of a group has the full width, so that
    groups may be of different units."""
    groups = list(dict.fromkeys(group for group, _ in values))
    series = list(dict.fromkeys(name for _, name in values))
    parts, y = [text(0, 18, title, 15)], TOP
    for place, name in enumerate(series):
        parts.append(f'<rect x="{LEFT + 170 * place}" y="32" width="12" height="12" '
                     f'fill="{COLOURS[place]}"/>' + text(LEFT + 170 * place + 18, 43, name))
    for group in groups:
        of_group = [(place, values[group, name]) for place, name in enumerate(series)
                    if (group, name) in values]
        scale = (WIDTH - LEFT - 70) / max(value for _, value in of_group)
        parts.append(text(LEFT - 10, y + len(of_group) * BAR / 2 + 4, group, anchor="end"))
        for place, value in of_group:
            parts.append(f'<rect x="{LEFT}" y="{y}" width="{value * scale:.1f}" '
                         f'height="{BAR - 3}" fill="{COLOURS[place]}"/>'
                         + text(LEFT + value * scale + 6, y + BAR - 8, f"{value:.0f}"))
            y += BAR
        y += GAP
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y}" '
                   f'viewBox="0 0 {WIDTH} {y}" font-family="sans-serif">\n'
                   + "\n".join(parts) + "\n</svg>\n")
