"""5.4: SIGTERM, restarts through a passed socket and reloads while streams run: none is cut, nobody is refused."""

import os
import shutil
import signal
import socket
import ssl
import threading

from flow import Call, Flow
from key_file import KeyFile
from scenario import ROOT, await_true, scenario
from victim import Victim
from wire import closing, completion, exchange

CERTIFICATES = ROOT / "tests/e2e/data/tls"
LONG = {"prompt": "Once", "ignore_eos": True, "stream": True}


class Streams:
    """So many streams in a thread of their own."""

    def __init__(self, victim, count, key=None, again=None, **fields):
        request = closing(completion(key=key, **{**LONG, **fields}))
        self.calls = [Call(request, at=0.002 * i) for i in range(count)]
        self.flow = Flow(victim.address, victim.tls, again=self.repeat if again else None)
        self.is_over, self.all = threading.Event(), list(self.calls)
        self.thread = threading.Thread(target=self.flow.run, args=(self.calls, 120))
        self.thread.start()

    def repeat(self, call):
        if self.is_over.is_set():
            return None
        self.all.append(Call(call.request))
        return self.all[-1]

    def have_begun(self):
        return all(call.first for call in self.calls)

    def finish(self):
        """Those that were no whole stream: their statuses or errors."""
        self.is_over.set()
        self.thread.join()
        return [call.error or call.status for call in self.all if not call.is_whole_stream()]


@scenario("5.4", "SIGTERM while 200 streams run")
def drain(stage):
    count = stage.pick(40, 200)
    options = {"max-num-seqs": count, "kv-cache-memory-bytes": "64M", "shutdown-timeout": 60}
    with stage.server(options, status=None) as victim:
        streams = Streams(victim, count, max_tokens=2000)
        begun = await_true(streams.have_begun)
        running = len(streams.flow.calls)
        victim.process.send_signal(signal.SIGTERM)
        await_true(lambda: "stopping" in victim.read_log())
        said = [answer.status for answer in exchange(victim.address, closing(completion()))[0]]
        cut = streams.finish()
        status = victim.process.wait(60)
        stage.figure("streams cut by SIGTERM, of those running", f"{len(cut)} of {running}", 0, begun and not cut)
        stage.figure("new requests meanwhile; exit status", f"{said}; {status}", "[503]; 0",
                     said == [503] and status == 0)


@scenario("5.4", "restarts through a passed socket under load")
def restart(stage):
    statuses, is_over = [], threading.Event()

    def ask(address):
        while not is_over.is_set():
            try:
                found, _ = exchange(address, closing(completion(max_tokens=4)), seconds=60, timeout=60)
                statuses.append(found[0].status if found else "closed")
            except OSError as error:
                statuses.append(type(error).__name__)

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(4096)
        victim = Victim(stage.binary, stage.model, stage.folder, listener=listener)
        threads = [threading.Thread(target=ask, args=(victim.address,), daemon=True) for _ in range(8)]
        for thread in threads:
            thread.start()
        ended = []
        try:
            for _ in range(stage.pick(2, 10)):
                before = len(statuses)
                await_true(lambda: len(statuses) > before + 100)
                victim.process.send_signal(signal.SIGTERM)
                ended.append(victim.process.wait(30))
                victim = Victim(stage.binary, stage.model, stage.folder, listener=listener)
            is_over.set()
            for thread in threads:
                thread.join()
            stage.problems += victim.finish()
        finally:
            is_over.set()
            victim.kill()
    bad = [status for status in statuses if status != 200]
    stage.figure(f"refused of {len(statuses)} in {len(ended)} restarts", f"{len(bad)} {bad[:3]}", 0, not bad and not any(ended))


@scenario("5.4", "keys and certificates read again under load")
def reload(stage):
    context = ssl.create_default_context(cafile=CERTIFICATES / "authority.pem")
    certificate = stage.folder / "certificate.pem"
    shutil.copy(CERTIFICATES / "server.pem", certificate)
    certificate.chmod(0o600)
    keys = KeyFile(stage.binary, stage.folder / "keys.yaml").add("a")
    key, count = keys.keys["a"], stage.pick(5, 50)
    with stage.server({"ssl-certfile": certificate, "api-key-file": keys.path}, tls=context, key=key) as victim:
        streams = Streams(victim, 8, key, again=True, max_tokens=200)
        for i in range(count):
            shutil.copy(CERTIFICATES / ("renewed.pem" if i % 2 == 0 else "server.pem"), certificate)
            keys.entries.pop(f"extra-{i - 1}", None)
            keys.add(f"extra-{i}")
            os.kill(victim.pid, signal.SIGHUP)
            await_true(lambda: victim.log_path.read_text().count("2 API keys from") > i)
        bad = streams.finish()
        stage.figure(f"errors in {len(streams.all)} streams, {count} reloads", f"{len(bad)} {bad[:3]}", 0, not bad)
