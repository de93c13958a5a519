#include "server/program/command_fingerprint.h"

#include "models/files/content_hash.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void add_text(struct content_hash *hash, const char *text) {
    content_hash_add_sized(hash, text, strlen(text));
}

static void add_template(struct content_hash *hash, const char *template) {
    const uint8_t is_there = template != NULL;
    content_hash_add(hash, &is_there, sizeof(is_there));
    if (is_there)
        add_text(hash, template);
}

/* The tables of rotary embeddings and more come from the system's libm. */
static void add_system(struct content_hash *hash) {
    char version[64] = "";
    confstr(_CS_GNU_LIBC_VERSION, version, sizeof(version));
    add_text(hash, version);
}

/* What decides the bits of keys and values, and of logits. */
static void add_computation(struct content_hash *hash, const struct executor_config *config,
                            const struct executor_info *info, int32_t max_model_len,
                            const char *build) {
    const int32_t settings[] = {
        (int32_t)config->quantization,
        max_model_len,
        info->limits.block_size,
        info->batch_invariant,
        (int32_t)info->kv_type,
        (int32_t)info->activation_dtype,
        info->num_ranks / info->num_stages, /* that take part in a sum */
    };
    content_hash_add(hash, info->model_digest, sizeof(info->model_digest));
    content_hash_add(hash, settings, sizeof(settings));
    add_text(hash, build);
    add_text(hash, info->device);
    add_text(hash, info->numerics);
    add_system(hash);
}

int command_fingerprint(const struct executor_config *config, const struct executor_info *info,
                        const struct model *model, const char *build,
                        char out[static FINGERPRINT_BYTES], struct error *err) {
    uint8_t digest[CONTENT_HASH_BYTES];
    uint64_t number = 0;
    struct content_hash *hash = content_hash_create();
    if (hash == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the fingerprint");
    add_template(hash, model->chat_template);
    add_template(hash, model->tool_chat_template);
    add_computation(hash, config, info, info->limits.max_model_len, build);
    content_hash_digest(hash, digest);
    content_hash_destroy(hash);
    for (int i = 0; i < 8; i++)
        number = number << 8 | digest[i];
    snprintf(out, FINGERPRINT_BYTES, "quire-%016" PRIx64 "%s", number,
             info->batch_invariant ? "" : "-variant");
    return 0;
}

/* Returns the longest sequence where the rotary embeddings of all tokens depend on it. */
static int32_t scaling_length(const struct model_config *config, int32_t max_model_len) {
    for (int i = 0; i < MODEL_MAX_ROPES; i++)
        if (config->ropes[i].scaling == ROPE_SCALING_DYNAMIC ||
            config->ropes[i].scaling == ROPE_SCALING_LONGROPE)
            return max_model_len;
    return 0;
}

int command_fingerprint_blocks(const struct executor_config *config,
                               const struct executor_info *info, const struct model *model,
                               const char *build, uint8_t out[static BLOCK_IDENTITY_BYTES],
                               struct error *err) {
    const int32_t layout[] = {info->num_ranks, info->num_stages, info->has_mtp,
                              info->limits.num_groups, info->limits.num_full_groups};
    struct content_hash *hash = content_hash_create();
    if (hash == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the identity of blocks");
    add_computation(hash, config, info, scaling_length(&model->config, info->limits.max_model_len),
                    build);
    content_hash_add(hash, info->draft_digest, sizeof(info->draft_digest));
    content_hash_add(hash, layout, sizeof(layout));
    content_hash_add(hash, info->pool_block_bytes, sizeof(info->pool_block_bytes));
    memset(out, 0, BLOCK_IDENTITY_BYTES);
    content_hash_digest(hash, out);
    content_hash_destroy(hash);
    return 0;
}
