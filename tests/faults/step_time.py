"""5.2: what a long prompt costs those who stream meanwhile, and what the time limit of a step costs the prompt."""

import time

from flow import Call, Flow, percentile
from scenario import scenario
from wire import closing, completion

NUM_STREAMS = 8
OPTIONS = {"no-enable-prefix-caching": None, "max-num-seqs": NUM_STREAMS + 1, "kv-cache-memory-bytes": "400M"}


class TimedFlow(Flow):
    """`times` has when something of each call was read."""

    def __init__(self, address):
        super().__init__(address)
        self.times = {}

    def read(self, call):
        super().read(call)
        self.times.setdefault(call, []).append(time.monotonic())


def prompt_call(num_tokens, seed, at=0.0):
    prompt = [1000 + (7 * i + 31 * seed) % 20000 for i in range(num_tokens)]
    return Call(closing(completion(prompt=prompt, max_tokens=2, ignore_eos=True, stream=True)), at)


def gaps_within(times, began, ended):
    """In ms, of the times that are read between these two."""
    return [1000 * (b - a) for a, b in zip(times, times[1:]) if began < b < ended]


def time_alone(victim, num_tokens, seed):
    """Seconds to the first token of a prompt that nothing runs beside."""
    call = prompt_call(num_tokens, seed)
    Flow(victim.address).run([call], 120)
    return call.first - call.began


@scenario("5.2", "a prompt of 6,000 tokens beside 8 streams")
def long_prompt(stage):
    num_tokens = stage.pick(400, 6000)
    with stage.server(OPTIONS, model=stage.real_model()) as victim:
        alone = time_alone(victim, num_tokens, 0)
        streams = [Call(closing(completion(prompt=[100 + i] * 5, max_tokens=stage.pick(200, 900), ignore_eos=True, stream=True)))
                   for i in range(NUM_STREAMS)]
        prompt = prompt_call(num_tokens, 1, at=stage.pick(0.5, 4))
        flow = TimedFlow(victim.address)
        flow.run([*streams, prompt], 240, tick=lambda now: prompt.ended and all(each.ended for each in streams))
        whole = sum(call.is_whole_stream() for call in [*streams, prompt])
        stage.figure("whole, of the streams and the prompt", f"{whole} of {NUM_STREAMS + 1}", "all", whole == NUM_STREAMS + 1)
        before = [gap for each in streams for gap in gaps_within(flow.times[each], each.first, prompt.began)]
        beside = [gap for each in streams for gap in gaps_within(flow.times[each], prompt.began, prompt.first)]
        stage.figure("gaps before the prompt, and beside it", f"{len(before)}; {len(beside)}", "some", before and beside)
        stage.figure("gaps before: median, p99", f"{percentile(before, 0.5):.0f}, {percentile(before, 0.99):.0f} ms", "-", True)
        stage.figure("gaps beside: median, p99", f"{percentile(beside, 0.5):.0f}, {percentile(beside, 0.99):.0f} ms", "-", True)
        stage.most("longest gap beside the prompt", max(beside), 150, " ms", is_timed=True)
        stage.figure("the prompt's first token: alone, beside", f"{alone:.1f}, {prompt.first - prompt.began:.1f} s", "-", True)


@scenario("5.2", "a long prompt alone, with the time limit of a step and without")
def prompt_alone(stage):
    """In turn, so that a machine that slows down slows both."""
    num_tokens, seconds = stage.pick(400, 3000), {"auto": [], "0": []}
    with stage.server({**OPTIONS, "max-inter-token-ms": "auto"}, model=stage.real_model()) as limited, \
            stage.server({**OPTIONS, "max-inter-token-ms": "0"}, model=stage.real_model()) as free:
        for round_ in range(stage.pick(1, 7)):
            seconds["auto"].append(time_alone(limited, num_tokens, round_))
            seconds["0"].append(time_alone(free, num_tokens, round_))
    with_limit, without = (percentile(seconds[name], 0.5) for name in ("auto", "0"))
    stage.figure("first token with the limit and without, medians", f"{with_limit:.2f}, {without:.2f} s", "-", True)
    stage.most("with, of without", with_limit / without, 1.03, is_timed=True)
