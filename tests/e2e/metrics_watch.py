"""What a server's metrics were while something ran."""

import contextlib
import threading
import time


class Watch:
    def __init__(self):
        self.samples = []

    def most(self, name):
        return max(sample[name] for sample in self.samples)


@contextlib.contextmanager
def watch_metrics(server, every=0.01):
    """with watch_metrics(server) as watch: ...; afterwards watch.samples are the metrics as they were, one
    dict after the other."""
    watch, stopped = Watch(), threading.Event()

    def poll():
        while not stopped.is_set():
            watch.samples.append(server.metrics())
            time.sleep(every)

    thread = threading.Thread(target=poll)
    thread.start()
    try:
        yield watch
    finally:
        stopped.set()
        thread.join()


def deltas(server, run):
    """run()'s result, and by how much each metric rose meanwhile, once the server is idle again."""
    before = server.wait_idle()
    result = run()
    after = server.wait_idle()
    return result, {name: after[name] - before.get(name, 0) for name in after}
