"""The figures of paged_memory_report.py as one SVG file, readable on light and dark pages."""

import html

INK = "#808080"
COLOURS = {"token states": "#2f6f4f", "reservation": "#5b6ea8", "internal": "#b07d2b",
           "external & others": "#c9c9c9"}
PAPER, OURS = "#b07d2b", "#2f6f4f"
WIDTH, HEIGHT = 860, 700
PANEL_WIDTH, PANEL_HEIGHT = 360, 220


def text(x, y, content, size=12, anchor="middle", colour=INK):
    return (f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}" '
            f'fill="{colour}">{html.escape(content)}</text>')


def rectangle(x, y, width, height, colour, hint):
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{max(height, 0):.1f}" '
            f'fill="{colour}"><title>{html.escape(hint)}</title></rect>')


class Panel:
    """One diagram: a title, a vertical axis from 0 to `top`, and marks in its own coordinates."""

    def __init__(self, column, row, title, top, unit=""):
        self.left, self.bottom = 50 + column * 430, 60 + row * 340 + PANEL_HEIGHT
        self.top = top
        self.parts = [text(self.left, self.bottom - PANEL_HEIGHT - 32, title, 14, "start")]
        for quarter in range(5):
            y = self.y(top * quarter / 4)
            self.parts.append(f'<path d="M{self.left} {y:.1f}h{PANEL_WIDTH}" stroke="{INK}" '
                              f'stroke-opacity="0.3"/>')
            self.parts.append(text(self.left - 6, y + 4, f"{top * quarter / 4:g}{unit}", 11, "end"))

    def y(self, value):
        return self.bottom - PANEL_HEIGHT * value / self.top

    def legend(self, entries):
        x = self.left
        for name, colour in entries.items():
            self.parts.append(rectangle(x, self.bottom - PANEL_HEIGHT - 22, 10, 10, colour, name))
            self.parts.append(text(x + 14, self.bottom - PANEL_HEIGHT - 13, name, 11, "start"))
            x += 26 + 6.2 * len(name)

    def bar(self, x, width, pieces, label=""):
        """pieces: (value, colour, hint), from the bottom up; x from the panel's left edge."""
        base = 0
        for value, colour, hint in pieces:
            if value > 0:
                self.parts.append(rectangle(self.left + x, self.y(base + value), width,
                                            self.y(base) - self.y(base + value), colour, hint))
            base += value
        if label:
            self.parts.append(text(self.left + x + width / 2, self.y(base) - 4, label, 11))

    def name(self, x, content, line=0):
        self.parts.append(text(self.left + x, self.bottom + 16 + 14 * line, content, 11))

    def line(self, points, colour, hint):
        path = " ".join(f"{self.left + x:.1f},{self.y(value):.1f}" for x, value in points)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" '
                          f'stroke-width="2"/>')
        for x, value in points:
            self.parts.append(f'<circle cx="{self.left + x:.1f}" cy="{self.y(value):.1f}" r="3" '
                              f'fill="{colour}"><title>{html.escape(hint)}: {value:.1f}</title>'
                              f'</circle>')


def paired_bars(panel, sections):
    """sections: {section: {name: (paper, ours)}}, as many names in each."""
    bars = [(name, pair) for section in sections.values() for name, pair in section.items()]
    step = PANEL_WIDTH / len(bars)
    width = min(24, step / 2.6)
    for place, (name, pair) in enumerate(bars):
        middle = step * (place + 0.5)
        for x, value, colour, who in ((middle - width - 1, pair[0], PAPER, "paper"),
                                      (middle + 1, pair[1], OURS, "Quire")):
            panel.bar(x, width, [(value, colour, f"{name}, {who}: {value:.1f}")], f"{value:.0f}")
        panel.name(middle, name)
    for place, section in enumerate(sections):
        panel.name(PANEL_WIDTH * (place + 0.5) / len(sections), section, 1)
    panel.legend({"paper": PAPER, "Quire's simulation": OURS})
    return panel


def memory_panel(memory):
    """memory: {policy: (paper's four shares, ours)} in percent."""
    panel = Panel(0, 0, "KV memory, ShareGPT lengths, 2 requests/s", 100, " %")
    step = PANEL_WIDTH / len(memory)
    for place, (policy, sides) in enumerate(memory.items()):
        middle = step * (place + 0.5)
        for x, who, shares in ((middle - 34, "paper", sides[0]), (middle + 2, "ours", sides[1])):
            pieces = [(share, colour, f"{policy}, {who}: {share:.1f} % {name}")
                      for share, (name, colour) in zip(shares, COLOURS.items())]
            panel.bar(x, 32, pieces)
            panel.parts.append(text(panel.left + x + 16, panel.y(shares[0]) + 13,
                                    f"{shares[0]:.0f}", 11, colour="#ffffff"))
            panel.name(x + 16, who)
        panel.name(middle, policy, 1)
    panel.legend(COLOURS)
    return panel


def sweep_panel(sweep):
    """sweep: {trace: {block size: useful share in percent}}."""
    panel = Panel(1, 1, "Tokens in the blocks given out, by block size", 100, " %")
    sizes = sorted({size for points in sweep.values() for size in points})
    step = PANEL_WIDTH / len(sizes)
    for place, size in enumerate(sizes):
        panel.name(step * (place + 0.5), str(size))
    for (trace, points), colour in zip(sweep.items(), (OURS, PAPER)):
        panel.line([(step * (place + 0.5), points[size]) for place, size in enumerate(sizes)
                    if size in points], colour, trace)
    panel.legend(dict(zip(sweep, (OURS, PAPER))))
    return panel


def write_plot(path, memory, requests, saved, sweep):
    """Each argument as its panel takes it; `requests` and `saved` as paired_bars does."""
    most = max(value for section in requests.values() for pair in section.values()
               for value in pair)
    panels = [memory_panel(memory),
              paired_bars(Panel(1, 0, "Requests served at once", 20 * (int(most / 20) + 1)),
                          requests),
              paired_bars(Panel(0, 1, "KV memory saved by sharing, Alpaca lengths", 80, " %"),
                          saved),
              sweep_panel(sweep)]
    parts = [part for panel in panels for part in panel.parts]
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
                   f'viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif">\n'
                   + "\n".join(parts) + "\n</svg>\n")
