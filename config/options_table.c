/* The table. Everything that names an option (flags, YAML keys, environment, --help) reads it; a
 * new option is one line here and one field in struct options. */
#include "config/options_table.h"

#include <limits.h>
#include <string.h>

#define FIELD(name) offsetof(struct options, name)
#define KIB ((int64_t)1 << 10)
#define GIB ((int64_t)1 << 30)
#define TIB ((int64_t)1 << 40)

static const struct option_spec table[] = {
    {"config", OPTION_STRING, OPTION_NOT_IN_FILE, FIELD(config), NULL, 1, 4095, NULL,
     "YAML file with these options, names as here without the dashes"},
    {"model", OPTION_STRING, 0, FIELD(model), NULL, 1, 4095, NULL,
     "GGUF file or Hugging Face folder to serve; required"},
    {"served-model-name", OPTION_LIST, 0, FIELD(served_model_names), NULL, 1, 255, NULL,
     "name clients use; repeatable, the first is reported; default: the model's file or folder"},
    {"unknown-params", OPTION_CHOICE, 0, FIELD(unknown_params), "ignore", 0, 0, "ignore reject",
     "fields of a request that are not known: name them in X-Ignored-Params, or answer 400"},
    {"pooling", OPTION_CHOICE, 0, FIELD(pooling), "last", 0, 0, "last mean",
     "embeddings whose request does not say: the last token's state, or the mean of all"},
    {"chat-template", OPTION_STRING, 0, FIELD(chat_template), NULL, 1, 4095, NULL,
     "file of a Jinja chat template to use instead of the model's"},
    {"tool-call-parser", OPTION_CHOICE, 0, FIELD(tool_call_parser), "auto", 0, 0,
     "auto none hermes llama3_json mistral",
     "how the model writes tool calls; auto: as its chat template tells"},
    {"reasoning-parser", OPTION_CHOICE, 0, FIELD(reasoning_parser), "auto", 0, 0,
     "auto none think deepseek_r1 qwen3",
     "how the model writes what it thinks; auto: as its chat template tells"},
    {"generation-config", OPTION_CHOICE, 0, FIELD(generation_config), "auto", 0, 0, "auto none",
     "sampling defaults of a folder's generation_config.json; none: OpenAI's"},
    {"quantization", OPTION_CHOICE, 0, FIELD(quantization), "none", 0, 0, "none int8",
     "on the CPU, int8 turns float weights into 8-bit ones while loading"},
    {"verify-weights", OPTION_FLAG, 0, FIELD(verify_weights), "false", 0, 0, NULL,
     "refuse files whose SHA-256 is another than SHA256SUMS, FILE.sha256 or the download says"},
    {"host", OPTION_STRING, 0, FIELD(host), "127.0.0.1", 1, 255, NULL, "address to listen on"},
    {"port", OPTION_INTEGER, 0, FIELD(port), "8000", 0, 65535, NULL,
     "TCP port; 0 takes a free one and logs it"},
    {"uds", OPTION_STRING, 0, FIELD(uds), NULL, 1, 107, NULL,
     "UNIX socket path to listen on instead of host and port"},
    {"api-key", OPTION_LIST, OPTION_SECRET, FIELD(api_keys), NULL, 1, 255, NULL,
     "key that clients must send as a bearer token; repeatable"},
    {"api-key-file", OPTION_STRING, 0, FIELD(api_key_file), NULL, 1, 4095, NULL,
     "file of more such keys, one in a line, # before comments; read again on SIGHUP"},
    {"allowed-hosts", OPTION_LIST, OPTION_WORDS, FIELD(allowed_hosts), NULL, 1, 255, NULL,
     "names in URLs of this server beside IP addresses and localhost, .NAME with its subdomains, * "
     "any; default: on loopback without a key --host, else any"},
    {"allowed-origins", OPTION_LIST, OPTION_WORDS, FIELD(allowed_origins), NULL, 1, 255, NULL,
     "web sites whose pages may use this server, as https://NAME, or * for all; default: none"},
    {"allowed-methods", OPTION_LIST, OPTION_WORDS, FIELD(allowed_methods), "*", 1, 16, NULL,
     "methods that pages of those sites may use"},
    {"allowed-headers", OPTION_LIST, OPTION_WORDS, FIELD(allowed_headers), "*", 1, 64, NULL,
     "header fields that pages of those sites may send"},
    {"allow-credentials", OPTION_FLAG, 0, FIELD(allow_credentials), "false", 0, 0, NULL,
     "pages of those sites may send cookies and the like, for a proxy in front"},
    {"max-connections", OPTION_INTEGER, 0, FIELD(max_connections), "4096", 1, 65536, NULL,
     "open client connections"},
    {"max-body-bytes", OPTION_BYTES, 0, FIELD(max_body_bytes), "16M", KIB, GIB, NULL,
     "size of a request body"},
    {"shutdown-timeout", OPTION_INTEGER, 0, FIELD(shutdown_timeout), "30", 0, 3600, NULL,
     "seconds to finish requests in flight after SIGTERM"},
    {"metrics-prefix", OPTION_STRING, OPTION_METRIC_NAME, FIELD(metrics_prefix), "quire:", 0, 64,
     NULL, "start of every metric's name; vllm: fits vLLM's dashboards"},
    {"log-level", OPTION_CHOICE, 0, FIELD(log_level), "info", 0, 0, "error warning info debug",
     "least important messages to log"},
    {"device", OPTION_CHOICE, 0, FIELD(device), "auto", 0, 0, "auto cuda cpu cuda-sim",
     "where to compute; cuda-sim simulates a card, for tests"},
    {"dtype", OPTION_CHOICE, 0, FIELD(dtype), "auto", 0, 0, "auto bfloat16 float16",
     "numbers CUDA computes with; auto: float16 for F16 models; the CPU computes in float"},
    {"gpu-memory-utilization", OPTION_DECIMAL, 0, FIELD(gpu_memory_utilization), "0.9", 10, 100,
     NULL, "share of a card's memory to use, weights and KV cache included"},
    {"batch-invariant", OPTION_FLAG, 0, FIELD(batch_invariant), "false", 0, 0, NULL,
     "on CUDA too, the output never depends on what shares the step; slower"},
    {"threads", OPTION_INTEGER, 0, FIELD(threads), "0", 0, 1024, NULL,
     "compute threads; 0: one per available core"},
    {"max-model-len", OPTION_INTEGER, 0, FIELD(max_model_len), "0", 0, 16777216, NULL,
     "tokens of prompt plus output; 0: what the model was trained for"},
    {"max-num-seqs", OPTION_INTEGER, 0, FIELD(max_num_seqs), "0", 0, 1024, NULL,
     "sequences running at once; 0: 256 on CUDA, 64 on the CPU"},
    {"max-num-batched-tokens", OPTION_INTEGER, 0, FIELD(max_num_batched_tokens), "0", 0, 65536,
     NULL, "tokens computed in one step; 0: 2048 on CUDA, 512 on the CPU"},
    {"block-size", OPTION_INTEGER, 0, FIELD(block_size), "16", 16, 64, "16 32 64",
     "tokens in a KV block"},
    {"kv-cache-memory-bytes", OPTION_BYTES, 0, FIELD(kv_cache_memory_bytes), "0", 0, 1024 * TIB,
     NULL, "memory of the KV cache; 0: chosen from the memory at hand, a card's is filled"},
    {"kv-cache-dtype", OPTION_CHOICE, 0, FIELD(kv_cache_dtype), "auto", 0, 0, "auto f32 f16 bf16",
     "numbers in the KV cache; on CUDA those of --dtype"},
    {"swap-space", OPTION_DECIMAL, OPTION_OR_AUTO, FIELD(swap_space), "auto", 0, 1638400, NULL,
     "GiB of host memory for KV blocks swapped out; auto: up to 4 beside a card, none on the CPU"},
    {"enable-prefix-caching", OPTION_FLAG, 0, FIELD(enable_prefix_caching), "true", 0, 0, NULL,
     "prompts of one API key that begin alike share KV blocks, also later"},
    {"max-queued-requests", OPTION_INTEGER, 0, FIELD(max_queued_requests), "1024", 1, 1000000, NULL,
     "requests waiting to run; more are answered 429"},
    {"max-queued-tokens", OPTION_INTEGER, 0, FIELD(max_queued_tokens), "1000000", 1, TIB, NULL,
     "prompt tokens waiting to run; more are answered 429"},
    {"max-n", OPTION_INTEGER, 0, FIELD(max_n), "1024", 1, 16384, NULL,
     "choices a request may ask for (n, best_of)"},
    {"max-logprobs", OPTION_INTEGER, 0, FIELD(max_logprobs), "20", -1, 16777216, NULL,
     "logprobs a request may ask for of each token; -1: as many as the vocabulary has"},
    {"seed", OPTION_INTEGER, 0, FIELD(seed), "0", 0, INT64_MAX, NULL,
     "base of the seeds of requests that bring none"},
};

#define NUM_OPTIONS (sizeof(table) / sizeof(table[0]))

const struct option_spec *options_table(size_t *out_count) {
    *out_count = NUM_OPTIONS;
    return table;
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

const struct option_spec *options_suggest(const char *name, size_t length) {
    if (length > OPTION_NAME_CAPACITY)
        return NULL;
    const struct option_spec *nearest = NULL;
    int nearest_distance = length < 6 ? 3 : 4;
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        int distance = edit_distance(name, length, table[i].name);
        if (distance < nearest_distance) {
            nearest = &table[i];
            nearest_distance = distance;
        }
    }
    return nearest;
}
