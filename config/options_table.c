/* The table. Everything that names an option (flags, YAML keys, environment, --help) reads it; a
 * new option is one entry here and one field in struct options. */
#include "config/options_table.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define FIELD(name) offsetof(struct options, name)
#define KIB ((int64_t)1 << 10)
#define GIB ((int64_t)1 << 30)
#define TIB ((int64_t)1 << 40)

static const struct option_spec table[] = {
    /* --- model --- */
    {.name = "config",
     .type = OPTION_STRING,
     .flags = OPTION_NOT_IN_FILE | OPTION_PATH,
     .offset = FIELD(config),
     .minimum = 1,
     .maximum = 4095,
     .meaning = "YAML file with these options; names as here, without the dashes"},
    {.name = "model",
     .type = OPTION_STRING,
     .flags = OPTION_PATH | OPTION_PER_MODEL | OPTION_REPEATED,
     .offset = FIELD(model),
     .minimum = 1,
     .maximum = 4095,
     .meaning =
         "what to serve: a GGUF file, a Hugging Face folder, or ORG/NAME[@REVISION][:Q4_K_M] "
         "of a hub (`quire pull --help`); repeatable, the first is the default model; the first "
         "word without a name is the same; required"},
    {.name = "models-dir",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(models_dir),
     .minimum = 1,
     .maximum = 4095,
     .meaning = "folder whose GGUF files and model folders are all served, by the names of these"},
    {.name = "models-hub",
     .type = OPTION_FLAG,
     .offset = FIELD(models_hub),
     .default_text = "false",
     .meaning = "serve the models of the hub's cache that are complete, by the names that `quire "
                "list` shows"},
    {.name = "served-model-name",
     .type = OPTION_LIST,
     .flags = OPTION_PER_MODEL | OPTION_FIRST_MODEL,
     .offset = FIELD(served_model_names),
     .minimum = 1,
     .maximum = 255,
     .meaning = "name that clients use; repeatable, the first is reported; *: any other name too; "
                "default: the model's file, folder or ORG/NAME"},
    {.name = "lora-modules",
     .type = OPTION_LIST,
     .flags = OPTION_PER_MODEL | OPTION_FIRST_MODEL,
     .offset = FIELD(lora_modules),
     .minimum = 1,
     .maximum = 4095,
     .meaning =
         "low-rank adapter that requests may name as their model; repeatable: NAME=PATH, or "
         "{\"name\": NAME, \"path\": PATH}; PATH: a PEFT folder, a GGUF file or ORG/NAME of a "
         "hub"},
    {.name = "max-loras",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_loras),
     .default_text = "0",
     .minimum = 0,
     .maximum = 256,
     .meaning = "adapters that can be loaded at a time; 0: as many as --lora-modules"},
    {.name = "max-lora-rank",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_lora_rank),
     .default_text = "0",
     .minimum = 0,
     .maximum = 256,
     .meaning = "largest rank of an adapter, rounded up to a multiple of 8; 0: the largest of "
                "--lora-modules, without these 16"},
    {.name = "lora-dtype",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(lora_dtype),
     .default_text = "auto",
     .choices = "auto float32 float16 bfloat16",
     .meaning = "type in which adapters are held; auto: float16 on a CPU, on a GPU that of its "
                "activations"},
    {.name = "lora-dir",
     .type = OPTION_STRING,
     .flags = OPTION_PATH | OPTION_PER_MODEL,
     .offset = FIELD(lora_dir),
     .minimum = 1,
     .maximum = 4095,
     .meaning = "folder with adapters that administrators may load while the server runs (POST "
                "/v1/load_lora_adapter)"},
    {.name = "chat-template",
     .type = OPTION_STRING,
     .flags = OPTION_PATH | OPTION_PER_MODEL,
     .offset = FIELD(chat_template),
     .minimum = 1,
     .maximum = 4095,
     .meaning = "file of a Jinja chat template to use instead of the model's"},
    {.name = "tool-call-parser",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(tool_call_parser),
     .default_text = "auto",
     .choices =
         "auto none hermes llama3_json mistral qwen3_coder qwen3_xml glm45 glm47 deepseek_v3 "
         "deepseek_v31 kimi_k2 granite granite-20b-fc cohere openai pythonic llama4_pythonic",
     .meaning = "format of the model's tool calls; auto: found in its chat template"},
    {.name = "reasoning-parser",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(reasoning_parser),
     .default_text = "auto",
     .choices =
         "auto none think deepseek_r1 deepseek_v3 qwen3 glm45 kimi_k2 granite granite33 cohere "
         "openai_gptoss",
     .meaning = "format of the model's reasoning; auto: found in its chat template"},
    {.name = "generation-config",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(generation_config),
     .default_text = "auto",
     .choices = "auto none",
     .meaning =
         "sampling defaults; auto: those the model recommends, else llama.cpp's (temperature "
         "0.8, top_k 40, top_p 0.95, min_p 0.05); none: OpenAI's (temperature 1)"},
    {.name = "pooling",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(pooling),
     .default_text = "auto",
     .choices = "auto last mean",
     .meaning = "embeddings whose request does not say: the last token's hidden state, or the mean "
                "of all; auto: as the model's files say, else the last"},
    {.name = "classifier-from-token",
     .type = OPTION_STRING,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(classifier_from_token),
     .minimum = 1,
     .maximum = 255,
     .meaning = "serve scores instead of text: the probability of the second of two tokens, after "
                "the prompt, as in no,yes for Qwen3-Reranker; or one token's logit"},
    {.name = "quantization",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(quantization),
     .default_text = "none",
     .choices = "none int8",
     .meaning = "int8: turn float weights into 8-bit ones while loading"},
    {.name = "verify-weights",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(verify_weights),
     .default_text = "false",
     .meaning =
         "refuse files whose SHA-256 differs from SHA256SUMS, FILE.sha256 or the download's"},
    {.name = "speculative-config",
     .type = OPTION_STRING,
     .flags = OPTION_JSON | OPTION_PER_MODEL,
     .offset = FIELD(speculative_config),
     .minimum = 2,
     .maximum = 1023,
     .meaning =
         "draft tokens and check several in a step, without changing the output: {\"method\": "
         "\"ngram\", \"draft_model\" with \"model\": a small model of the same vocabulary, or "
         "\"mtp\": the model's own layer that predicts further tokens, "
         "\"num_speculative_tokens\": 1 to 16, \"prompt_lookup_max\": 1 to 32, "
         "\"prompt_lookup_min\": 1 to 32}; default: nothing is drafted"},
    /* --- serving --- */
    {.name = "host",
     .type = OPTION_STRING,
     .offset = FIELD(host),
     .default_text = "127.0.0.1",
     .minimum = 1,
     .maximum = 255,
     .meaning = "address to listen on"},
    {.name = "port",
     .type = OPTION_INTEGER,
     .offset = FIELD(port),
     .default_text = "8000",
     .maximum = 65535,
     .meaning = "TCP port; 0: a free one, which the log names"},
    {.name = "uds",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(uds),
     .minimum = 1,
     .maximum = 107,
     .meaning = "path of a UNIX socket to listen on, instead of host and port"},
    {.name = "root-path",
     .type = OPTION_STRING,
     .offset = FIELD(root_path),
     .minimum = 2,
     .maximum = 255,
     .meaning = "path under which a proxy shows this server, as /llm; requests may come with or "
                "without it"},
    {.name = "unknown-params",
     .type = OPTION_CHOICE,
     .offset = FIELD(unknown_params),
     .default_text = "ignore",
     .choices = "ignore reject",
     .meaning = "unknown request fields: list them in X-Ignored-Params, or reject with 400"},
    {.name = "unsupported-schema-keywords",
     .type = OPTION_CHOICE,
     .offset = FIELD(unsupported_schema_keywords),
     .default_text = "reject",
     .choices = "reject ignore",
     .meaning = "uniqueItems, pattern, format and unknown keywords of JSON schemas that cannot be "
                "enforced: reject with 400, or ignore and list them in X-Ignored-Params"},
    {.name = "sse-ping-interval",
     .type = OPTION_INTEGER,
     .offset = FIELD(sse_ping_interval),
     .default_text = "10",
     .minimum = -1,
     .maximum = 3600,
     .meaning =
         "seconds without output on a stream, in the queue and between tokens, after which a "
         "comment (at /v1/messages a ping) is sent; -1: never"},
    {.name = "response-store-bytes",
     .type = OPTION_BYTES,
     .offset = FIELD(response_store_bytes),
     .default_text = "0",
     .maximum = TIB,
     .meaning =
         "memory for stored responses of /v1/responses, which can be fetched, continued with "
         "previous_response_id and made in the background; at least 64K; 0: none are stored"},
    {.name = "enable-prefix-caching",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(enable_prefix_caching),
     .default_text = "true",
     .meaning = "prompts of one API key that begin alike share KV blocks, now and later"},
    {.name = "shutdown-timeout",
     .type = OPTION_INTEGER,
     .offset = FIELD(shutdown_timeout),
     .default_text = "30",
     .maximum = 3600,
     .meaning = "seconds to finish requests in flight after SIGTERM"},
    {.name = "drain-delay",
     .type = OPTION_INTEGER,
     .offset = FIELD(drain_delay),
     .default_text = "0",
     .maximum = 3600,
     .meaning = "seconds after SIGTERM in which requests are still served but /health answers 503, "
                "so that a load balancer sends them elsewhere; --shutdown-timeout begins after it"},
    {.name = "sleep-idle-seconds",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(sleep_idle_seconds),
     .default_text = "0",
     .maximum = 31536000,
     .meaning = "seconds without a request after which the KV cache's memory is given back to the "
                "system; the next request waits until it is there again; 0: never"},
    {.name = "seed",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(seed),
     .default_text = "0",
     .maximum = INT64_MAX,
     .meaning = "base of the seeds of requests without one"},
    /* --- limits --- */
    {.name = "max-model-len",
     .type = OPTION_INTEGER,
     .flags = OPTION_OR_AUTO | OPTION_SUFFIX | OPTION_PER_MODEL,
     .offset = FIELD(max_model_len),
     .default_text = "auto",
     .maximum = 16777216,
     .meaning =
         "tokens of prompt plus output, as 4096 or 32K; auto or 0: what the model was trained "
         "for, or as many as the KV cache has room for"},
    {.name = "max-num-seqs",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_num_seqs),
     .default_text = "0",
     .maximum = 1024,
     .meaning =
         "sequences running at once; 0: 64 on the CPU, 256 on a GPU, 1024 on a GPU of 70 GiB "
         "or more"},
    {.name = "max-queued-requests",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_queued_requests),
     .default_text = "2048",
     .minimum = 1,
     .maximum = 1000000,
     .meaning = "queued requests (429 beyond); one client gets at most half"},
    {.name = "max-queued-tokens",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_queued_tokens),
     .default_text = "1000000",
     .minimum = 1,
     .maximum = TIB,
     .meaning = "queued prompt tokens of one client (429 beyond); of all together, twice as many"},
    {.name = "queue-timeout",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(queue_timeout),
     .default_text = "60",
     .maximum = 86400,
     .meaning = "seconds that a request may be queued before it is answered 503; at once if it is "
                "expected to wait for more than half of that; 0: no limit"},
    {.name = "max-inter-token-ms",
     .type = OPTION_DECIMAL,
     .flags = OPTION_OR_AUTO | OPTION_PER_MODEL,
     .offset = FIELD(max_inter_token_ms),
     .default_text = "auto",
     .maximum = 6000000,
     .meaning = "target time in milliseconds of a step that computes prompts while text is "
                "generated; auto: three times a step without prompts, at least 100; 0: no limit"},
    {.name = "max-connections",
     .type = OPTION_INTEGER,
     .offset = FIELD(max_connections),
     .default_text = "4096",
     .minimum = 1,
     .maximum = 65536,
     .meaning = "open client connections"},
    {.name = "max-connections-per-ip",
     .type = OPTION_INTEGER,
     .offset = FIELD(max_connections_per_ip),
     .default_text = "0",
     .maximum = 65536,
     .meaning = "open connections of one IPv4 address or IPv6 /64; 0: as many as are left for all "
                "others, without a limit for this machine's own"},
    {.name = "max-body-bytes",
     .type = OPTION_BYTES,
     .offset = FIELD(max_body_bytes),
     .default_text = "16M",
     .minimum = KIB,
     .maximum = GIB,
     .meaning = "size of a request's body"},
    {.name = "max-n",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_n),
     .default_text = "1024",
     .minimum = 1,
     .maximum = 16384,
     .meaning = "choices per request (n, best_of)"},
    {.name = "max-logprobs",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_logprobs),
     .default_text = "20",
     .minimum = -1,
     .maximum = 16777216,
     .meaning = "logprobs per token; -1: as many as the vocabulary has"},
    /* --- security --- */
    {.name = "api-key",
     .type = OPTION_LIST,
     .flags = OPTION_SECRET,
     .offset = FIELD(api_keys),
     .minimum = 1,
     .maximum = 255,
     .meaning = "key that clients must send as a bearer token; repeatable"},
    {.name = "api-key-file",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(api_key_file),
     .minimum = 1,
     .maximum = 4095,
     .meaning = "file of more keys: one per line, or YAML with names and limits (`quire key "
                "--help`); read again on SIGHUP"},
    {.name = "ssl-certfile",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(ssl_certfile),
     .minimum = 1,
     .maximum = 4095,
     .meaning =
         "PEM file of the server's certificate and its chain: turns on TLS 1.2 and 1.3; read "
         "again on SIGHUP, like the two files below"},
    {.name = "ssl-keyfile",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(ssl_keyfile),
     .minimum = 1,
     .maximum = 4095,
     .meaning =
         "PEM file of the certificate's private key, not encrypted; default: in ssl-certfile"},
    {.name = "ssl-ca-certs",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(ssl_ca_certs),
     .minimum = 1,
     .maximum = 4095,
     .meaning =
         "PEM file of authorities; every client must then show a certificate of one of them"},
    {.name = "allowed-hosts",
     .type = OPTION_LIST,
     .flags = OPTION_WORDS,
     .offset = FIELD(allowed_hosts),
     .minimum = 1,
     .maximum = 255,
     .meaning =
         "host names in URLs of this server, in addition to IP addresses and localhost; "
         ".NAME: with its subdomains; *: any; default: --host on loopback without a key, else "
         "any"},
    {.name = "allowed-origins",
     .type = OPTION_LIST,
     .flags = OPTION_WORDS,
     .offset = FIELD(allowed_origins),
     .minimum = 1,
     .maximum = 255,
     .meaning =
         "web sites whose pages may use this server, as https://NAME; *: all; default: none"},
    {.name = "allowed-methods",
     .type = OPTION_LIST,
     .flags = OPTION_WORDS,
     .offset = FIELD(allowed_methods),
     .default_text = "*",
     .minimum = 1,
     .maximum = 16,
     .meaning = "methods that pages of those sites may use"},
    {.name = "allowed-headers",
     .type = OPTION_LIST,
     .flags = OPTION_WORDS,
     .offset = FIELD(allowed_headers),
     .default_text = "*",
     .minimum = 1,
     .maximum = 64,
     .meaning = "header fields that pages of those sites may send"},
    {.name = "allow-credentials",
     .type = OPTION_FLAG,
     .offset = FIELD(allow_credentials),
     .default_text = "false",
     .meaning =
         "pages of those sites may send cookies and other credentials, for a proxy in front"},
    {.name = "enable-admin",
     .type = OPTION_FLAG,
     .offset = FIELD(enable_admin),
     .default_text = "false",
     .meaning =
         "serve /sleep, /wake_up, /is_sleeping, /reset_prefix_cache and /server_info: to keys "
         "with admin: true, to the only key, or without keys to clients on this machine"},
    {.name = "admin-socket",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(admin_socket),
     .minimum = 1,
     .maximum = 107,
     .meaning = "path of a UNIX socket, for this user only, that serves /admin/: drain, resume, "
                "flush-cache, log-level, status"},
    {.name = "trust-client-priority",
     .type = OPTION_FLAG,
     .offset = FIELD(trust_client_priority),
     .default_text = "false",
     .meaning =
         "priority orders the requests of all clients, who then take no turns; otherwise only "
         "those of one API key or address"},
    {.name = "trust-request-chat-template",
     .type = OPTION_FLAG,
     .offset = FIELD(trust_request_chat_template),
     .default_text = "false",
     .meaning = "accept chat_template in requests: at most 64 KiB of Jinja, with bounded work"},
    /* --- observability --- */
    {.name = "log-level",
     .type = OPTION_CHOICE,
     .offset = FIELD(log_level),
     .default_text = "info",
     .choices = "error warning info debug",
     .meaning = "least important messages to log"},
    {.name = "access-log",
     .type = OPTION_STRING,
     .flags = OPTION_PATH,
     .offset = FIELD(access_log),
     .default_text = "none",
     .minimum = 1,
     .maximum = 4095,
     .meaning = "file for one JSON line per HTTP request, opened again on SIGHUP; -: stdout, as "
                "fields if that is the systemd journal; none: no log"},
    {.name = "log-prompts",
     .type = OPTION_FLAG,
     .offset = FIELD(log_prompts),
     .default_text = "false",
     .meaning = "the access log also has the first 2048 bytes of each body, prompts included"},
    {.name = "metrics-prefix",
     .type = OPTION_STRING,
     .flags = OPTION_METRIC_NAME,
     .offset = FIELD(metrics_prefix),
     .default_text = "quire:",
     .maximum = 64,
     .meaning = "beginning of every metric's name; vllm: fits vLLM's dashboards"},
    {.name = "metrics-key-names",
     .type = OPTION_CHOICE,
     .offset = FIELD(metrics_key_names),
     .default_text = "admin",
     .choices = "admin all",
     .meaning = "which API keys see the usage of each key, by name, in /metrics: those with admin: "
                "true and the only key, or all"},
    {.name = "otlp-traces-endpoint",
     .type = OPTION_STRING,
     .offset = FIELD(otlp_traces_endpoint),
     .minimum = 1,
     .maximum = 1023,
     .meaning =
         "collector for a span per API call: OTLP as JSON over HTTP or HTTPS, as "
         "http://HOST:4318/v1/traces; a client's traceparent decides whether; default: none"},
    {.name = "kv-events",
     .type = OPTION_STRING,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(kv_events),
     .minimum = 1,
     .maximum = 255,
     .meaning = "tcp://HOST:PORT or ipc://PATH that tells routers over ZeroMQ, in vLLM's format, "
                "which blocks the prefix cache has, token ids of prompts included; default: none"},
    {.name = "kv-events-config",
     .type = OPTION_STRING,
     .flags = OPTION_JSON | OPTION_PER_MODEL,
     .offset = FIELD(kv_events_config),
     .minimum = 2,
     .maximum = 1023,
     .meaning =
         "the same in vLLM's words: {\"enable_kv_cache_events\": true, \"endpoint\": "
         "\"tcp://*:5557\", \"replay_endpoint\": \"tcp://*:5558\", \"topic\": \"kv-events\"}; "
         "default: none"},
    {.name = "record",
     .type = OPTION_STRING,
     .flags = OPTION_PATH | OPTION_PER_MODEL,
     .offset = FIELD(record),
     .minimum = 1,
     .maximum = 4000,
     .meaning = "file that keeps every request, prompts included, and the result of each step, for "
                "`quire replay`; an older one becomes FILE.1; default: none"},
    {.name = "record-max-bytes",
     .type = OPTION_BYTES,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(record_max_bytes),
     .default_text = "256M",
     .minimum = (int64_t)1 << 20,
     .maximum = TIB,
     .meaning = "size of FILE and FILE.1 together; a full file is replaced, and the prefix cache "
                "emptied, when nothing runs"},
    /* --- device --- */
    {.name = "device",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(device),
     .default_text = "auto",
     .choices = "auto cuda cpu cuda-sim",
     .meaning = "where to compute; cuda-sim simulates a GPU, for tests"},
    {.name = "threads",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(threads),
     .default_text = "0",
     .maximum = 1024,
     .meaning = "compute threads; 0: one per available core"},
    {.name = "cpu-isa",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(cpu_isa),
     .default_text = "auto",
     .choices = "auto portable avx2 avxvnni avx512vnni avx512bf16 amx neon dotprod i8mm",
     .meaning = "instruction set of the CPU's kernels; auto: the fastest one here"},
    {.name = "gpu-isa",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(gpu_isa),
     .default_text = "auto",
     .choices = "auto sm_80 sm_89 sm_90 sm_90a",
     .meaning = "instruction set of CUDA's kernels; auto: all that this GPU has"},
    {.name = "dtype",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(dtype),
     .default_text = "auto",
     .choices = "auto bfloat16 float16",
     .meaning = "number format of CUDA's kernels; auto: float16 for F16 models, else bfloat16. The "
                "CPU computes in float; with bfloat16 it rounds before BF16 weights and a bf16 KV "
                "cache where that is faster"},
    {.name = "kv-cache-dtype",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(kv_cache_dtype),
     .default_text = "auto",
     .choices = "auto f32 f16 bf16 int8 fp8 float16 bfloat16 fp8_e4m3",
     .meaning = "number format of the KV cache; int8 and fp8 with a scale for each token and head; "
                "on CUDA --dtype's, int8 or fp8"},
    {.name = "kv-cache-memory-bytes",
     .type = OPTION_BYTES,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(kv_cache_memory_bytes),
     .default_text = "0",
     .maximum = 1024 * TIB,
     .meaning = "memory of the KV cache; 0: chosen from the memory at hand, a GPU's is filled"},
    {.name = "memory",
     .type = OPTION_BYTES,
     .offset = FIELD(memory),
     .default_text = "0",
     .maximum = 1024 * TIB,
     .meaning = "host memory for all models together; 0: chosen from the memory at hand"},
    {.name = "models-max",
     .type = OPTION_INTEGER,
     .offset = FIELD(models_max),
     .default_text = "0",
     .maximum = OPTIONS_MAX_LIST,
     .meaning = "models that are loaded at a time; 0: as many as the memory allows"},
    {.name = "model-turn-seconds",
     .type = OPTION_INTEGER,
     .offset = FIELD(model_turn_seconds),
     .default_text = "10",
     .maximum = 86400,
     .meaning = "seconds that a loaded model which has requests keeps its place while others wait "
                "for it"},
    {.name = "gpu-memory-utilization",
     .type = OPTION_DECIMAL,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(gpu_memory_utilization),
     .default_text = "0.9",
     .minimum = 10,
     .maximum = 100,
     .meaning = "share of a GPU's memory to use, weights and KV cache included, as 0.9 or 90%"},
    {.name = "swap-space",
     .type = OPTION_DECIMAL,
     .flags = OPTION_OR_AUTO | OPTION_PER_MODEL,
     .offset = FIELD(swap_space),
     .default_text = "auto",
     .maximum = 1638400,
     .meaning =
         "GiB of host memory for swapped KV blocks; auto: up to 4 with a GPU, none on the CPU"},
    {.name = "kv-host-bytes",
     .type = OPTION_BYTES,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(kv_host_bytes),
     .default_text = "0",
     .maximum = 1024 * TIB,
     .meaning = "host memory for blocks that the prefix cache has no room for on the device; with "
                "kv-store, 64M for blocks on their way are added; on the CPU a larger "
                "kv-cache-memory-bytes does more"},
    {.name = "packed-cache",
     .type = OPTION_STRING,
     .flags = OPTION_PATH | OPTION_PER_MODEL,
     .offset = FIELD(packed_cache),
     .minimum = 1,
     .maximum = 3900,
     .meaning = "folder for the weights as the CPU computes with them, which the next start maps "
                "instead of reading the model; default: none"},
    {.name = "packed-cache-bytes",
     .type = OPTION_BYTES,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(packed_cache_bytes),
     .default_text = "64G",
     .minimum = (int64_t)1 << 20,
     .maximum = 1024 * TIB,
     .meaning = "size of all files in packed-cache; those used least recently are deleted for a "
                "new one"},
    {.name = "kv-store",
     .type = OPTION_STRING,
     .flags = OPTION_PATH | OPTION_PER_MODEL,
     .offset = FIELD(kv_store),
     .minimum = 1,
     .maximum = 4000,
     .meaning = "folder for the prefix cache's blocks, in which they are found again after a "
                "restart; default: none"},
    {.name = "kv-store-bytes",
     .type = OPTION_BYTES,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(kv_store_bytes),
     .default_text = "8G",
     .minimum = (int64_t)1 << 20,
     .maximum = 1024 * TIB,
     .meaning =
         "size of a model's files in kv-store, which are allocated at once unless it is shared"},
    {.name = "kv-store-key-file",
     .type = OPTION_STRING,
     .flags = OPTION_PATH | OPTION_PER_MODEL,
     .offset = FIELD(kv_store_key_file),
     .minimum = 1,
     .maximum = 4000,
     .meaning = "file with 32 bytes, or 64 hexadecimal digits, with which kv-store is encrypted; "
                "default: it is not"},
    {.name = "kv-store-mode",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(kv_store_mode),
     .default_text = "keep",
     .choices = "keep forget read-only shared shared-read-only",
     .meaning = "forget: each start begins with an empty store; read-only: what others have "
                "stored is found, and nothing is added; shared: servers on several machines use "
                "the folder at once, in a file for each block"},
    {.name = "kv-role",
     .type = OPTION_STRING,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(kv_role),
     .minimum = 1,
     .maximum = 4000,
     .meaning = "prefill: computes prompts that gateways have another server continue "
                "(kv_transfer_params); decode: continues them; both; they hand over in a shared "
                "kv-store; also vLLM's {\"kv_connector\": NAME, \"kv_role\": \"kv_producer\"}, "
                "kv_consumer or kv_both; default: none"},
    {.name = "tensor-parallel-size",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(tensor_parallel_size),
     .default_text = "1",
     .minimum = 1,
     .maximum = 8,
     .meaning = "ranks that share the model: on the CPU best one per NUMA node, on CUDA one GPU "
                "each; or as "
                "many as mpirun started"},
    {.name = "pipeline-parallel-size",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(pipeline_parallel_size),
     .default_text = "1",
     .minimum = 1,
     .maximum = 8,
     .meaning = "stages that share the model's layers, each of tensor-parallel-size ranks, at most "
                "8 ranks in all"},
    /* --- advanced --- */
    {.name = "max-num-batched-tokens",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(max_num_batched_tokens),
     .default_text = "0",
     .maximum = 65536,
     .meaning =
         "tokens computed in one step; 0: 512 on the CPU, 2048 on a GPU, 8192 on a GPU of 70 "
         "GiB or more"},
    {.name = "block-size",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(block_size),
     .default_text = "16",
     .minimum = 16,
     .maximum = 64,
     .choices = "16 32 64",
     .meaning = "tokens in a KV block"},
    {.name = "async-scheduling",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(async_scheduling),
     .default_text = "true",
     .meaning = "plan the next step while one runs, without changing the output"},
    {.name = "batch-invariant",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(batch_invariant),
     .default_text = "false",
     .meaning = "also on CUDA, the output does not depend on what shares the step; slower"},
    {.name = "fp8-activations",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(fp8_activations),
     .default_text = "false",
     .meaning = "on GPUs of compute capability 8.9 and later, round activations to fp8 before "
                "products with fp8 weights, so that both have 8 bits"},
    {.name = "fast-sums",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(fast_sums),
     .default_text = "false",
     .meaning = "on several GPUs, sums by ncclAllReduce: less is sent, and results may depend on "
                "the batch and the run; not with batch-invariant or stages"},
    {.name = "enforce-eager",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(enforce_eager),
     .default_text = "false",
     .meaning = "on CUDA, record no CUDA graphs: less memory, faster start, slower steps"},
    {.name = "load-mode",
     .type = OPTION_CHOICE,
     .offset = FIELD(load_mode),
     .default_text = "shards",
     .choices = "shards broadcast",
     .meaning =
         "how ranks in several processes (mpirun) get the weights; shards: each reads its "
         "part from its own copy of the model; broadcast: rank 0 reads all of it and sends it"},
    {.name = "rank-process",
     .type = OPTION_CHOICE,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(rank_process),
     .default_text = "auto",
     .choices = "auto on off",
     .meaning = "run the device's work in its own process, so that a crash, hang or failure only "
                "pauses the requests; auto: with CUDA"},
    {.name = "device-timeout",
     .type = OPTION_INTEGER,
     .flags = OPTION_PER_MODEL,
     .offset = FIELD(device_timeout),
     .default_text = "60",
     .maximum = 86400,
     .meaning =
         "seconds for a GPU to finish a step, or for a rank process to make progress, before "
         "it counts as failed; 0: no limit"},
    {.name = "rank-timeout",
     .type = OPTION_INTEGER,
     .offset = FIELD(rank_timeout),
     .default_text = "30",
     .minimum = 1,
     .maximum = 86400,
     .meaning = "seconds for a rank in another process (mpirun) to answer before it counts as lost "
                "and all of them end"},
    {.name = "watchdog-sec",
     .type = OPTION_INTEGER,
     .offset = FIELD(watchdog_sec),
     .default_text = "0",
     .maximum = 86400,
     .meaning = "abort if the engine has work but finishes no step for this many seconds; longer "
                "than any real step; 0: never"},
};

#define NUM_OPTIONS (sizeof(table) / sizeof(table[0]))
_Static_assert(NUM_OPTIONS <= OPTIONS_MAX, "OPTIONS_MAX is too small");

const struct option_spec *options_table(size_t *out_count) {
    *out_count = NUM_OPTIONS;
    return table;
}

static const struct option_spec settings[] = {
    {.name = "pin",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = offsetof(struct model_options, is_pinned)},
    {.name = "preload",
     .type = OPTION_FLAG,
     .flags = OPTION_PER_MODEL,
     .offset = offsetof(struct model_options, is_preloaded)},
};
_Static_assert(offsetof(struct model_options, options) == 0, "a setting is set like an option");

const struct option_spec *options_spec(int option) {
    return option < OPTIONS_MAX ? &table[option] : &settings[option - OPTIONS_MAX];
}

static char normalised(char c) {
    return c == '_' ? '-' : c;
}

int options_find(const char *name, size_t length) {
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        if (strlen(table[i].name) != length)
            continue;
        size_t same = 0;
        while (same < length && normalised(name[same]) == table[i].name[same])
            same++;
        if (same == length)
            return (int)i;
    }
    return -1;
}

/* Levenshtein distance of a (at most OPTION_NAME_CAPACITY characters) and b. */
static int edit_distance(const char *a, size_t length, const char *b) {
    int row[OPTION_NAME_CAPACITY + 1];
    for (size_t i = 0; i <= length; i++)
        row[i] = (int)i;
    for (size_t j = 0; b[j] != '\0'; j++) {
        int diagonal = row[0];
        row[0] = (int)j + 1;
        for (size_t i = 0; i < length; i++) {
            int best = diagonal + (normalised(a[i]) != b[j]);
            if (row[i] + 1 < best)
                best = row[i] + 1;
            if (row[i + 1] + 1 < best)
                best = row[i + 1] + 1;
            diagonal = row[i + 1];
            row[i + 1] = best;
        }
    }
    return row[length];
}

/* The option that a peer's flag stands for, or that does its work. */
static const struct option_spec *option_of_peer(const struct peer_flag *flag) {
    int index = flag != NULL && flag->option != NULL
                    ? options_find(flag->option, strlen(flag->option))
                    : -1;
    return index >= 0 ? &table[index] : NULL;
}

static const struct option_spec *meant_by_peer(const char *name, size_t length) {
    char flag[OPTION_NAME_CAPACITY + 3];
    snprintf(flag, sizeof(flag), "--%.*s", (int)length, name);
    return option_of_peer(peer_flag_find(flag, strlen(flag)));
}

const struct option_spec *options_suggest(const char *name, size_t length) {
    if (length > OPTION_NAME_CAPACITY)
        return NULL;
    const struct option_spec *nearest = meant_by_peer(name, length);
    int nearest_distance = nearest != NULL ? 0 : length < 6 ? 3 : 4;
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        int distance = edit_distance(name, length, table[i].name);
        if (distance < nearest_distance) {
            nearest = &table[i];
            nearest_distance = distance;
        }
    }
    return nearest;
}
