"""Histograms of a page of /metrics, and what was observed between two pages."""

import re

BUCKET = re.compile(r"^[^#\s{]*?:?(\w+)_bucket\{([^}]*)\} (\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')


def read_histograms(page):
    """(name without prefix, value of the label `part` or None) -> [(upper bound, how many are not above it)]."""
    found = {}
    for name, text, value in BUCKET.findall(page):
        labels = dict(LABEL.findall(text))
        found.setdefault((name, labels.get("part")), []).append((float(labels["le"]), float(value)))
    return found


def median_between(before, after):
    """As Prometheus' histogram_quantile has it: within its bucket, observations are taken to be spread evenly. None: nothing
    was observed."""
    seen = [(bound, count - earlier) for (bound, count), (_, earlier) in zip(after, before)]
    if not seen or seen[-1][1] <= 0:
        return None
    wanted, low, below = seen[-1][1] / 2, 0.0, 0.0
    for bound, count in seen:
        if count >= wanted:
            return low if bound == float("inf") else low + (bound - low) * (wanted - below) / (count - below)
        low, below = bound, count
    return None


def medians_between(before, after, name):
    """Part -> median of one name's histograms between two pages."""
    first, last = read_histograms(before), read_histograms(after)
    return {part: median_between(first[found, part], buckets) for (found, part), buckets in last.items()
            if found == name and (found, part) in first}
