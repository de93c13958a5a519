"""/metrics: all that vLLM has (under our prefix or its own), in the format that Prometheus reads, and it counts."""

import math
import time

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from metrics_watch import deltas
from quire_server import NAME

# vllm/v1/metrics/loggers.py, vllm/v1/spec_decode/metrics.py (vLLM 0.27.1). Not here, as nothing here is like it: LoRA
# (lora_requests_info), KV transfer (external_prefix_cache_*), estimated_*_per_gpu and
# kv_block_*_seconds, which vLLM shows on demand only, and corrupted_requests, which it counts on demand only.
GAUGES = {"num_requests_running", "num_requests_waiting", "num_requests_waiting_by_reason", "kv_cache_usage_perc",
          "cache_config_info", "engine_sleep_state"}
COUNTERS = {"prompt_tokens", "prompt_tokens_cached", "prompt_tokens_by_source", "generation_tokens", "request_success",
            "num_preemptions", "prefix_cache_queries", "prefix_cache_hits"}
HISTOGRAMS = {"time_to_first_token_seconds", "inter_token_latency_seconds", "request_time_per_output_token_seconds",
              "e2e_request_latency_seconds", "request_queue_time_seconds", "request_inference_time_seconds",
              "request_prefill_time_seconds", "request_decode_time_seconds", "request_prompt_tokens",
              "request_generation_tokens", "request_max_num_generation_tokens", "request_params_n",
              "request_params_max_tokens", "request_prefill_kv_computed_tokens", "iteration_tokens_total"}
DRAFTS = {"spec_decode_num_drafts", "spec_decode_num_draft_tokens", "spec_decode_num_accepted_tokens",
          "spec_decode_num_accepted_tokens_per_pos"}
# prometheus.io/docs/instrumenting/writing_clientlibs, "Process metrics"
PROCESS = {"process_cpu_seconds": "counter", "process_resident_memory_bytes": "gauge",
           "process_virtual_memory_bytes": "gauge", "process_start_time_seconds": "gauge", "process_open_fds": "gauge",
           "process_max_fds": "gauge"}

# What routers read of each replica, by their sources: sample -> labels that they look at.
ROUTERS = {
    # Gateway API inference extension and llm-d, pkg/epp/framework/plugins/datalayer/extractor/metrics: factories.go, extractor.go
    "endpoint picker": {"vllm:num_requests_waiting": (), "vllm:num_requests_running": (), "vllm:kv_cache_usage_perc": (),
                        "vllm:cache_config_info": ("block_size", "num_gpu_blocks")},
    # vLLM's production stack, src/vllm_router/stats/engine_stats.py
    "production stack": {"vllm:num_requests_running": (), "vllm:num_requests_waiting": (), "vllm:gpu_cache_usage_perc": (),
                         "vllm:gpu_prefix_cache_hits_total": (), "vllm:gpu_prefix_cache_queries_total": ()},
}

# Not vLLM's: what the host does for each step.
STEP_PARTS = {"loop", "schedule", "build", "launch", "wait", "commit"}


def families(server):
    found = list(text_string_to_metric_families(httpx.get(server.url + "/metrics").text))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


@pytest.mark.parametrize("prefix", ["quire:", "vllm:"])
def test_names_and_types(start_server, prefix):
    server = start_server("--metrics-prefix", prefix, "--speculative-config",
                          '{"method": "ngram", "num_speculative_tokens": 2}')
    found = families(server)
    wanted = {**dict.fromkeys(GAUGES, "gauge"), **dict.fromkeys(COUNTERS | DRAFTS, "counter"),
              **dict.fromkeys(HISTOGRAMS, "histogram")}
    assert {name: found[prefix + name].type for name in wanted if prefix + name in found} == wanted
    assert {name: found[name].type for name in PROCESS} == PROCESS
    for family in found.values():
        if family.name not in PROCESS:
            assert family.name.startswith(prefix)
            assert all({"model_name", "engine"} <= sample.labels.keys() for sample in family.samples)


def test_what_routers_read(start_server):
    server = start_server("--metrics-prefix", "vllm:")
    for _ in range(2):
        server.complete("word " * 64, max_tokens=4)
    server.wait_idle()
    found = {sample.name: sample for family in families(server).values() for sample in family.samples}
    for names in ROUTERS.values():
        for name, labels in names.items():
            assert all(int(found[name].labels[label]) > 0 for label in labels), name
    for old, new in (("gpu_cache_usage_perc", "kv_cache_usage_perc"), ("gpu_prefix_cache_hits_total", "prefix_cache_hits_total"),
                     ("gpu_prefix_cache_queries_total", "prefix_cache_queries_total")):
        assert found["vllm:" + old].value == found["vllm:" + new].value
    assert 0 < found["vllm:gpu_prefix_cache_hits_total"].value < found["vllm:gpu_prefix_cache_queries_total"].value


def test_info(server):
    found = families(server)
    labels = found["quire:cache_config_info"].samples[0].labels
    assert int(labels["block_size"]) == 16 and int(labels["num_gpu_blocks"]) > 0
    assert labels["enable_prefix_caching"] == "True" and labels["cache_dtype"]
    labels = found["quire:build_info"].samples[0].labels
    assert labels["version"] == httpx.get(server.url + "/version").json()["version"] and labels["device"]


def test_a_call_counts(start_server):
    server = start_server()
    prompt = server.tokenize("word " * 64)[:64]
    server.complete(prompt, max_tokens=4)
    usage, risen = deltas(server, lambda: server.complete(prompt, max_tokens=5, n=2).usage)
    assert usage.prompt_tokens == 64 and usage.completion_tokens == 10
    cached = usage.prompt_tokens_details.cached_tokens
    assert 0 < cached < 64
    assert risen["prompt_tokens_cached_total"] == cached == risen["request_prefix_cached_tokens_sum"]
    assert risen["request_prefill_kv_computed_tokens_sum"] == 64 - cached
    assert risen["prompt_tokens_by_source_total"] == 64
    assert risen["request_max_num_generation_tokens_sum"] == 5
    for name in ("request_max_num_generation_tokens", "request_prompt_tokens", "request_params_n",
                 "request_prefill_kv_computed_tokens", "request_prefix_cached_tokens", "request_queue_time_seconds"):
        assert risen[name + "_count"] == 1, name
    for name in ("time_to_first_token_seconds", "request_prefill_time_seconds",
                 "request_decode_time_seconds", "e2e_request_latency_seconds", "request_inference_time_seconds"):
        assert risen[name + "_count"] == 2, name
    assert risen["inter_token_latency_seconds_count"] == 8


def step_samples(server):
    """The gap's samples and those of each part's time, (part or None, suffix and le) -> value."""
    found = families(server)
    return {(sample.labels.get("part"), sample.name.rsplit("_", 1)[1] + sample.labels.get("le", "")): sample.value
            for name in ("step_gap_seconds", "step_host_seconds") for sample in found["quire:" + name].samples}


@pytest.mark.parametrize("overlap", [True, False])
def test_every_step_is_timed(start_server, overlap):
    server = start_server(*([] if overlap else ["--no-async-scheduling"]))
    server.wait_idle()
    before = step_samples(server)
    for _ in range(3):
        server.complete("word " * 20, max_tokens=9, extra_body={"ignore_eos": True})
        time.sleep(0.5)  # idle: no gap
    num_steps = server.wait_idle()["engine_steps_total"]
    found = step_samples(server)
    assert {part for part, _ in found} == {None} | STEP_PARTS
    for part in {None} | STEP_PARTS:
        assert found[part, "count"] == found[part, "bucket+Inf"] == num_steps, part
        assert math.isfinite(found[part, "sum"]), part
    assert all(found[part, "sum"] > 0 for part in STEP_PARTS)
    risen = {key: found[key] - before[key] for key in found}
    assert risen[None, "count"] >= 27
    if overlap:
        assert risen[None, "bucket0.0"] > risen[None, "count"] / 2
    else:  # only what comes after a pause has no gap
        assert risen[None, "bucket0.0"] == 3
        assert 0 < risen[None, "sum"] < 0.5


def test_errors_by_cause(start_server):
    server = start_server()

    def errors():
        return {(sample.labels["status"], sample.labels["code"]): sample.value
                for sample in families(server)["quire:http_errors"].samples}

    assert errors() == {}
    for _ in range(2):
        server.post("/v1/completions", {"model": NAME, "prompt": 1})
    httpx.get(server.url + "/nowhere")
    assert errors() == {("400", "invalid_type"): 2, ("404", "not_found"): 1}


def test_the_process(server):
    found = families(server)
    value = {name: found[name].samples[0].value for name in PROCESS}
    assert value["process_cpu_seconds"] > 0
    assert value["process_virtual_memory_bytes"] >= value["process_resident_memory_bytes"] > 1e7
    with open(f"/proc/{server.process.pid}/limits") as limits:
        assert value["process_max_fds"] == int(next(line for line in limits if line.startswith("Max open files")).split()[3])
    assert 10 < value["process_open_fds"] < 200
