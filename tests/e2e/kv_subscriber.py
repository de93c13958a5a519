"""A subscriber of --kv-events, as a router has one: follows the set of blocks that a server's prefix cache knows. It
decodes with the classes of vLLM v0.28.0 (vllm/distributed/kv_events.py), declared again here, field by field."""

import time
from typing import Any

import msgspec
import zmq

END = 2**64 - 1


class EventBatch(msgspec.Struct, array_like=True, omit_defaults=True, gc=False):
    ts: float
    events: list[Any]
    data_parallel_rank: int | None = None


class KVCacheEvent(msgspec.Struct, omit_defaults=True, gc=False, tag=True):
    pass


class BlockStored(KVCacheEvent):
    block_hashes: list[bytes | int]
    parent_block_hash: bytes | int | None
    token_ids: list[int]
    block_size: int
    lora_id: int | None
    medium: str | None
    lora_name: str | None
    extra_keys: list[tuple[Any, ...] | None] | None = None
    group_idx: int | None = None
    kv_cache_spec_kind: str | None = None
    kv_cache_spec_sliding_window: int | None = None
    locality: str | None = None


class BlockRemoved(KVCacheEvent):
    block_hashes: list[bytes | int]
    medium: str | None
    group_idx: int | None = None
    locality: str | None = None


class AllBlocksCleared(KVCacheEvent):
    pass


class KVEventBatch(EventBatch):
    events: list[BlockStored | BlockRemoved | AllBlocksCleared]


class Subscriber:
    """blocks: hash -> (parent's hash, tokens, extra key). Every event must fit what is known: a parent is known, unless
    the cache was flushed under a running sequence, a stored block was not, a removed one was. Numbers that are missed
    are asked of the replay, if there is one."""

    def __init__(self, endpoint, replay=None, topic="", binds=False):
        self.context = zmq.Context()
        self.socket = self.context.socket(zmq.SUB)
        self.socket.setsockopt_string(zmq.SUBSCRIBE, topic)
        self.socket.setsockopt(zmq.RECONNECT_IVL, 5)  # ms: the server binds later
        self.socket.bind(endpoint) if binds else self.socket.connect(endpoint)
        self.topic, self.replay, self.next = topic.encode(), replay, 0
        self.decoder = msgspec.msgpack.Decoder(KVEventBatch)
        self.blocks, self.hash_of = {}, {}
        self.kept = set()  # hashes of blocks in host memory
        self.stored = self.removed = self.cleared = self.replayed = 0
        self.last = None

    def close(self):
        self.context.destroy(linger=0)

    def forget(self):
        self.blocks.clear()
        self.hash_of.clear()
        self.kept.clear()

    def apply(self, batch):
        assert batch.data_parallel_rank == 0 and abs(batch.ts - time.time()) < 3600 and batch.events
        for event in batch.events:
            self.last = event
            if isinstance(event, AllBlocksCleared):
                self.cleared += 1
                self.forget()
            elif event.medium == "CPU":
                self.follow_host(event)
            elif isinstance(event, BlockRemoved):
                assert event.medium == "GPU" and event.block_hashes
                for block in event.block_hashes:
                    del self.hash_of[self.blocks.pop(block)]
                    self.removed += 1
            else:
                self.store(event)

    def follow_host(self, event):
        hashes = set(event.block_hashes)
        assert len(hashes) == len(event.block_hashes)
        if isinstance(event, BlockRemoved):
            assert hashes <= self.kept
            self.kept -= hashes
        else:
            assert not hashes & self.kept and event.token_ids == [] and event.parent_block_hash is None
            self.kept |= hashes

    def store(self, event):
        size, count = event.block_size, len(event.block_hashes)
        assert (event.lora_id, event.lora_name, event.medium) == (None, None, "GPU")
        assert count > 0 and len(event.token_ids) == count * size
        extra_keys = event.extra_keys or [None] * count
        assert len(extra_keys) == count
        parent = event.parent_block_hash
        for i, (block, extra) in enumerate(zip(event.block_hashes, extra_keys)):
            assert block not in self.blocks and (parent is None or parent in self.blocks or self.cleared)
            content = (parent, tuple(event.token_ids[i * size:(i + 1) * size]), extra)
            assert content not in self.hash_of
            self.blocks[block], self.hash_of[content] = content, block
            self.stored += 1
            parent = block

    def take(self, number, payload):
        assert number == self.next
        self.next += 1
        self.apply(self.decoder.decode(payload))

    def fill_gap(self, end):
        """Asks for what was missed, up to number `end`."""
        assert self.replay, f"missed {self.next} to {end - 1}"
        with self.context.socket(zmq.DEALER) as socket:
            socket.connect(self.replay)
            socket.send_multipart([b"", self.next.to_bytes(8, "big")])
            while True:
                assert socket.poll(20000), "no answer"
                empty, number, payload = socket.recv_multipart()
                number = int.from_bytes(number, "big")
                assert empty == b"" and (number == END) == (payload == b"")
                if number == END:
                    break
                if number < end:
                    self.replayed += 1
                    self.take(number, payload)
        assert self.next == end

    def follow(self, end):
        """Takes every batch before number `end`."""
        while self.next < end:
            if not self.socket.poll(2000):
                self.fill_gap(end)
                break
            topic, number, payload = self.socket.recv_multipart()
            number = int.from_bytes(number, "big")
            assert topic == self.topic
            if number < self.next:
                continue  # the replay had it already
            if number > self.next:
                self.fill_gap(number)
            self.take(number, payload)

    def find(self, tokens, block_size, extra=None):
        """How many tokens of a prompt the server has, by what is known of it: whole blocks, and one is left."""
        parent = None
        for begin in range(0, (len(tokens) - 1) // block_size * block_size, block_size):
            content = (parent, tuple(tokens[begin:begin + block_size]), extra if begin == 0 else None)
            if content not in self.hash_of:
                return begin
            parent = self.hash_of[content]
        return (len(tokens) - 1) // block_size * block_size
