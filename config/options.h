/* The options of `quire serve`, read from ONE table that yields the command line flags, the YAML
 * keys, the QUIRE_* environment variables and --help.
 *
 * Precedence: flag > environment > configuration file > default. A name is the same everywhere:
 * `--max-num-seqs`, `max-num-seqs:` (or `max_num_seqs:`) and QUIRE_MAX_NUM_SEQS. For flags,
 * `--batch-invariant` means =true and `--no-batch-invariant` means =false. The command line also
 * takes the model without a name, and the flags of vLLM and llama-server that have a counterpart
 * here or ask for what is so anyway (peer_flags.h).
 *
 * Others set variables with our prefix too. Those that Kubernetes sets in every pod next to a
 * service named "quire" (QUIRE_SERVICE_HOST, QUIRE_PORT=tcp://10.0.0.1:8000,
 * QUIRE_PORT_8000_TCP_PROTO) are not options. Any other unknown one causes a warning. A variable
 * that a flag overrides is not read. */
#ifndef QUIRE_CONFIG_OPTIONS_H
#define QUIRE_CONFIG_OPTIONS_H

#include "config/base/byte_buffer.h"
#include "config/base/error.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define OPTIONS_MAX_LIST 64
#define OPTIONS_AUTO (-1.0) /* value of a number >= 0 that the program chooses */

/* Owned strings; freed by options_finish. */
struct option_list {
    int count;
    char *items[OPTIONS_MAX_LIST];
};

struct options {
    char *config; /* path of the YAML file, or NULL */
    char *model;  /* GGUF file, Hugging Face folder or hub name; required. Given several times, this
                     is the last: model_options.h has them all */
    char *models_dir;                      /* folder whose models are all served, or NULL */
    bool models_hub;                       /* so are those of the hub's cache */
    struct option_list served_model_names; /* empty: the file's or folder's name */
    struct option_list lora_modules;       /* NAME=PATH, or vLLM's JSON objects */
    int64_t max_loras;                     /* adapters at a time; 0: as many as lora_modules */
    int64_t max_lora_rank;                 /* 0: the largest of lora_modules, or 16 */
    char *lora_dtype;                      /* auto, float32, float16, bfloat16 */
    char *lora_dir;                    /* from which administrators may load adapters, or NULL */
    char *unknown_params;              /* ignore; reject */
    char *unsupported_schema_keywords; /* reject; ignore */
    char *pooling;                     /* auto; last; mean */
    char *classifier_from_token;       /* "no,yes"; NULL: none */
    char *chat_template; /* file of a Jinja template that replaces the model's, or NULL */
    bool trust_request_chat_template; /* a request may bring one */
    char *tool_call_parser;           /* auto, none, or a form of tool calls */
    char *reasoning_parser;           /* auto, none, or a form of thinking */
    char *generation_config;          /* auto: the sampling defaults that the model recommends, or
                                         llama.cpp's; none */
    bool verify_weights;              /* compare the model's files with their known SHA-256 */
    char *quantization; /* none; int8: float weights become Q8_0 while they are loaded */

    char *host; /* address to bind, default 127.0.0.1 */
    int64_t port;
    char *uds;       /* UNIX socket path; replaces host and port when set */
    char *root_path; /* "/name", or NULL */
    char *ssl_certfile, *ssl_keyfile, *ssl_ca_certs; /* PEM files, or NULL */
    char *admin_socket;                              /* UNIX socket path for /admin/, or NULL */
    struct option_list api_keys;
    char *api_key_file;                 /* read at start and on SIGHUP, or NULL */
    bool enable_admin;                  /* routes of administrators on the port of clients */
    bool trust_client_priority;         /* it also orders requests across keys and addresses */
    struct option_list allowed_hosts;   /* names in URLs of this server; empty: see help */
    struct option_list allowed_origins; /* origins of other sites' pages; empty: none */
    struct option_list allowed_methods, allowed_headers; /* what such pages may send */
    bool allow_credentials;
    int64_t max_connections;
    int64_t max_connections_per_ip; /* 0: as many as all other addresses leave */
    int64_t max_body_bytes;
    int64_t response_store_bytes; /* memory for stored responses; 0: none are stored */
    int64_t shutdown_timeout;     /* seconds to finish what is in flight after SIGTERM */
    int64_t sleep_idle_seconds;   /* without a request before the engine sleeps; 0: never */
    int64_t drain_delay;  /* seconds before the shutdown in which requests are still accepted */
    int64_t watchdog_sec; /* seconds without progress before abort; 0: never */
    char *metrics_prefix;
    char *metrics_key_names;    /* admin, all: who may see the usage of keys */
    char *record;               /* path of the recording, or NULL */
    int64_t record_max_bytes;   /* of the recording and the one before it together */
    char *access_log;           /* path, "-" for stdout, or "none" */
    bool log_prompts;           /* the access log contains the beginning of each body */
    char *otlp_traces_endpoint; /* URL of a collector, or NULL */
    char *kv_events;            /* endpoint to publish the prefix cache's blocks on, or NULL */
    char *kv_events_config;     /* JSON object with more settings, or NULL */
    char *log_level;            /* error, warning, info, debug */

    int64_t memory;             /* bytes of host memory for all models; 0: chosen */
    int64_t models_max;         /* loaded at a time; 0: as many as the memory allows */
    int64_t model_turn_seconds; /* that a model with requests keeps its place */

    char *device; /* auto, cuda, cpu, cuda-sim */
    char *dtype;  /* auto, bfloat16, float16: type of a GPU's activations */
    double gpu_memory_utilization;
    int64_t rank_timeout;   /* seconds for a rank in another process to answer */
    char *load_mode;        /* shards, broadcast: how processes read the model */
    char *rank_process;     /* auto, on, off */
    int64_t device_timeout; /* seconds for a GPU to finish a step, or for a rank process to make
                               progress; 0: no limit */
    bool batch_invariant;   /* on CUDA; the CPU always is */
    bool fp8_activations;   /* on CUDA: products with fp8 weights round activations to fp8 */
    bool fast_sums;         /* among GPUs: sums in an order of NCCL's choice */
    bool enforce_eager;     /* on CUDA: decode steps are enqueued op by op */
    int64_t threads;        /* compute threads; 0: one per available core */
    char *cpu_isa;          /* auto, or the level of backend_config.isa */
    char *gpu_isa;          /* likewise, of CUDA */
    int64_t tensor_parallel_size;   /* ranks on a CPU, which share its threads; or on GPUs */
    int64_t pipeline_parallel_size; /* stages, each of that many ranks */

    int64_t max_model_len;          /* tokens; 0: what the model was trained for, or what fits */
    int64_t max_num_seqs;           /* 0: by device */
    int64_t max_num_batched_tokens; /* token budget of one step; 0: by device */
    double max_inter_token_ms;      /* target time of a step while sequences decode; OPTIONS_AUTO:
                                       derived from what decoding alone takes; 0: no limit */
    int64_t block_size;             /* tokens per KV block */
    int64_t kv_cache_memory_bytes;  /* 0: chosen from the available memory; a GPU's is filled */
    char *kv_cache_dtype;           /* a name of kernels/kv_type.h */
    double swap_space;              /* GiB of host memory; OPTIONS_AUTO: by device */
    int64_t kv_host_bytes;          /* of host memory for what the prefix cache loses; 0: none */
    char *packed_cache;             /* folder with packed weights, or NULL */
    int64_t packed_cache_bytes;     /* of all files there */
    char *kv_store;                 /* folder with KV blocks that outlive the server, or NULL */
    int64_t kv_store_bytes;         /* of each model's files there */
    char *kv_store_key_file;        /* they are encrypted; NULL: they are not */
    char *kv_store_mode;            /* keep, forget, read-only, shared, shared-read-only */
    char *kv_role;                  /* a role or vLLM's JSON object; NULL: none */
    bool enable_prefix_caching;     /* equal prefixes of prompts are computed once */
    bool async_scheduling;          /* the next step is planned while one runs */
    char *speculative_config;       /* JSON object, or NULL: nothing is drafted */
    int64_t max_queued_requests;
    int64_t max_queued_tokens;
    int64_t queue_timeout;     /* seconds; 0: none */
    int64_t sse_ping_interval; /* seconds; 0 or -1: no pings */
    int64_t max_n;             /* choices of one prompt */
    int64_t max_logprobs;      /* of one token; -1: all */
    int64_t seed;              /* base of the seeds of requests without a seed */
};

/* Reads argv (without the program and subcommand names), the environment and the configuration
 * file into *out. On failure returns -1 with ERROR_CONFIG: one line with the option, where it came
 * from, its value and what is allowed; *out then holds nothing to free. */
int options_load(int argc, char *const *argv, char *const *environ, struct options *out,
                 struct error *err);

/* Says what options_load refused with *first: writes a line for each mistake on the command line,
 * at most 32, and *first if it is not one of them. */
void options_list_mistakes(int argc, char *const *argv, const struct error *first,
                           void (*write)(void *context, const char *line), void *context);

/* Logs what other servers' flags in argv, which options_load accepted, are here. */
void options_log_flags(int argc, char *const *argv);

/* Overwrites the values of secret options in argv's bytes, so that process listings do not show
 * them. Call it after options_load accepted argv. */
void options_hide_secrets(int argc, char *const *argv);

/* Logs a warning for each QUIRE_* variable that is not an option: a typing error, or not meant for
 * us. Call it after log_set_level. */
void options_warn_of_variables(char *const *environ);

/* Writes the value of the named option, which is neither a list nor a secret, in the form that
 * options_load reads. Returns false when it has no value or the value does not fit. */
bool options_print(const struct options *options, const char *name, char *out, size_t capacity);

enum option_value_kind {
    OPTION_VALUE_NONE, /* not given, and without a default */
    OPTION_VALUE_TEXT,
    OPTION_VALUE_INTEGER,
    OPTION_VALUE_DECIMAL,
    OPTION_VALUE_FLAG,
    OPTION_VALUE_LIST,
    OPTION_VALUE_SECRET, /* given, but not to be shown */
};

struct option_value {
    const char *name; /* as on the command line */
    enum option_value_kind kind;
    const char *text; /* owned by the options */
    int64_t integer;
    double decimal;
    bool flag;
    const struct option_list *list;
};

/* Fills in the option with this index, in the order of --help. Returns false after the last one.
 * Secret are the options marked OPTION_SECRET, and URLs with a user or a password. */
bool options_get(const struct options *options, size_t index, struct option_value *out);

/* Returns whether the option with this index concerns a model or its engine, and may be set for one
 * of several. */
bool options_are_per_model(size_t index);

/* Frees what options_load allocated; accepts a zeroed struct. */
void options_finish(struct options *options);

/* Appends the text of --help, wrapped at width columns. group NULL: the names of all options, by
 * group. "all" or the name of a group: each option with default, range and meaning. For any other
 * name, appends the list of groups and returns false. */
bool options_help(const char *group, size_t width, struct byte_buffer *out);

#endif
