"""Fixtures: `server` is shared by most tests, `start_server` starts one with its own options. The
log of every server that a failed test used is shown with the failure."""

import pytest

from quire_server import BINARY, MODEL, QuireServer

LOGS = pytest.StashKey()


def pytest_sessionstart(session):
    for path in (BINARY, MODEL):
        if not path.exists():
            pytest.exit(f"{path} is missing: run scripts/test", returncode=2)


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
