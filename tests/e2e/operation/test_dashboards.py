"""config/grafana and config/prometheus name nothing that /metrics does not have. PromQL itself is promtool's to check
(tests/service/check_rules.py)."""

import json
import re

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from quire_server import NAME, ROOT, QuireServer

DASHBOARD = ROOT / "config/grafana/quire.json"
FILES = [DASHBOARD, ROOT / "config/prometheus/quire.rules.yml", ROOT / "config/prometheus/quire.rules.test.yml"]
METRIC = re.compile(r"quire:\w+|process_\w+")
LABELS_OF_PROMETHEUS = {"instance", "job"}


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """Name of a sample -> its labels, of a server that has keys and has served and refused something."""
    server = QuireServer(tmp_path_factory.mktemp("dashboards") / "log", "--api-key", "k")
    key = {"Authorization": "Bearer k"}
    try:
        for prompt in ("a", 1):
            server.post("/v1/completions", {"model": NAME, "prompt": prompt, "max_tokens": 2}, headers=key)
        text = httpx.get(server.url + "/metrics", headers=key).text
    finally:
        server.kill()
    found = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_metrics_exist(samples, path):
    named = set(METRIC.findall(path.read_text()))
    assert len(named) > 10
    assert named - samples.keys() == set()


def queries():
    panels = json.loads(DASHBOARD.read_text())["panels"]
    return [target["expr"] for panel in panels for target in panel.get("targets", [])]


def test_labels_exist(samples):
    """What a selector compares and an aggregation keeps."""
    checked = 0
    for query in queries():
        labels = set(re.findall(r"(\w+)(?:=~|!~|!=|=)\"", query))
        for group in re.findall(r"\bby \(([^)]*)\)", query):
            labels |= set(re.split(r",\s*", group))
        has = set().union(*(samples[name] for name in METRIC.findall(query)))
        assert labels - LABELS_OF_PROMETHEUS <= has, query
        checked += len(labels)
    assert checked > 50


def test_panels_do_not_overlap():
    board = json.loads(DASHBOARD.read_text())
    cells = [(x, y) for panel in board["panels"] for place in [panel["gridPos"]]
             for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)) and max(x for x, _ in cells) < 24
    ids = [panel["id"] for panel in board["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in board["templating"]["list"]} | {"__rate_interval"}
    assert set(re.findall(r"\$\{?(\w+)", DASHBOARD.read_text())) - {"__all"} <= variables
