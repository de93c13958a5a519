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

int command_fingerprint(const struct executor_config *config, const struct executor_info *info,
                        const struct model *model, const char *build,
                        char out[static FINGERPRINT_BYTES], struct error *err) {
    const int32_t settings[] = {
        (int32_t)config->quantization,
        info->limits.max_model_len,
        info->limits.block_size,
        info->batch_invariant,
        (int32_t)info->kv_type,
        (int32_t)info->activation_dtype,
        info->num_ranks / info->num_stages, /* that take part in a sum */
    };
    uint8_t digest[CONTENT_HASH_BYTES];
    uint64_t number = 0;
    struct content_hash *hash = content_hash_create();
    if (hash == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the fingerprint");
    content_hash_add(hash, info->model_digest, sizeof(info->model_digest));
    add_template(hash, model->chat_template);
    add_template(hash, model->tool_chat_template);
    content_hash_add(hash, settings, sizeof(settings));
    add_text(hash, build);
    add_text(hash, info->device);
    add_text(hash, info->numerics);
    add_system(hash);
    content_hash_digest(hash, digest);
    content_hash_destroy(hash);
    for (int i = 0; i < 8; i++)
        number = number << 8 | digest[i];
    snprintf(out, FINGERPRINT_BYTES, "quire-%016" PRIx64 "%s", number,
             info->batch_invariant ? "" : "-variant");
    return 0;
}
