"""--otlp-traces-endpoint: a span of each API call for a collector, here one made of http.server, as its client's
traceparent says."""

import http.server
import json
import ssl
import threading
from pathlib import Path

import httpx
import pytest
from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

from quire_server import NAME, free_port
from raw_http import open_stream, read_until, wait_until

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
LATENCIES = {"time_in_queue", "time_to_first_token", "e2e", "time_in_model_prefill", "time_in_model_decode",
             "time_in_model_inference"}


TLS = Path(__file__).resolve().parents[1] / "data/tls"


class Collector:
    """Keeps what is POSTed; answers with `status`, or not before `gate` is set. certificate: for HTTPS."""

    def __init__(self, certificate=None):
        self.requests, self.status, self.gate = [], 200, threading.Event()
        self.gate.set()
        self.connections = set()
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                collector.connections.add(self.client_address)
                body = self.rfile.read(int(self.headers["Content-Length"]))
                collector.requests.append((self.path, self.headers["Content-Type"], body))
                collector.gate.wait()
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *arguments):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
            self.url = f"https://localhost:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def spans(self):
        return [span for _, _, body in self.requests for resource in json.loads(body)["resourceSpans"]
                for scope in resource["scopeSpans"] for span in scope["spans"]]

    def wait_for(self, count):
        wait_until(lambda: len(self.spans()) >= count)
        assert len(self.spans()) == count
        return self.spans()

    def close(self):
        self.gate.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def collector():
    made = Collector()
    yield made
    made.close()


def complete(server, traceparent=None, **fields):
    headers = {"traceparent": traceparent} if traceparent else {}
    body = {"model": NAME, "prompt": "Once upon", "max_tokens": 4, "temperature": 0.5, "top_p": 0.25, **fields}
    return server.post("/v1/completions", body, headers=headers)


def attributes(span):
    readers = {"stringValue": str, "intValue": int, "doubleValue": float}
    return {item["key"]: readers[kind](value) for item in span["attributes"] for kind, value in item["value"].items()}


def test_a_span(start_server, collector):
    server = start_server("--otlp-traces-endpoint", collector.url, environment={"OTEL_SERVICE_NAME": "mine"})
    reply = complete(server, f"00-{TRACE}-{SPAN}-01", n=2).json()
    span, = collector.wait_for(1)
    path, content_type, body = collector.requests[0]
    assert (path, content_type) == ("/v1/traces", "application/json")
    resource = json.loads(body)["resourceSpans"][0]["resource"]
    assert attributes(resource)["service.name"] == "mine"
    assert (span["traceId"], span["parentSpanId"], span["name"], span["kind"]) == (TRACE, SPAN, "llm_request", 2)
    assert len(span["spanId"]) == 16 and span["spanId"] != SPAN and "status" not in span
    found = attributes(span)
    latencies = {name: found.pop("gen_ai.latency." + name) for name in LATENCIES}
    assert found == {
        "gen_ai.request.id": reply["id"], "gen_ai.response.model": NAME, "gen_ai.request.temperature": 0.5,
        "gen_ai.request.top_p": 0.25, "gen_ai.request.max_tokens": 4, "gen_ai.request.n": 2,
        "gen_ai.usage.num_sequences": 2, "gen_ai.usage.prompt_tokens": reply["usage"]["prompt_tokens"],
        "gen_ai.usage.completion_tokens": reply["usage"]["completion_tokens"], "http.request.method": "POST",
        "http.route": "/v1/completions", "http.response.status_code": 200}
    seconds = (int(span["endTimeUnixNano"]) - int(span["startTimeUnixNano"])) * 1e-9
    assert latencies["e2e"] == pytest.approx(seconds, abs=1e-6)
    assert latencies["time_in_model_inference"] == pytest.approx(
        latencies["time_in_model_prefill"] + latencies["time_in_model_decode"], abs=1e-6)
    assert 0 < latencies["time_to_first_token"] <= latencies["e2e"]


def test_the_reference_reads_them(start_server, collector):
    server = start_server("--otlp-traces-endpoint", collector.url)
    complete(server, f"00-{TRACE}-{SPAN}-01")
    complete(server, prompt=1)
    collector.wait_for(2)
    for _, _, body in collector.requests:  # unknown names are an error; ids are base64 in protobuf's own JSON
        json_format.Parse(body, trace_service_pb2.ExportTraceServiceRequest())


def test_who_is_sampled(start_server, collector):
    server = start_server("--otlp-traces-endpoint", collector.url + "/v1/traces")
    complete(server, f"00-{TRACE}-{SPAN}-00")  # its caller does not record
    complete(server, "no traceparent at all")
    complete(server)
    httpx.get(server.url + "/health", headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})  # no API call
    complete(server, prompt=1)
    spans = collector.wait_for(3)
    assert not any("parentSpanId" in span for span in spans)
    assert len({span["traceId"] for span in spans} - {TRACE}) == 3
    refused = attributes(spans[2])
    assert refused["http.response.status_code"] == 400 and refused["error.type"] == "invalid_type"
    assert not any(key.startswith("gen_ai") for key in refused)


def test_access_log_names_the_trace(start_server, tmp_path):
    path = tmp_path / "access.log"
    server = start_server("--access-log", path)
    complete(server, f"00-{TRACE}-{SPAN}-00")
    complete(server)
    wait_until(lambda: len([line for line in path.read_text().splitlines() if "/v1/completions" in line]) == 2)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [line.get("trace_id") for line in lines if line.get("route") == "/v1/completions"] == [TRACE, None]


@pytest.mark.parametrize("trouble", ["refuses", "nobody", "silent"])
def test_a_collector_in_trouble_harms_nobody(start_server, collector, trouble):
    """Calls are answered; spans are lost and counted where the collector says or shows that it does not take them."""
    url = collector.url
    if trouble == "refuses":
        collector.status = 503
    elif trouble == "nobody":
        url = f"http://127.0.0.1:{free_port()}"
    else:
        collector.gate.clear()
    server = start_server("--otlp-traces-endpoint", url)
    for _ in range(3):
        assert complete(server).status_code == 200
    if trouble == "silent":
        wait_until(lambda: collector.requests)
        assert complete(server).status_code == 200
    else:
        server.wait_for(lambda metrics: metrics["trace_spans_lost_total"] == 3)
        assert server.read_log().count("otlp-traces-endpoint") == 1
    assert server.terminate() == 0


def test_what_waits_at_the_end_is_sent(start_server, collector):
    server = start_server("--otlp-traces-endpoint", collector.url, "--shutdown-timeout", 0)
    with open_stream(server, max_tokens=2000, ignore_eos=True) as sock:
        read_until(sock, b"data: ")
        assert server.terminate() == 0
    assert len(collector.spans()) == 1


@pytest.mark.parametrize("authority, certificate, is_good", [
    ("authority.pem", "server.pem", True), (None, "server.pem", False), ("authority.pem", "foreign.pem", False)])
def test_https(start_server, authority, certificate, is_good):
    """A certificate must be of an authority that is known: here one of the environment's."""
    collector = Collector(TLS / certificate)
    environment = {"CURL_CA_BUNDLE": str(TLS / authority) if authority else ""}
    server = start_server("--otlp-traces-endpoint", collector.url, environment=environment)
    try:
        for num_calls in (1, 2):
            assert complete(server, prompt=1).status_code == 400
            if is_good:
                collector.wait_for(num_calls)
            else:
                server.wait_for(lambda metrics: metrics["trace_spans_lost_total"] == num_calls)
        assert len(collector.connections) == int(is_good)  # which stays open
        assert ("its certificate is refused" in server.read_log()) != is_good
    finally:
        collector.close()


@pytest.mark.parametrize("url", ["ftp://localhost/v1/traces", "localhost:4317", "http://:1", "https://user@localhost"])
def test_bad_endpoint(start_server, url):
    with pytest.raises(RuntimeError, match="exit status 78: .*otlp-traces-endpoint .*http://HOST"):
        start_server("--otlp-traces-endpoint", url)
