"""5.1: as many streams as there are connections, each held until its end: whether all of it comes, and what a stream costs."""

import resource
import ssl
import time

from flow import Call, Flow, percentile
from scenario import ROOT, scenario
from wire import closing, completion
from witness import stream_content

CERTIFICATES = ROOT / "tests/e2e/data/tls"
RUNNING = 1024  # --max-num-seqs at most: the others wait with an open connection
RUNNING_TLS = 1  # so few that all handshakes are done before the first streams end
TOKENS, TOKENS_TLS = 250, 900
SPREAD_S = 3  # in which they come
SOURCES = 200  # addresses of 127/8, each with a share of its own


def raise_file_limit(wanted):
    """Returns what it is then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted:
        soft = min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return soft


def make_calls(count, spread_s, tokens):
    request = closing(completion(prompt="Once", max_tokens=tokens, ignore_eos=True, stream=True,
                                 stream_options={"include_usage": True}))
    return [Call(request, at=spread_s * i / count, source=f"127.0.2.{i % SOURCES + 1}") for i in range(count)]


def content(call):
    """What the stream says; None where it is not whole."""
    return stream_content(call.answer()) if call.is_whole_stream() else None


class Watch:
    """The most memory and connections while streams are held."""

    def __init__(self, victim):
        self.victim, self.rss, self.held = victim, 0, 0

    def tick(self, flow):
        def look(now):
            self.rss = max(self.rss, self.victim.memory())
            self.held = max(self.held, len(flow.calls))
            return False
        return look


def hold(stage, count, options, spread_s, tokens, **how):
    """Warms the server up with a tenth of the streams, so that its pools have been in use, and then holds all of them."""
    with stage.server(options, **how) as victim:
        Flow(victim.address, victim.tls).run(make_calls(max(count // 10, 16), 1, 16), 60)
        victim.what_is_left(victim.num_sockets(), victim.num_files(), 10)
        before, watch, calls = victim.memory(), Watch(victim), make_calls(count, spread_s, tokens)
        flow, began = Flow(victim.address, victim.tls), time.monotonic()
        flow.run(calls, 200, watch.tick(flow), 0.25)
        seconds = time.monotonic() - began
        wanted = next((said for said in map(content, calls) if said and said[2] == ("length", tokens)), None)
        bad = [call for call in calls if wanted is None or content(call) != wanted]
        said = sorted({str(call.status or call.error) for call in bad})[:4]
        stage.figure(f"bad of {count} streams", f"{len(bad)} {' '.join(said)}".strip(), 0, not bad)
        stage.figure("held at once", watch.held, f">= {count * 9 // 10}", watch.held >= count * 9 // 10, is_timed=True)
        memory = (watch.rss - before) / 1024 / max(watch.held, 1)
        most = 32 if victim.tls is None else 64
        stage.most("memory of each held stream", memory, most, " KiB", is_timed=True)
        firsts = [call.first - call.began for call in calls if call.first]
        stage.figure("first token, median and p99; all", f"{percentile(firsts, 0.5):.1f}, {percentile(firsts, 0.99):.1f} s; "
                     f"{seconds:.0f} s", "-", True)


def options_for(count, running):
    return {"max-num-seqs": running, "max-connections": count + 64, "max-queued-requests": count,
            "kv-cache-memory-bytes": "64M", "max-model-len": 1024, "queue-timeout": 0, "threads": 1}


@scenario("5.1", "10,000 streams at once over plain HTTP")
def streams(stage):
    count = min(stage.pick(500, 10000), raise_file_limit(10200) - 128)
    hold(stage, count, options_for(count, min(RUNNING, count // 4)), stage.pick(0.2, SPREAD_S), TOKENS)


@scenario("5.1", "1,000 streams at once over TLS")
def streams_over_tls(stage):
    count = stage.pick(100, 1000)
    context = ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")
    raise_file_limit(2 * count + 200)
    options = {**options_for(count, RUNNING_TLS), "ssl-certfile": CERTIFICATES / "server.pem"}
    hold(stage, count, options, stage.pick(0.2, 2), TOKENS_TLS, tls=context)
