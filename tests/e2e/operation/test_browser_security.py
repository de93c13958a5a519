"""What web pages may do: names that are not the server's (DNS rebinding), requests that a page of another site
makes its visitor's browser send, and --allowed-origins, by hand and in a headless Chromium."""

import gzip
import json
import subprocess
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest

from browser import Browser, Page, find_browser
from quire_server import BINARY, MODEL, NAME, QuireServer, clean_environment
from raw_http import connect, exchange, read_response, read_until, request_bytes, roundtrip, statuses

CALL = {"model": NAME, "prompt": "The capital of France is", "max_tokens": 2, "temperature": 0}
EVIL, CHAT = "https://evil.example", "https://chat.example"
FROM_A_BROWSER = [("Accept", "text/html"), ("Accept-Encoding", "gzip, br")]
PLAIN = ["text/plain", "text/plain;charset=UTF-8", "application/x-www-form-urlencoded",
         "multipart/form-data; boundary=a", None]

needs_browser = pytest.mark.skipif(find_browser() is None, reason="there is no Chromium here")


def post(server, content_type="application/json", host="localhost", path="/v1/completions", body=None, **fields):
    headers = [(name.replace("_", "-"), value) for name, value in fields.items()]
    headers += [("Content-Type", content_type)] if content_type else []
    return roundtrip(server, request_bytes(path, CALL if body is None else body, headers=headers, host=host))


def assert_refused(response, status, code):
    error = response.json()["error"]
    assert (response.status, error["code"]) == (status, code)
    return error["message"]


# ---- names ----

@pytest.mark.parametrize("path, body", [("/v1/models", None), ("/", None), ("/health", None), ("/nowhere", None),
                                        ("/v1/completions", CALL)])
def test_another_name_is_refused(server, path, body):
    for host in ["evil.example", f"evil.example:{server.port}", "localhost.evil.example", "127.0.0.1.evil.example"]:
        message = assert_refused(roundtrip(server, request_bytes(path, body, host=host)), 421, "host_not_allowed")
        assert host in message and "--allowed-hosts" in message


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "app.localhost", "127.0.0.1:8000", "[::1]:8000",
                                  "10.1.2.3:80", ""])
def test_own_names(server, host):
    assert roundtrip(server, request_bytes("/v1/models", host=host)).status == 200


def test_probe_without_a_name(server):
    assert statuses(exchange(server, b"GET /health HTTP/1.0\r\n\r\n")) == [200]


def test_given_names(start_server):
    server = start_server("--allowed-hosts", "quire.test, .inner.test", "--allowed-hosts", '["*.below.test"]')
    for host in ["quire.test", "Quire.Test:443", "inner.test", "a.inner.test", "a.below.test", "localhost", "10.0.0.1"]:
        assert roundtrip(server, request_bytes("/v1/models", host=host)).status == 200, host
    for host in ["other.test", "a.quire.test", "below.test", "quire.test.evil.example"]:
        assert roundtrip(server, request_bytes("/v1/models", host=host)).status == 421, host


def test_any_name(start_server):
    server = start_server("--allowed-hosts", "*")
    assert roundtrip(server, request_bytes("/v1/models", host="evil.example")).status == 200


def test_a_key_is_asked_for_whatever_the_name(start_server):
    server = start_server("--api-key", "secret")
    assert roundtrip(server, request_bytes("/v1/models", host="quire.test")).status == 401
    key = [("Authorization", "Bearer secret")]
    assert roundtrip(server, request_bytes("/v1/models", host="quire.test", headers=key)).status == 200


@pytest.mark.parametrize("option, value", [
    ("allowed-hosts", "http://quire.test"), ("allowed-origins", "chat.example"), ("allowed-origins", '["https://a"'),
    ("allowed-methods", "GET POST"), ("allowed-headers", "a:b")])
def test_bad_options(option, value):
    command = [str(BINARY), "serve", "--model", str(MODEL), "--" + option, value]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, env=clean_environment())
    assert result.returncode == 78
    assert option in result.stderr and value in result.stderr


# ---- requests of pages of other sites ----

@pytest.mark.parametrize("origin", [EVIL, "null", "http://localhost:1", "http://localhost.evil.example"])
@pytest.mark.parametrize("content_type", PLAIN)
def test_post_without_a_preflight_is_refused(server, content_type, origin):
    message = assert_refused(post(server, content_type, Origin=origin), 403, "origin_not_allowed")
    assert origin in message and "--allowed-origins" in message


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_what_the_browser_calls_foreign_is_refused(server, site):
    for content_type in [*PLAIN, "application/json"]:
        assert_refused(post(server, content_type, Sec_Fetch_Site=site), 403, "origin_not_allowed")
        assert_refused(post(server, content_type, Sec_Fetch_Site=site, Origin=EVIL), 403, "origin_not_allowed")
    read = request_bytes("/v1/models", headers=[("Sec-Fetch-Site", site), ("Origin", EVIL)])
    assert_refused(roundtrip(server, read), 403, "origin_not_allowed")


@pytest.mark.parametrize("content_type", [*PLAIN, "application/json"])
def test_programs_and_own_pages_are_served(server, content_type):
    assert post(server, content_type).status == 200
    assert post(server, content_type, Sec_Fetch_Site="none").status == 200
    assert post(server, content_type, Origin="http://localhost:81", host="localhost:81").status == 200
    assert post(server, content_type, Origin=CHAT, Sec_Fetch_Site="same-origin").status == 200


def test_page_behind_a_proxy_with_another_name(server):
    """Without TLS the browser does not say that it is the same site."""
    assert post(server, "application/json", Origin="http://chat.example").status == 200


def test_link_from_another_site(server):
    headers = [("Sec-Fetch-Site", "cross-site"), ("Sec-Fetch-Mode", "navigate"), *FROM_A_BROWSER]
    assert b"<!doctype html>" in gzip.decompress(roundtrip(server, request_bytes("/", headers=headers)).body)


def test_connection_goes_on_after_a_refusal(server):
    with connect(server) as sock:
        sock.sendall(request_bytes("/v1/completions", CALL, headers=[("Origin", EVIL)]))
        response, rest = read_response(sock)
        assert response.status == 403
        sock.sendall(request_bytes("/v1/completions", CALL))
        assert read_response(sock, rest)[0].status == 200


# ---- sites that are allowed ----

def cors(response):
    return {name: value for name, value in response.headers.items() if name.startswith("access-control-")}


ALLOWED = {"access-control-allow-origin": CHAT,
           "access-control-expose-headers": "X-Request-Id, request-id, Retry-After, retry-after-ms, x-should-retry, X-Ignored-Params"}


@pytest.fixture(scope="module")
def chat_server(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("cors") / "server.log", "--allowed-origins", json.dumps([CHAT]),
                         "--api-key", "secret", "--max-body-bytes", "2K")
    yield server
    server.kill()


def ask(server, path="/v1/completions", body=None, origin=CHAT, key="secret", method=None):
    headers = [("Origin", origin), ("Sec-Fetch-Site", "cross-site"), ("Content-Type", "application/json")]
    headers += [("Authorization", "Bearer " + key)] if key else []
    return request_bytes(path, body, headers=headers, method=method)


def test_nothing_is_allowed_by_default(server):
    for method in ["GET", "OPTIONS"]:
        headers = [("Origin", EVIL), ("Access-Control-Request-Method", "POST")]
        response = roundtrip(server, request_bytes("/v1/models", method=method, headers=headers))
        assert cors(response) == {} and "vary" not in response.headers


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/nowhere", "/"])
def test_preflight_needs_no_key(chat_server, path):
    headers = [("Origin", CHAT), ("Sec-Fetch-Site", "cross-site"), ("Access-Control-Request-Method", "POST"),
               ("Access-Control-Request-Headers", "authorization,content-type")]
    response = roundtrip(chat_server, request_bytes(path, method="OPTIONS", headers=headers))
    assert response.status == 204 and response.headers["vary"] == "Origin"
    assert cors(response) == {"access-control-allow-origin": CHAT,
                              "access-control-allow-methods": "GET, HEAD, POST, DELETE",
                              "access-control-allow-headers": "authorization,content-type",
                              "access-control-max-age": "600"}


def test_preflight_with_a_body_is_an_ordinary_request(chat_server):
    """No browser sends one, and nobody may without a key."""
    head = request_bytes("/v1/completions", method="OPTIONS", headers=[
        ("Origin", CHAT), ("Access-Control-Request-Method", "POST"), ("Content-Length", "1000000000")])
    assert statuses(exchange(chat_server, head)) == [401]


def test_preflight_of_another_site(chat_server):
    headers = [("Origin", EVIL), ("Access-Control-Request-Method", "POST")]
    response = roundtrip(chat_server, request_bytes("/v1/completions", method="OPTIONS", headers=headers))
    assert cors(response) == {} and response.headers["vary"] == "Origin"


def test_answers_and_errors_can_be_read(chat_server):
    requests = [(200, ask(chat_server, body=CALL)), (200, ask(chat_server, "/v1/models")),
                (200, ask(chat_server, "/health", key=None)), (401, ask(chat_server, body=CALL, key="wrong")),
                (404, ask(chat_server, "/nowhere")), (405, ask(chat_server, "/v1/models", body={})),
                (400, ask(chat_server, body={**CALL, "max_tokens": -2})),
                (413, ask(chat_server, body={**CALL, "prompt": "x" * 4096}))]
    for status, data in requests:
        response = roundtrip(chat_server, data)
        assert (response.status, cors(response)) == (status, ALLOWED)
        assert response.headers["vary"] == "Origin"


def test_body_that_grows_too_large_can_be_read(chat_server):
    head = ask(chat_server, method="POST").replace(b"\r\n\r\n", b"\r\nTransfer-Encoding: chunked\r\n\r\n")
    received = exchange(chat_server, head + b"1000\r\n" + b" " * 0x1000 + b"\r\n")
    assert statuses(received) == [413]
    assert b"Access-Control-Allow-Origin: " + CHAT.encode() in received.partition(b"\r\n\r\n")[0]


def test_streams_and_their_refusal_can_be_read(start_server):
    server = start_server("--allowed-origins", CHAT, "--max-num-seqs", 1, "--max-queued-requests", 1)
    long = {**CALL, "stream": True, "max_tokens": 4000, "ignore_eos": True}
    with connect(server) as first, connect(server) as second:
        first.sendall(ask(server, body=long))
        head = read_until(first, b"\r\n\r\n").partition(b"\r\n\r\n")[0]
        assert statuses(head) == [200]
        assert b"Access-Control-Allow-Origin: " + CHAT.encode() in head
        server.wait_for(lambda metrics: metrics["num_requests_running"] == 1)  # its head comes before that
        second.sendall(ask(server, body=long))
        server.wait_for(lambda metrics: metrics["num_requests_waiting"] == 1)
        response = roundtrip(server, ask(server, body=CALL))
        assert (response.status, cors(response)) == (429, ALLOWED)
        assert response.headers["retry-after"]


def test_other_sites_stay_refused(chat_server):
    response = roundtrip(chat_server, ask(chat_server, body=CALL, origin=EVIL))
    assert_refused(response, 403, "origin_not_allowed")
    assert cors(response) == {} and response.headers["vary"] == "Origin"


def test_all_sites(start_server):
    server = start_server("--allowed-origins", "*")
    for origin in [EVIL, "null"]:
        response = roundtrip(server, ask(server, body=CALL, origin=origin))
        assert (response.status, response.headers["access-control-allow-origin"]) == (200, "*")
        assert "vary" not in response.headers
        assert post(server, "text/plain", Origin=origin).status == 200


def test_credentials_methods_and_headers(start_server):
    server = start_server("--allowed-origins", CHAT, "--allow-credentials", "--allowed-methods", "POST",
                          "--allowed-headers", "authorization,content-type")
    headers = [("Origin", CHAT), ("Access-Control-Request-Method", "POST")]
    answer = cors(roundtrip(server, request_bytes("/v1/completions", method="OPTIONS", headers=headers)))
    assert answer["access-control-allow-credentials"] == "true"
    assert answer["access-control-allow-methods"] == "POST"
    assert answer["access-control-allow-headers"] == "authorization, content-type"
    assert cors(roundtrip(server, ask(server, body=CALL)))["access-control-allow-credentials"] == "true"


# ---- what every answer says ----

def test_answers_are_neither_guessed_nor_kept(server):
    for data in [request_bytes("/v1/models"), request_bytes("/metrics"), request_bytes("/openapi.json"),
                 request_bytes("/"), request_bytes("/health"), request_bytes("/nowhere"),
                 request_bytes("/v1/completions", CALL), request_bytes("/v1/completions", {}),
                 request_bytes("/v1/models", method="OPTIONS")]:
        headers = roundtrip(server, data).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cache-control"] == "no-store"
    page = roundtrip(server, request_bytes("/", headers=FROM_A_BROWSER)).headers
    assert (page["x-content-type-options"], page["cache-control"]) == ("nosniff", "no-cache")


# ---- in the browser ----

@pytest.fixture
def browser(tmp_path):
    browser = Browser(tmp_path / "profile")
    yield browser
    browser.close()


@pytest.fixture
def other_site():
    """Address of an empty page on another port, which is another origin."""
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    site = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=site.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{site.server_port}"
    site.shutdown()
    site.server_close()


def fetch(page, url, content_type, mode="cors", body=CALL):
    """Status, request id and body of what the page gets, or the name of the error."""
    options = {"method": "POST", "mode": mode, "headers": {"Content-Type": content_type}, "body": json.dumps(body)}
    return page.run(f"""fetch({json.dumps(url)}, {json.dumps(options)}).then(
        async (response) => [response.status, response.headers.get("X-Request-Id"), await response.text()],
        (error) => error.name)""")


FORM = """(() => {
    const form = document.body.appendChild(document.createElement("form"));
    Object.assign(form, {method: "post", action: %s, enctype: "text/plain"});
    form.appendChild(Object.assign(document.createElement("input"), {name: '{"prompt":"Hi","model":"', value: 'smollm2"}'}));
    form.submit();
})()"""


@needs_browser
def test_page_of_another_site(browser, server, other_site):
    url, page = server.url + "/v1/completions", Page(browser)
    page.open(other_site)
    before = server.wait_idle()
    for content_type in ["text/plain", "application/x-www-form-urlencoded", "application/json"]:
        assert fetch(page, url, content_type) == "TypeError"
    assert fetch(page, url, "text/plain", mode="no-cors") == [0, None, ""]
    page.run_between(FORM % json.dumps(url))  # which may already be another document when it is answered
    page.wait_for(f"location.href === {json.dumps(url)} && document.readyState === 'complete'")
    assert "origin_not_allowed" in page.text("body")
    after = server.wait_idle()
    assert after["prompt_tokens_total"] == before["prompt_tokens_total"]
    page.close()


@needs_browser
def test_page_of_an_allowed_site(browser, start_server, other_site):
    server, page = start_server("--allowed-origins", other_site, "--api-key", "secret"), Page(browser)
    page.open(other_site)
    url = server.url + "/v1/completions"
    assert fetch(page, url, "application/json")[0] == 401
    assert fetch(page, server.url + "/nowhere", "application/json")[0] == 401
    status, request_id, text = page.run(f"""fetch({json.dumps(url)}, {{
        method: "POST", headers: {{"Content-Type": "application/json", Authorization: "Bearer secret"}},
        body: {json.dumps(json.dumps(CALL))}}}).then(
        async (response) => [response.status, response.headers.get("X-Request-Id"), await response.text()])""")
    assert status == 200 and request_id.startswith("req-")
    assert json.loads(text)["usage"]["completion_tokens"] == 2
    page.close()
