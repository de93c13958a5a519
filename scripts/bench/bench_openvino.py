#!/usr/bin/env python3
"""OpenVINO GenAI in this process, under the load of compare_peers.py: its ContinuousBatchingPipeline, which does paged
attention and batches whatever is under way. Its settings are its own, but for prefix caching, which is off: the
prompts have nothing in common.

  bench_openvino.py MODEL.gguf CACHE_GIB

Says "ready" once it has answered with a token. Then reads jobs, one JSON object a line, and writes what load_client.py
does; ends with its input. At most `streams` requests are under way at a time, and the next one starts when one ends.

  {"streams": 8, "temperature": 1, "requests": [{"prompt": "text", or a list of token ids, "tokens": 128}, ...]}

Needs the package openvino-genai.
"""

import json
import sys
import time

import numpy
import openvino
import openvino_genai


def make_pipeline(model, cache_gib):
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = cache_gib
    scheduler.enable_prefix_caching = False
    return openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU")


def make_config(tokens, temperature, seed):
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.apply_chat_template = tokens, True, False
    config.do_sample = temperature > 0
    if temperature > 0:
        config.temperature, config.rng_seed = temperature, seed
    return config


def encode(pipeline, prompt):
    """The ids as OpenVINO wants them, so that text and ids go the same way."""
    if isinstance(prompt, str):
        return pipeline.get_tokenizer().encode(prompt).input_ids
    return openvino.Tensor(numpy.array([prompt], dtype=numpy.int64))


class Answer:
    def __init__(self, handle, asked, prompt_tokens):
        self.handle, self.asked, self.prompt_tokens = handle, asked, prompt_tokens
        self.sent, self.times = time.perf_counter(), []  # of each token

    def take(self, now):
        """Returns whether it is complete."""
        while self.handle.can_read():
            for output in self.handle.read().values():
                self.times += [now] * len(output.generated_ids)
        return len(self.times) >= self.asked


def microseconds(seconds):
    return round(1e6 * seconds)


def run_load(pipeline, job):
    waiting = list(enumerate(job["requests"]))[::-1]
    answers, under_way = [], []
    start = time.perf_counter()
    while waiting or under_way:
        while waiting and len(under_way) < job["streams"]:
            number, request = waiting.pop()
            ids = encode(pipeline, request["prompt"])
            config = make_config(request["tokens"], job["temperature"], number)
            under_way.append(Answer(pipeline.add_request(number, ids, config), request["tokens"], ids.shape[1]))
            answers.append(under_way[-1])
        pipeline.step()
        now = time.perf_counter()
        under_way = [answer for answer in under_way if not answer.take(now)]
        if under_way and not pipeline.has_non_finished_requests():
            break  # what is left has ended early
    seconds = time.perf_counter() - start
    failed = sum(not answer.times for answer in answers)
    answers = [answer for answer in answers if answer.times]
    return {"seconds": seconds, "cpu_seconds": 0, "cut": 0, "cut_tokens": 0, "reads": 1,
            "answers": [(microseconds(answer.times[-1] - answer.sent), len(answer.times), answer.asked,
                         answer.prompt_tokens) for answer in answers],
            "firsts_us": [microseconds(answer.times[0] - answer.sent) for answer in answers],
            "gaps_us": [microseconds(after - before) for answer in answers
                        for before, after in zip(answer.times, answer.times[1:])],
            "events": sum(len(answer.times) for answer in answers), "failures": failed,
            "errors": ["an answer without tokens"] if failed else []}


def main():
    pipeline = make_pipeline(sys.argv[1], int(sys.argv[2]))
    run_load(pipeline, {"streams": 1, "temperature": 0, "requests": [{"prompt": [1], "tokens": 1}]})
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(run_load(pipeline, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
