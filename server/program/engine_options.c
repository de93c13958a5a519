#include "server/program/engine_options.h"

#include "config/base/clock.h"
#include "engine/draft/ngram_drafter.h"
#include "engine/executor/process_executor.h"
#include "kernels/kv_type.h"
#include "models/kv_groups.h"
#include "server/keys/auth.h"
#include "config/json/json_read.h"
#include "config/json/json_write.h"
#include "config/serving_limits.h"
#include "config/json/json_field.h"

#include <string.h>
#include <stdio.h>
#include <stdlib.h>

/* vLLM's, where neither is given. */
#define DEFAULT_LOOKUP 5

struct config_body {
    const char *method, *model;
    int32_t num_speculative_tokens, prompt_lookup_max, prompt_lookup_min; /* 0: not given */
};

#define INT32(member, high)                                                                        \
    {                                                                                              \
#member, JSON_FIELD_INT32, .offset = offsetof(struct config_body, member), .min = 1,       \
                                   .max = (high)                                                   \
    }

static const struct json_field fields[] = {
    JSON_TEXT(struct config_body, method),
    JSON_TEXT(struct config_body, model),
    INT32(num_speculative_tokens, MAX_SPECULATIVE_TOKENS),
    INT32(prompt_lookup_max, NGRAM_MAX_LOOKUP),
    INT32(prompt_lookup_min, NGRAM_MAX_LOOKUP),
};

/* vLLM has names for it by model, too. */
static bool is_mtp(const char *method) {
    static const char *const names[] = {"mtp", "deepseek_mtp", "glm4_moe_mtp"};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(method, names[i]) == 0)
            return true;
    return false;
}

/* A model alone says the method, as in vLLM. */
static int check_method(const cJSON *object, const struct config_body *body,
                        struct api_error *err) {
    const char *method = body->method != NULL  ? body->method
                         : body->model != NULL ? "draft_model"
                                               : "";
    bool is_model = strcmp(method, "draft_model") == 0, is_ngram = strcmp(method, "ngram") == 0;
    if (!is_model && !is_ngram && !is_mtp(method))
        return json_refuse(json_member(object, "method"), "method",
                           "\"ngram\", \"draft_model\" or \"mtp\"", err);
    if (!is_model && body->model != NULL)
        return json_refuse(json_member(object, "model"), "model",
                           is_ngram ? "left out with \"method\": \"ngram\""
                                    : "left out with \"method\": \"mtp\"",
                           err);
    size_t length = body->model != NULL ? strlen(body->model) : 0;
    if (is_model && (length == 0 || length >= SPECULATIVE_MODEL_BYTES))
        return json_refuse(json_member(object, "model"), "model",
                           "the draft model: a GGUF file, a folder, or ORG/NAME of a hub", err);
    return 0;
}

static int read_body(const cJSON *object, struct config_body *body, struct api_error *err) {
    char allowed[80];
    if (json_fields_refuse_unknown(object, JSON_TABLE(fields), err) != 0 ||
        json_fields_read(object, JSON_TABLE(fields), body, err) != 0 ||
        check_method(object, body, err) != 0)
        return -1;
    snprintf(allowed, sizeof(allowed), "an integer from 1 to %d", MAX_SPECULATIVE_TOKENS);
    if (body->num_speculative_tokens == 0)
        return json_refuse(json_member(object, "num_speculative_tokens"), "num_speculative_tokens",
                           allowed, err);
    if (body->prompt_lookup_max == 0)
        body->prompt_lookup_max =
            body->prompt_lookup_min != 0 ? body->prompt_lookup_min : DEFAULT_LOOKUP;
    if (body->prompt_lookup_min == 0)
        body->prompt_lookup_min = body->prompt_lookup_max;
    snprintf(allowed, sizeof(allowed), "at most prompt_lookup_max, which is %d",
             body->prompt_lookup_max);
    if (body->prompt_lookup_min > body->prompt_lookup_max)
        return json_refuse(json_member(object, "prompt_lookup_min"), "prompt_lookup_min", allowed,
                           err);
    return 0;
}

int engine_options_read_speculative(const char *text, struct speculative_config *out,
                                    struct error *err) {
    static const struct json_limits limits = {.max_depth = 2, .max_nodes = 64};
    struct error syntax = {0};
    struct config_body body = {0};
    struct api_error why = {0};
    *out = (struct speculative_config){0};
    if (text == NULL)
        return 0;
    cJSON *object = json_read(text, strlen(text), &limits, &syntax);
    if (object == NULL)
        return error_set(err, syntax.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG,
                         "speculative-config: must be a JSON object: %.400s", syntax.message);
    int status = read_body(object, &body, &why);
    if (status == 0 && body.model != NULL)
        snprintf(out->model, sizeof(out->model), "%s", body.model);
    out->is_mtp = status == 0 && body.method != NULL && is_mtp(body.method);
    cJSON_Delete(object);
    if (status != 0)
        return error_set(err, why.status == 503 ? ERROR_MEMORY : ERROR_CONFIG,
                         "speculative-config: %.480s", why.message);
    out->num_speculative_tokens = body.num_speculative_tokens;
    out->prompt_lookup_max = body.prompt_lookup_max;
    out->prompt_lookup_min = body.prompt_lookup_min;
    return 0;
}

int engine_options_write_speculative(const struct speculative_config *config, char **text,
                                     struct error *err) {
    struct byte_buffer out = {0};
    bool has_model = config->model[0] != '\0';
    json_write_begin_object(&out);
    json_write_text_member(&out, "method",
                           config->is_mtp ? "mtp"
                           : has_model    ? "draft_model"
                                          : "ngram");
    if (has_model)
        json_write_text_member(&out, "model", config->model);
    json_write_int_member(&out, "num_speculative_tokens", config->num_speculative_tokens);
    json_write_int_member(&out, "prompt_lookup_max", config->prompt_lookup_max);
    json_write_int_member(&out, "prompt_lookup_min", config->prompt_lookup_min);
    json_write_end_object(&out);
    char *copy = out.failed ? NULL : strndup(out.data, out.length);
    byte_buffer_finish(&out);
    if (copy == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the speculative-config");
    free(*text);
    *text = copy;
    return 0;
}

struct transfer_config {
    const char *kv_connector, *kv_role, *kv_load_failure_policy;
};

static const struct json_field transfer_fields[] = {
    JSON_TEXT(struct transfer_config, kv_connector),
    JSON_TEXT(struct transfer_config, kv_role),
    JSON_TEXT(struct transfer_config, kv_load_failure_policy),
};

/* Returns false, and leaves *out, if there is no such role. */
static bool find_role(const char *word, enum kv_role *out) {
    static const struct {
        const char *names[2]; /* the second is vLLM's */
        enum kv_role role;
    } roles[] = {{{"prefill", "kv_producer"}, KV_ROLE_PREFILL},
                 {{"decode", "kv_consumer"}, KV_ROLE_DECODE},
                 {{"both", "kv_both"}, KV_ROLE_BOTH}};
    for (size_t i = 0; word != NULL && i < sizeof(roles) / sizeof(roles[0]); i++) {
        if (strcmp(word, roles[i].names[0]) != 0 && strcmp(word, roles[i].names[1]) != 0)
            continue;
        *out = roles[i].role;
        return true;
    }
    return false;
}

static int read_transfer_config(const cJSON *object, enum kv_role *out, struct api_error *err) {
    static const char policy[] = "kv_load_failure_policy";
    struct transfer_config config = {0};
    if (json_fields_refuse_unknown(object, JSON_TABLE(transfer_fields), err) != 0 ||
        json_fields_read(object, JSON_TABLE(transfer_fields), &config, err) != 0)
        return -1;
    if (config.kv_load_failure_policy != NULL &&
        strcmp(config.kv_load_failure_policy, "recompute") != 0)
        return json_refuse(json_member(object, policy), policy,
                           "\"recompute\": what is not there is computed", err);
    if (!find_role(config.kv_role, out))
        return json_refuse(json_member(object, "kv_role"), "kv_role",
                           "\"kv_producer\", \"kv_consumer\" or \"kv_both\"", err);
    return 0;
}

int engine_options_read_kv_role(const char *text, enum kv_role *out, struct error *err) {
    static const struct json_limits limits = {.max_depth = 2, .max_nodes = 64};
    struct error syntax = {0};
    struct api_error why = {0};
    *out = KV_ROLE_NONE;
    if (text == NULL || find_role(text, out))
        return 0;
    if (text[0] != '{')
        return error_set(
            err, ERROR_CONFIG,
            "kv-role: \"%.60s\"; must be one of: prefill decode both; or a JSON object "
            "with kv_role",
            text);
    cJSON *object = json_read(text, strlen(text), &limits, &syntax);
    if (object == NULL)
        return error_set(err, syntax.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG,
                         "kv-role: must be a role or a JSON object: %.400s", syntax.message);
    int status = read_transfer_config(object, out, &why);
    cJSON_Delete(object);
    return status == 0 ? 0
                       : error_set(err, why.status == 503 ? ERROR_MEMORY : ERROR_CONFIG,
                                   "kv-role: %.480s", why.message);
}

/* Choices that a queue full of common requests has; one with all that --max-n allows always fits.
 */
#define CHOICES_PER_REQUEST 16

static enum dtype parse_dtype(const char *name) {
    static const struct {
        const char *name;
        enum dtype dtype;
    } names[] = {{"f32", DTYPE_F32},     {"f16", DTYPE_F16},       {"bf16", DTYPE_BF16},
                 {"float16", DTYPE_F16}, {"bfloat16", DTYPE_BF16}, {"int8", DTYPE_Q8_0}};
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
        if (strcmp(name, names[i].name) == 0)
            return names[i].dtype;
    return strcmp(name, "auto") == 0 ? DTYPE_AUTO : DTYPE_NONE;
}

static int check_max_model_len(int64_t requested, int32_t trained, struct error *err) {
    if (requested > trained)
        return error_set(err, ERROR_CONFIG,
                         "max-model-len: %lld; the model was trained for at most %d tokens",
                         (long long)requested, trained);
    int32_t most = requested > 0 ? (int32_t)requested : trained;
    if (most < 2)
        return error_set(err, ERROR_CONFIG,
                         "max-model-len: %d; must be at least 2, a token of prompt and one of "
                         "output",
                         most);
    return 0;
}

static int32_t max_logprobs(const struct options *options, int32_t vocab_size) {
    bool is_all = options->max_logprobs < 0 || options->max_logprobs > vocab_size;
    return is_all ? vocab_size : (int32_t)options->max_logprobs;
}

static size_t swap_bytes_of(double gib) {
    return gib == OPTIONS_AUTO ? EXECUTOR_SWAP_AUTO : (size_t)(gib * (double)((size_t)1 << 30));
}

/* Other ranks would need a draft model each, and would propose the same. */
static int check_ranks(const struct options *options, const struct speculative_config *speculative,
                       struct error *err) {
    long long per_stage = options->tensor_parallel_size;
    long long num_stages = options->pipeline_parallel_size;
    if ((speculative->model[0] == '\0' && !speculative->is_mtp) || per_stage * num_stages == 1)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "speculative-config: %s works with one rank only: %s is %lld, and "
                     "must be 1",
                     speculative->is_mtp ? "mtp" : "a draft model",
                     per_stage > 1 ? "tensor-parallel-size" : "pipeline-parallel-size",
                     per_stage > 1 ? per_stage : num_stages);
}

/* NCCL chooses by the size of a sum, and so by the rows of the step, in which order it adds. It
 * adds up what all ranks have that it connects, of all stages. */
static int check_sums(const struct options *options, struct error *err) {
    if (options->fast_sums && options->pipeline_parallel_size > 1)
        return error_set(err, ERROR_CONFIG,
                         "fast-sums: works with one stage only: pipeline-parallel-size is %lld, "
                         "and must be 1",
                         (long long)options->pipeline_parallel_size);
    if (!options->fast_sums || !options->batch_invariant)
        return 0;
    return error_set(err, ERROR_CONFIG,
                     "fast-sums: cannot be combined with batch-invariant: the order in which "
                     "NCCL adds depends on the size of the step");
}

/* What is on its way between the device and a store. */
#define STORE_HOST_BYTES ((size_t)64 << 20)

/* What one server hands over another one finds only in a folder that both have. */
static int check_role(const struct options *options, struct error *err) {
    enum kv_role role;
    if (engine_options_read_kv_role(options->kv_role, &role, err) != 0)
        return -1;
    if (role == KV_ROLE_NONE)
        return 0;
    if (options->kv_store == NULL)
        return error_set(err, ERROR_CONFIG,
                         "kv-role: needs kv-store, a folder that all servers have, which is not "
                         "set");
    bool may_read = strcmp(options->kv_store_mode, "shared-read-only") == 0;
    if (strcmp(options->kv_store_mode, "shared") == 0 || (may_read && role == KV_ROLE_DECODE))
        return 0;
    return error_set(err, ERROR_CONFIG, "kv-role: needs kv-store-mode shared%s, not %s",
                     role == KV_ROLE_DECODE ? " or shared-read-only" : "", options->kv_store_mode);
}

static int check_tiers(const struct options *options, struct error *err) {
    const char *given = options->kv_store != NULL    ? "kv-store"
                        : options->kv_host_bytes > 0 ? "kv-host-bytes"
                                                     : NULL;
    if (options->kv_store == NULL && options->kv_store_key_file != NULL)
        return error_set(err, ERROR_CONFIG, "kv-store-key-file: is for kv-store, which is not set");
    if (given != NULL && !options->enable_prefix_caching)
        return error_set(err, ERROR_CONFIG, "%s: needs enable-prefix-caching, which is false",
                         given);
    if (options->kv_store != NULL && options->record != NULL)
        return error_set(err, ERROR_CONFIG,
                         "kv-store: cannot be combined with record: a replay does not have the "
                         "blocks that the store had");
    return 0;
}

static enum weights_load_mode parse_load_mode(const char *name) {
    return strcmp(name, "broadcast") == 0 ? WEIGHTS_LOAD_BROADCAST : WEIGHTS_LOAD_SHARDS;
}

int engine_options_executor(const struct options *options, const struct model *model,
                            struct executor_config *out, struct error *err) {
    int32_t vocab_size = model->config.vocab_size, trained = model->config.max_position;
    struct speculative_config speculative;
    if (engine_options_read_speculative(options->speculative_config, &speculative, err) != 0)
        return -1;
    if (check_ranks(options, &speculative, err) != 0 || check_tiers(options, err) != 0 ||
        check_role(options, err) != 0 || check_sums(options, err) != 0 ||
        check_max_model_len(options->max_model_len, trained, err) != 0)
        return -1;
    *out = (struct executor_config){
        .device = options->device,
        .dtype = parse_dtype(options->dtype),
        .kv_type = kv_type_of(options->kv_cache_dtype),
        .quantization = parse_dtype(options->quantization),
        .batch_invariant = options->batch_invariant,
        .fp8_activations = options->fp8_activations,
        .fast_sums = options->fast_sums,
        .enforce_eager = options->enforce_eager,
        .gpu_memory_utilization = options->gpu_memory_utilization,
        .num_threads = (int32_t)options->threads,
        .cpu_isa = options->cpu_isa,
        .gpu_isa = options->gpu_isa,
        .num_ranks = (int32_t)options->tensor_parallel_size,
        .num_stages = (int32_t)options->pipeline_parallel_size,
        .load_mode = parse_load_mode(options->load_mode),
        .device_timeout_s = (int32_t)options->device_timeout,
        .packed_cache = {.folder = options->packed_cache,
                         .max_bytes = (uint64_t)options->packed_cache_bytes},
        .kv_memory_bytes = (size_t)options->kv_cache_memory_bytes,
        .swap_bytes = swap_bytes_of(options->swap_space),
        .kept_bytes =
            (size_t)options->kv_host_bytes + (options->kv_store != NULL ? STORE_HOST_BYTES : 0),
        .shares_host_pools = options->kv_store != NULL,
        .most_model_len = options->max_model_len == 0 ? trained : 0,
        .limits =
            {
                .max_num_seqs = (int32_t)options->max_num_seqs,
                .max_num_batched_tokens = (int32_t)options->max_num_batched_tokens,
                .max_model_len = (int32_t)options->max_model_len,
                .num_speculative_tokens = speculative.num_speculative_tokens,
                .max_logprobs = max_logprobs(options, vocab_size),
                .block_size = (int32_t)options->block_size,
                .vocab_size = vocab_size,
                .hidden_size = model->config.hidden_size,
            },
    };
    kv_groups_choose(&model->config, &out->limits);
    return 0;
}

int engine_options_drafter(const struct options *options, struct drafter **out, struct error *err) {
    struct speculative_config config;
    *out = NULL;
    if (engine_options_read_speculative(options->speculative_config, &config, err) != 0)
        return -1;
    if (config.num_speculative_tokens == 0)
        return 0;
    return ngram_drafter_create(config.prompt_lookup_max, config.prompt_lookup_min, out, err);
}

bool engine_options_have_rank_process(const struct options *options) {
    const char *requested = options->rank_process;
    return strcmp(requested, "auto") == 0 ? process_executor_is_default(options->device)
                                          : strcmp(requested, "on") == 0;
}

int32_t engine_options_call_choices(const struct options *options) {
    return (int32_t)(options->max_n > MAX_PROMPTS ? options->max_n : MAX_PROMPTS);
}

static int64_t max_choices(const struct options *options, int32_t max_num_seqs) {
    int64_t common = CHOICES_PER_REQUEST * (max_num_seqs + options->max_queued_requests);
    int64_t of_call = engine_options_call_choices(options);
    return common > of_call ? common : of_call;
}

struct engine_config engine_options_read(const struct options *options, const struct model *model,
                                         const struct executor_info *info) {
    return (struct engine_config){
        .core.schedule.kv.limits = &info->limits,
        .core.schedule.swap_block_ns = info->swap_block_ns,
        .core.schedule.num_shares = AUTH_MAX_TENANTS,
        /* OPTIONS_AUTO stays negative */
        .core.schedule.max_step_ns =
            (int64_t)(options->max_inter_token_ms * (double)CLOCK_NS_PER_MS),
        .core.schedule.kv.num_tenants = options->api_key_file != NULL ? AUTH_MAX_TENANTS
                                        : options->api_keys.count > 0 ? options->api_keys.count
                                                                      : 1,
        .core.lora = info->lora,
        .core.has_draft_model = info->memory.draft_bytes > 0,
        .core.schedule.has_mtp = info->has_mtp,
        .core.model = &model->config,
        .core.num_stages = info->num_stages,
        .core.schedule.kv.caching = options->enable_prefix_caching,
        .core.schedule.kv.keeps_evicted = options->kv_host_bytes > 0,
        .core.async_scheduling = options->async_scheduling,
        .max_queued_requests = (int32_t)options->max_queued_requests,
        .max_queued_tokens = options->max_queued_tokens,
        .max_choices = max_choices(options, info->limits.max_num_seqs),
    };
}
