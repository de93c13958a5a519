"""config/kubernetes: the manifests by Kubernetes' own schemas, those of custom resources by what is written down here of theirs,
and what they say of Quire by Quire. No cluster is asked."""

import re
import subprocess

import jsonschema
import kubernetes_validate
import pytest
import yaml

from quire_server import BINARY, ROOT

FOLDER = ROOT / "config/kubernetes"
VERSIONS = ["1.31", "1.37"]
UNIT = ROOT / "config/quire.service"
NAME = {"type": "string", "pattern": "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"}
PORT = {"type": "integer", "minimum": 1, "maximum": 65535}
LABELS = {"type": "object", "minProperties": 1, "additionalProperties": {"type": "string"}}
POD_TEMPLATE = {"type": "object", "required": ["spec"], "additionalProperties": False,
                "properties": {"metadata": {"type": "object"}, "spec": {"type": "object"}}}  # see pod_templates


def strict(required, **properties):
    return {"type": "object", "required": required, "additionalProperties": False, "properties": properties}


# The members of each `spec` that are used here, by the definitions of the custom resources: their schemas are on no
# package index, so these are no whole ones.
CUSTOM = {
    ("inference.networking.k8s.io/v1", "InferencePool"): strict(
        ["selector", "targetPorts", "endpointPickerRef"],
        selector=strict(["matchLabels"], matchLabels=LABELS),
        targetPorts={"type": "array", "minItems": 1, "maxItems": 8, "items": strict(["number"], number=PORT)},
        endpointPickerRef=strict(["name"], name=NAME, port=strict(["number"], number=PORT),
                                 failureMode={"enum": ["FailOpen", "FailClose"]})),
    ("gateway.networking.k8s.io/v1", "HTTPRoute"): strict(
        ["parentRefs", "rules"],
        parentRefs={"type": "array", "items": strict(["name"], name=NAME)},
        rules={"type": "array", "items": strict(
            ["backendRefs"],
            matches={"type": "array", "items": strict(["path"], path=strict(
                ["type", "value"], type={"enum": ["Exact", "PathPrefix", "RegularExpression"]}, value={"type": "string", "pattern": "^/"}))},
            backendRefs={"type": "array", "items": strict(["name"], group={"type": "string"}, kind={"type": "string"}, name=NAME)},
            timeouts=strict([], request={"type": "string", "pattern": "^([0-9]{1,5}(h|m|s|ms)){1,4}$"}))}),
    ("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet"): strict(
        ["leaderWorkerTemplate"],
        replicas={"type": "integer", "minimum": 0},
        leaderWorkerTemplate=strict(
            ["workerTemplate"], size={"type": "integer", "minimum": 1}, leaderTemplate=POD_TEMPLATE, workerTemplate=POD_TEMPLATE,
            restartPolicy={"enum": ["Default", "RecreateGroupOnPodRestart", "RecreateGroupAfterStart", "None"]})),
    ("monitoring.coreos.com/v1", "PodMonitor"): strict(
        ["selector", "podMetricsEndpoints"],
        selector=strict(["matchLabels"], matchLabels=LABELS),
        podMetricsEndpoints={"type": "array", "minItems": 1, "items": strict(
            ["port"], port={"type": "string"}, path={"type": "string"}, interval={"type": "string", "pattern": "^[0-9]+(ms|s|m|h)$"},
            authorization=strict(["credentials"], credentials=strict(["name", "key"], name=NAME, key={"type": "string"})))}),
}


def documents():
    return [(path.name, document) for path in sorted(FOLDER.glob("*.yaml")) for document in yaml.safe_load_all(path.read_text())]


ALL = documents()
by_kind = pytest.mark.parametrize("document", [document for _, document in ALL], ids=[f"{name}-{d['kind']}" for name, d in ALL])


def find(kind):
    return [document for _, document in ALL if document["kind"] == kind]


def pod_templates():
    yield find("Deployment")[0]["spec"]["template"]
    workers = find("LeaderWorkerSet")[0]["spec"]["leaderWorkerTemplate"]
    yield from (workers["leaderTemplate"], workers["workerTemplate"])


def quire_config():
    return yaml.safe_load(find("ConfigMap")[0]["data"]["quire.yaml"])


def validate(document):
    """Raises what a schema has to say."""
    custom = CUSTOM.get((document["apiVersion"], document["kind"]))
    if custom:
        jsonschema.validate(document, strict(["apiVersion", "kind", "metadata", "spec"], apiVersion={}, kind={}, spec=custom,
                                             metadata=strict(["name"], name=NAME, labels=LABELS)))
    else:
        for version in VERSIONS:
            kubernetes_validate.validate(document, version, strict=True)


@by_kind
def test_schema(document):
    validate(document)


@by_kind
def test_the_schema_refuses_what_is_wrong(document):
    part = next(part for part in ("spec", "data") if part in document)
    wrong = {**document, part: {**document[part], "replicaz": 3}}
    with pytest.raises((jsonschema.ValidationError, kubernetes_validate.ValidationError)):
        validate(wrong)


def test_schemas_of_pods_within_custom_resources():
    for template in pod_templates():
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", **template["metadata"]}, "spec": template["spec"]}
        for version in VERSIONS:
            kubernetes_validate.validate(pod, version, strict=True)


def test_options_are_quires():
    text = subprocess.run([BINARY, "serve", "--help"], capture_output=True, text=True, check=True).stdout
    options = set(re.findall(r"--([a-z0-9-]+)", text))
    assert set(quire_config()) <= options
    words = [word for template in pod_templates() for container in template["spec"]["containers"] for word in container.get("args", [])]
    used = re.findall(r"--(config|api-key-file|tensor-parallel-size)\b", " ".join(words))
    assert set(used) <= options and used.count("config") == 2


def test_a_pod_ends_when_its_requests_have():
    config = quire_config()
    longest = config["drain-delay"] + config["shutdown-timeout"] + 12
    assert config["drain-delay"] > 0
    for template in pod_templates():
        assert template["spec"]["terminationGracePeriodSeconds"] >= longest


def test_pods_are_as_closed_as_the_unit():
    """What of quire.service has a counterpart."""
    unit = UNIT.read_text()
    for line in ("DynamicUser=yes", "NoNewPrivileges=yes", "CapabilityBoundingSet=\n", "ProtectSystem=strict", "SystemCallFilter=~@privileged"):
        assert line in unit, line
    for template in pod_templates():
        spec = template["spec"]
        assert spec["automountServiceAccountToken"] is False and spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            context = container["securityContext"]
            assert context["allowPrivilegeEscalation"] is False and context["capabilities"] == {"drop": ["ALL"]}
            assert context["readOnlyRootFilesystem"] is True and not context["privileged"]
            assert container["resources"]["requests"] == container["resources"]["limits"]


def test_labels_and_names_meet():
    """What selects pods selects those of the Deployment, ports are theirs, and the autoscaler's target is it."""
    deployment = find("Deployment")[0]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    ports = {port["name"]: port["containerPort"] for port in deployment["spec"]["template"]["spec"]["containers"][0]["ports"]}
    selectors = [deployment["spec"]["selector"]["matchLabels"]]
    selectors += [d["spec"]["selector"] for name, d in ALL if d["kind"] == "Service" and name == "quire.yaml"]
    selectors += [d["spec"]["selector"]["matchLabels"] for kind in ("PodDisruptionBudget", "InferencePool", "PodMonitor") for d in find(kind)]
    selectors += [d["spec"]["podSelector"]["matchLabels"] for d in find("NetworkPolicy")]
    assert len(selectors) == 7 and all(selector.items() <= labels.items() for selector in selectors)
    assert quire_config()["port"] == ports["http"] == find("InferencePool")[0]["spec"]["targetPorts"][0]["number"]
    assert find("PodMonitor")[0]["spec"]["podMetricsEndpoints"][0]["port"] in ports
    scaled = find("HorizontalPodAutoscaler")[0]["spec"]
    assert scaled["scaleTargetRef"]["name"] == deployment["metadata"]["name"]
    metric = scaled["metrics"][0]["pods"]["metric"]["name"]
    assert metric == (quire_config()["metrics-prefix"] + "num_requests_waiting").replace(":", "_")
    assert f"as: {metric}" in (FOLDER / "autoscale.yaml").read_text()
