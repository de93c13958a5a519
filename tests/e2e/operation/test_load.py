"""Many streams at once: none waits for all, none changes another, memory holds tokens."""

import asyncio

import openai

from quire_server import NAME

TOPICS = ["the sea", "a clock", "the moon", "bread", "a river", "trains", "snow", "an old map"]


def prompt_of(number):
    return f"Tell me something about {TOPICS[number % len(TOPICS)]}, part {number}:"


async def complete(client, prompt, **fields):
    completion = await client.completions.create(model=NAME, prompt=prompt, **fields)
    return completion.choices[0].text


def gather(server, make_calls):
    """Runs make_calls(client) -> list of coroutines at once and returns their results."""
    async def run():
        async with server.client(cls=openai.AsyncOpenAI) as client:
            return await asyncio.gather(*make_calls(client))
    return asyncio.run(run())


def test_short_request_overtakes_31_long_ones(server):
    """All 32 are served at once; the last and shortest ends while every long one still runs."""
    started, finished = set(), []

    async def long_stream(client, number, all_started):
        stream = await client.completions.create(
            model=NAME, prompt=prompt_of(number), max_tokens=150, temperature=0, stream=True,
            extra_body={"ignore_eos": True})
        async for _ in stream:
            started.add(number)
            if len(started) == 31:
                all_started.set()
        finished.append(number)

    async def short_stream(client, all_started):
        await all_started.wait()
        assert not finished
        await complete(client, "The capital of France is", max_tokens=4, temperature=0)
        finished.append("short")

    async def run():
        all_started = asyncio.Event()
        async with server.client(cls=openai.AsyncOpenAI) as client:
            await asyncio.gather(short_stream(client, all_started),
                                 *(long_stream(client, i, all_started) for i in range(31)))

    asyncio.run(run())
    assert finished[0] == "short"
    assert len(finished) == 32


def seeded(client, number):
    return complete(client, prompt_of(number), max_tokens=100, temperature=0.9, top_p=0.95,
                    seed=number, extra_body={"ignore_eos": True})


def test_output_does_not_depend_on_company_or_memory(server, start_server):
    """Byte for byte: a seeded request alone, among 31 others, and preempted again and again."""
    numbers = list(range(32))
    alone = {i: gather(server, lambda client: [seeded(client, i)])[0] for i in numbers[:4]}
    together = gather(server, lambda client: [seeded(client, i) for i in numbers])
    assert [together[i] for i in alone] == list(alone.values())
    assert len(set(together)) > 28

    tiny = start_server("--max-model-len", 256, "--kv-cache-memory-bytes", "16M")
    assert gather(tiny, lambda client: [seeded(client, i) for i in numbers]) == together
    assert tiny.metrics()["num_preemptions_total"] > 0
    assert tiny.metrics()["kv_blocks_used"] == 0


def test_kv_memory_holds_tokens(start_server):
    """With contexts of several hundred tokens, of which no two begin alike, at most 4 % of the blocks
    in use are not tokens: the only waste is the end of each sequence's last block. Prompts are
    computed in few steps, so that all contexts are that long at once."""
    server = start_server("--max-inter-token-ms", 0)
    tokens = [server.tokenize(f"Part {i}: " + "the quick brown fox jumps over the lazy dog " * 60)
              for i in range(16)]
    waste = []

    async def watch(calls):
        while not calls.done():
            metrics = await asyncio.to_thread(server.metrics)
            if metrics["num_requests_running"] == 16:
                waste.append(metrics["kv_cache_waste_perc"])
            await asyncio.sleep(0.02)

    async def run():
        async with server.client(cls=openai.AsyncOpenAI) as client:
            calls = asyncio.gather(*(
                complete(client, tokens[i][:400 + 7 * i], max_tokens=60, temperature=0,
                         extra_body={"ignore_eos": True}) for i in range(16)))
            await watch(asyncio.ensure_future(calls))
            await calls

    server.wait_idle()
    asyncio.run(run())
    assert len(waste) > 5
    print(f"waste of KV memory: at most {max(waste):.2%} in {len(waste)} samples")
    assert 0 <= max(waste) <= 0.04


def test_more_requests_than_slots(start_server):
    """What does not fit waits; nothing is lost."""
    server = start_server("--max-num-seqs", 3)
    calls = lambda client: [complete(client, prompt_of(i), max_tokens=8, temperature=0)
                            for i in range(12)]
    assert all(gather(server, calls))
