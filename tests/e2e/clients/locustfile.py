"""A load for test_locust.py: users that chat, streamed and whole, complete and embed. A request fails also when its
answer is not what it is to be."""

import json
import random

from locust import HttpUser, constant, task

NAME = "smollm2"
MAX_TOKENS = 8


class User(HttpUser):
    wait_time = constant(0)

    def ask(self, path, **fields):
        fields = {"model": NAME, "max_tokens": MAX_TOKENS, "ignore_eos": True, **fields}
        return self.client.post(path, json=fields, stream=fields.get("stream", False), catch_response=True)

    def messages(self):
        return [{"role": "user", "content": f"Tell me about the number {random.randrange(1000)}."}]

    def check_usage(self, response, usage):
        if usage["completion_tokens"] != MAX_TOKENS or usage["prompt_tokens"] < 8:
            response.failure(f"implausible usage {usage}")

    @task
    def chat(self):
        with self.ask("/v1/chat/completions", messages=self.messages()) as response:
            self.check_usage(response, response.json()["usage"])

    @task
    def chat_streamed(self):
        fields = {"messages": self.messages(), "stream": True, "stream_options": {"include_usage": True}}
        with self.ask("/v1/chat/completions", **fields) as response:
            events = [line[6:] for line in response.iter_lines() if line]
            if events[-1] != b"[DONE]":
                response.failure("the stream was cut")
            self.check_usage(response, json.loads(events[-2])["usage"])

    @task
    def complete(self):
        with self.ask("/v1/completions", prompt="The history of paper begins with the first scribes") as response:
            self.check_usage(response, response.json()["usage"])

    @task
    def embed(self):
        self.client.post("/v1/embeddings", json={"model": NAME, "input": "a quire of paper"})
