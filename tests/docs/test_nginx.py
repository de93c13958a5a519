"""The nginx configuration of docs/deploy.md, by nginx: TLS, the name that is passed on, streams that are not held back."""

import json
import os
import shutil
import subprocess
import time

import httpx
import pytest

from quire_server import CACHE, NAME, QuireServer, free_port
from snippets import PAGES, localise, read_blocks

NGINX = shutil.which("nginx") or shutil.which("nginx", path=CACHE / "tools")
BLOCKS = [block for page in PAGES for block in read_blocks(page) if block.language == "nginx"]
HOST = "quire.example.com"

MAIN = """daemon off; master_process off; pid {folder}/pid; error_log {folder}/error.log;
events {{}}
http {{
    access_log off;
    client_body_temp_path {folder}/b; proxy_temp_path {folder}/p; fastcgi_temp_path {folder}/f;
    uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;
    {site}
}}
"""


@pytest.fixture(params=BLOCKS, ids=lambda block: block.name)
def proxy(request, tmp_path, not_run):
    """(address, server): nginx with the page's block in front of a server that knows the proxy's name."""
    if NGINX is None:
        not_run(request.param, "there is no nginx")
        pytest.skip("there is no nginx")
    server = QuireServer(tmp_path / "log", "--allowed-hosts", HOST)
    port = free_port()
    site = localise(request.param.text, tmp_path, "", server.url.removeprefix("http://"))
    (tmp_path / "nginx.conf").write_text(MAIN.format(
        folder=tmp_path, site=site.replace("listen 443 ssl", f"listen 127.0.0.1:{port} ssl")))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={HOST}", "-keyout",
                    tmp_path / "server.key", "-out", tmp_path / "server.pem"], check=True, capture_output=True)
    process = subprocess.Popen([NGINX, "-p", tmp_path, "-c", tmp_path / "nginx.conf"], env=os.environ)
    try:
        deadline = time.monotonic() + 30
        while not (tmp_path / "pid").exists():
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "error.log").read_text()
            time.sleep(0.02)
        with httpx.Client(base_url=f"https://127.0.0.1:{port}", verify=False, headers={"Host": HOST}, timeout=60) as client:
            yield client, server
    finally:
        process.terminate()
        process.wait(30)
        server.kill()


def test_proxy(proxy):
    client, server = proxy
    assert client.get("/v1/models").json()["data"][0]["id"] == NAME
    body = {"model": NAME, "prompt": "x", "max_tokens": 6000, "ignore_eos": True, "stream": True}
    with client.stream("POST", "/v1/completions", content=json.dumps(body)) as stream:
        lines = stream.iter_lines()  # which hangs up when it is dropped
        first = next(lines)
        assert '"choices"' in first, first
        server.wait_for(lambda metrics: metrics["num_requests_running"] == 1, 10)  # the first event, long before the last
    server.wait_idle()  # a client that hangs up ends its request through the proxy, too
