"""5.2: ten times as many calls as a server can answer, by several API keys: who is served, who is refused, and how fast."""

import random
import time

from flow import Call, Flow, percentile
from key_file import KeyFile
from scenario import scenario
from wire import closing, completion

SEQS, NUM_PEAK = 16, 24
OPTIONS = {"max-num-seqs": SEQS, "max-connections": 2048, "no-enable-prefix-caching": None, "max-model-len": 256,
           "queue-timeout": 0, "kv-cache-memory-bytes": "64M"}
PROMPT = "Once upon a time there was a little one who went into the wood"
PROMPT_TOKENS, MEAN_TOKENS = 14, 16
OVERLOAD = 10
WARM_UP = 0.4  # of the time, until queues are full


class Sender:
    """A key with a weight, and how greedy it is: its share of all calls."""

    def __init__(self, name, weight, greed):
        self.name, self.weight, self.greed = name, weight, greed


def call_of(secret, label, at, rng):
    tokens = rng.randint(MEAN_TOKENS // 2, MEAN_TOKENS * 3 // 2)
    request = completion(key=secret, prompt=PROMPT, max_tokens=tokens, ignore_eos=True, stream=True)
    return Call(closing(request), at, label)


def arrivals(senders, secrets, rate, seconds, rng):
    """Open-loop: Poisson, whatever becomes of the calls before."""
    calls, at, greed = [], 0.0, [sender.greed for sender in senders]
    while (at := at + rng.expovariate(rate)) < seconds:
        sender = rng.choices(senders, greed)[0]
        calls.append(call_of(secrets[sender.name], sender.name, at, rng))
    return calls


def tokens_by_key(victim):
    """name -> prompt and output tokens computed for it so far."""
    found = {}
    for line in victim.get("/metrics", 30).body.decode().splitlines():
        if line.startswith(("quire:api_key_prompt_tokens_total{", "quire:api_key_generation_tokens_total{")):
            name = line.split('key="')[1].split('"')[0]
            found[name] = found.get(name, 0) + float(line.split()[-1])
    return found


def jain(values):
    """1 where all are equal, 1/n where one has everything."""
    return sum(values) ** 2 / (len(values) * sum(value * value for value in values)) if any(values) else 0.0


def fair_shares(senders, capacity, offered):
    """name -> what weighted max-min fairness gives it: who wants less than its share gets that, the others share the rest."""
    shares, left, open_ones = {}, capacity, list(senders)
    while open_ones:
        weight = sum(sender.weight for sender in open_ones)
        modest = [sender for sender in open_ones if offered[sender.name] <= left * sender.weight / weight]
        for sender in modest:
            shares[sender.name] = offered[sender.name]
        if not modest:
            shares.update({sender.name: left * sender.weight / weight for sender in open_ones})
            break
        left -= sum(shares[sender.name] for sender in modest)
        open_ones = [sender for sender in open_ones if sender not in modest]
    return shares


class Window:
    """What the server did between the end of the warm-up and the end of the load."""

    def __init__(self, victim, warm_s, end_s):
        self.victim, self.start = victim, time.monotonic()
        self.warm_s, self.end_s = warm_s, end_s
        self.rss, self.marks = [], []

    def tick(self, now):
        since = now - self.start
        if since >= (self.warm_s if not self.marks else self.end_s) and len(self.marks) < 2:
            self.marks.append((time.monotonic(), tokens_by_key(self.victim)))
        if len(self.marks) == 1:
            self.rss.append(self.victim.memory())
        return False

    def service(self):
        """(tokens by key, seconds)"""
        (began, before), (ended, after) = self.marks
        return {name: after[name] - before.get(name, 0) for name in after}, ended - began


def measure_peak(victim, secret, seconds):
    """(calls, tokens) a second of clients that each send the next call when they have an answer."""
    before, began = [], time.monotonic()
    calls = [call_of(secret, "peak", 0, random.Random(i)) for i in range(NUM_PEAK)]

    def tick(now):
        if not before and now - began > seconds / 2:  # all slots are full
            before.append((now, tokens_by_key(victim)["peak"]))
        return now - began > seconds

    def again(call):
        return call_of(secret, "peak", 0, random.Random(call.began))

    Flow(victim.address, again=again).run(calls, seconds + 10, tick)
    (since, tokens), ended = before[0], time.monotonic()
    tokens_s = (tokens_by_key(victim)["peak"] - tokens) / (ended - since)
    return tokens_s / (MEAN_TOKENS + PROMPT_TOKENS), tokens_s


def queue_waits(calls):
    """Ratios of each refused call's Retry-After to the true wait: that of its key's next call that was taken."""
    ratios, refused = [], {}
    for call in sorted((call for call in calls if call.began), key=lambda call: call.began):
        said_ms = refused.setdefault(call.label, [])
        if call.is_whole_stream():
            ratios += [ms / 1000 / (call.first - call.began) for ms in said_ms]
            said_ms.clear()
        elif call.status == 429:
            said_ms.append(int(call.answer().fields["retry-after-ms"]))
    return ratios


def judge(stage, senders, calls, window, peak_tokens, rate, warm_at):
    service, seconds = window.service()
    total = sum(service.values())
    tokens_a_call = MEAN_TOKENS + PROMPT_TOKENS
    offered = {sender.name: rate * sender.greed / sum(each.greed for each in senders) * tokens_a_call * seconds
               for sender in senders}
    fair = fair_shares(senders, total, offered)
    refused = [call for call in calls if call.status == 429]
    late = [call for call in calls if call.began and call.began >= warm_at]
    waits = [(call.ended - call.began) * 1000 for call in refused if call.began >= warm_at]
    said = sorted({str(call.status or call.error) for call in calls if call.began})
    stage.figure("calls, refused, statuses", f"{len(calls)}, {len(refused)}, {' '.join(said)}", "200 429", set(said) <= {"200", "429"})
    cut = sum(call.status == 200 and not call.is_whole_stream() for call in calls)
    stage.figure("streams cut", cut, 0, cut == 0)
    stage.least("Jain's index of service by weight", jain([service.get(s.name, 0) / fair[s.name] for s in senders]), 0.95,
                is_timed=True)
    stage.least("goodput, of the peak", total / seconds / peak_tokens, 0.95, is_timed=True)
    stage.most("refused within, median", percentile(waits, 0.5), 5, " ms", is_timed=True)
    stage.most("refused within, p99", percentile(waits, 0.99), 50, " ms", is_timed=True)
    stage.most("memory after the warm-up, spread", (max(window.rss) - min(window.rss)) / min(window.rss), 0.02, is_timed=True)
    ratios = queue_waits(late)
    for share in (0.1, 0.5, 0.9):
        ratio = percentile(ratios, share)
        stage.figure(f"Retry-After, of the true wait, p{share * 100:.0f}", "none" if ratio is None else f"{ratio:.2f}",
                     "0.5 to 2", ratio is not None and 0.5 <= ratio <= 2, is_timed=True)


def overload(stage, senders, queue, seconds):
    rng = random.Random(5)
    keys = KeyFile(stage.binary, stage.folder / "keys.yaml")
    for sender in senders:
        keys.add(sender.name, "--weight", sender.weight)
    keys.add("peak", "--admin", "true")  # it sees what the others use
    options = {**OPTIONS, "max-queued-requests": queue, "api-key-file": keys.path}
    with stage.server(options, model=stage.real_model(), key=keys.keys["peak"]) as victim:
        calls_s, tokens_s = measure_peak(victim, keys.keys["peak"], stage.pick(2, 16))
        rate = calls_s * OVERLOAD
        calls = arrivals(senders, keys.keys, rate, seconds, rng)
        window = Window(victim, seconds * WARM_UP, seconds * 0.98)
        began = time.monotonic()
        Flow(victim.address).run(calls, seconds + 60, window.tick)
        stage.figure("peak: calls/s, tokens/s; offered calls/s", f"{calls_s:.1f}, {tokens_s:.0f}; {rate:.0f}", "-", True)
        judge(stage, senders, calls, window, tokens_s, rate, began + seconds * WARM_UP)


@scenario("5.2", "ten times the capacity by two keys of equal weight, nine calls of one to one of the other")
def overload_of_two_keys(stage):
    overload(stage, [Sender("greedy", 1, 9), Sender("modest", 1, 1)], 160, stage.pick(3, 40))


@scenario("5.2", "the same by keys of weight 9 and 1 that ask for as much")
def overload_by_weight(stage):
    overload(stage, [Sender("large", 9, 1), Sender("small", 1, 1)], 96, stage.pick(3, 40))


@scenario("5.2", "ten times the capacity by 50 keys of mixed greed")
def overload_of_fifty_keys(stage):
    rng = random.Random(50)
    overload(stage, [Sender(f"key-{i}", 1, rng.choice((1, 2, 5, 20))) for i in range(50)], 64, stage.pick(4, 60))
