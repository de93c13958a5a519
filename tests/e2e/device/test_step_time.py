"""--max-inter-token-ms: chunks sized by time change when a prompt is computed, and nothing of what comes of it."""

from concurrent.futures import ThreadPoolExecutor

import pytest


def complete(server, prompt, **fields):
    answer = server.post("/v1/completions", {"prompt": prompt, "temperature": 0, **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()["choices"][0]


@pytest.mark.parametrize("milliseconds", ["0", "1", "auto"])
def test_a_prompt_beside_streams_is_answered_the_same(start_server, milliseconds):
    server = start_server("--max-inter-token-ms", milliseconds, "--no-enable-prefix-caching")
    prompt = [1000 + 7 * i % 20000 for i in range(700)]
    alone = complete(server, prompt, max_tokens=4, logprobs=2)
    streams = [[100 + i] * 5 for i in range(3)]
    texts = [complete(server, s, max_tokens=60, ignore_eos=True)["text"] for s in streams]
    with ThreadPoolExecutor() as pool:
        running = [pool.submit(complete, server, s, max_tokens=60, ignore_eos=True) for s in streams]
        beside = complete(server, prompt, max_tokens=4, logprobs=2)
        assert [r.result()["text"] for r in running] == texts
    assert beside == alone
