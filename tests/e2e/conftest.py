"""Fixtures: `server` is shared by most tests, `start_server` starts one with its own options. The
log of every server that a failed test used is shown with the failure."""

import os
import sys
import tempfile
from pathlib import Path

import pytest

# Tests use each other's helpers, whatever folder they lie in.
sys.path[:0] = [str(Path(__file__).resolve().parent / name) for name in ("api", "operation", "device")]

from quire_server import BINARY, MODEL, QuireServer

LOGS = pytest.StashKey()
AUTHORITY = pytest.StashKey()
LONG_CASES = set(Path(__file__).with_name("long_cases.txt").read_text(encoding="utf-8").splitlines()[1:])


def trust_one_authority():
    """httpx reads the certificates of all authorities for each client, 30 ms of a processor, and the tests make thousands. None of
    them trusts a public one. Returns the file of the first one; None: these clients do not read them from where httpx does."""
    try:
        import certifi
    except ImportError:
        return None
    with open(certifi.where(), encoding="utf-8") as file:
        first = file.read().partition("-----BEGIN")[2].partition("-----END CERTIFICATE-----")[0]
    with tempfile.NamedTemporaryFile("w", suffix=".pem", delete=False) as file:
        file.write(f"-----BEGIN{first}-----END CERTIFICATE-----\n")
    os.environ["SSL_CERT_FILE"] = file.name
    return file.name


def pytest_configure(config):
    config.addinivalue_line("markers", "variant: a further case of what others test; `scripts/test --slow` alone runs it")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    names = {item.nodeid.partition("tests/e2e/")[2]: item for item in items}
    for name in LONG_CASES & names.keys():
        names[name].add_marker(pytest.mark.variant)
    gone = LONG_CASES - names.keys()
    if gone and Path(__file__).parent in map(Path, map(os.path.abspath, config.args)):
        raise pytest.UsageError(f"long_cases.txt: there is no {', '.join(sorted(gone))}")


def pytest_sessionstart(session):
    session.config.stash[AUTHORITY] = trust_one_authority()
    for path in (BINARY, MODEL):
        if not path.exists():
            pytest.exit(f"{path} is missing: run scripts/test", returncode=2)


def pytest_sessionfinish(session):
    if session.config.stash.get(AUTHORITY, None):
        os.unlink(session.config.stash[AUTHORITY])


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory):
    server = QuireServer(tmp_path_factory.mktemp("shared") / "server.log")
    yield server
    server.kill()


@pytest.fixture
def server(shared_server, request):
    request.node.stash.setdefault(LOGS, []).append(shared_server)
    assert shared_server.process.poll() is None, shared_server.read_log()
    return shared_server


@pytest.fixture
def start_server(tmp_path, request):
    """start_server(*arguments, environment=None, binary=BINARY) -> QuireServer, stopped after the test."""
    servers = []

    def start(*arguments, **options):
        log = tmp_path / f"server{len(servers)}.log"
        servers.append(QuireServer(log, *arguments, **options))
        request.node.stash.setdefault(LOGS, []).append(servers[-1])
        return servers[-1]

    yield start
    for server in servers:
        server.kill()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item, call):
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for server in item.stash.get(LOGS, []):
            report.sections.append((f"log of {server.url}", server.read_log()))
