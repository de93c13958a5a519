/* Metadata of architecture "llama" to struct model_config. (Keys and defaults: GGUF specification,
 * ggml/docs/gguf.md.)
 *
 * Nothing is taken on trust: a number outside its range is refused, zero never becomes a divisor,
 * and a "llama." key this file does not list is refused too, because ignoring it could silently
 * change what the model says. */
#include "models/model_config.h"

#include "kernels/backend.h"
#include "models/tensor_table.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum {
    MAX_VOCAB = 1 << 22,
    MAX_HIDDEN = 1 << 17,
    MAX_INTERMEDIATE = 1 << 20,
    MAX_HEADS = 1024,
    MAX_CONTEXT = 1 << 24,
};

/* Where keys are looked up and complaints go. */
struct source {
    const struct tensor_file *file;
    struct error *err;
};

static int refuse(const struct source *s, const char *key, const char *reason) {
    return error_set(s->err, ERROR_MODEL, "%s: %s: %s", tensor_file_path(s->file), key, reason);
}

static int read_int(const struct source *s, const char *key, int64_t min, int64_t max,
                    int32_t *out) {
    const struct metadata *entry = tensor_file_find_metadata(s->file, key);
    if (entry == NULL)
        return refuse(s, key, "is missing");
    if (entry->type != METADATA_UINT && entry->type != METADATA_INT)
        return refuse(s, key, "is not an integer");
    bool negative = entry->type == METADATA_INT && entry->as_int < 0;
    if (negative)
        return error_set(s->err, ERROR_MODEL,
                         "%s: %s: %" PRId64 " (allowed: %" PRId64 " to %" PRId64 ")",
                         tensor_file_path(s->file), key, entry->as_int, min, max);
    uint64_t value = entry->as_uint;
    if (value < (uint64_t)min || value > (uint64_t)max)
        return error_set(s->err, ERROR_MODEL,
                         "%s: %s: %" PRIu64 " (allowed: %" PRId64 " to %" PRId64 ")",
                         tensor_file_path(s->file), key, value, min, max);
    *out = (int32_t)value;
    return 0;
}

/* *out keeps its value when the key is absent. */
static int read_optional_int(const struct source *s, const char *key, int64_t min, int64_t max,
                             int32_t *out) {
    if (tensor_file_find_metadata(s->file, key) == NULL)
        return 0;
    return read_int(s, key, min, max, out);
}

static int read_float(const struct source *s, const char *key, double min, double max, float *out) {
    const struct metadata *entry = tensor_file_find_metadata(s->file, key);
    if (entry == NULL)
        return refuse(s, key, "is missing");
    if (entry->type != METADATA_FLOAT)
        return refuse(s, key, "is not a floating point number");
    if (!(entry->as_float >= min && entry->as_float <= max)) /* NaN fails too */
        return error_set(s->err, ERROR_MODEL, "%s: %s: %g (allowed: %g to %g)",
                         tensor_file_path(s->file), key, entry->as_float, min, max);
    *out = (float)entry->as_float;
    return 0;
}

/* Printable, NUL-terminated, cut at a character boundary. */
static void copy_for_people(struct text text, char *out, size_t capacity) {
    size_t length = text.length < capacity - 1 ? text.length : capacity - 1;
    if (length < text.length)
        while (length > 0 && ((unsigned char)text.data[length] & 0xc0) == 0x80)
            length--;
    for (size_t i = 0; i < length; i++) {
        unsigned char c = (unsigned char)text.data[i];
        out[i] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    out[length] = '\0';
}

static bool text_is(struct text text, const char *wanted) {
    return text.length == strlen(wanted) && memcmp(text.data, wanted, text.length) == 0;
}

static int read_architecture(const struct source *s, struct model_config *out) {
    const struct metadata *entry = tensor_file_find_metadata(s->file, "general.architecture");
    if (entry == NULL)
        return refuse(s, "general.architecture", "is missing");
    if (entry->type != METADATA_STRING)
        return refuse(s, "general.architecture", "is not a string");
    copy_for_people(entry->as_string, out->architecture, sizeof(out->architecture));
    if (!text_is(entry->as_string, "llama"))
        return error_set(s->err, ERROR_MODEL,
                         "%s: general.architecture: '%s' is not supported (known: llama)",
                         tensor_file_path(s->file), out->architecture);
    const struct metadata *name = tensor_file_find_metadata(s->file, "general.name");
    if (name != NULL && name->type == METADATA_STRING)
        copy_for_people(name->as_string, out->name, sizeof(out->name));
    return 0;
}

/* --- Keys that are allowed to be there ---------------------------------------------------------
 */

/* Read below, or known not to change results. */
static const char *const known_keys[] = {
    "llama.vocab_size",
    "llama.context_length",
    "llama.embedding_length",
    "llama.block_count",
    "llama.feed_forward_length",
    "llama.attention.head_count",
    "llama.attention.head_count_kv",
    "llama.attention.key_length",
    "llama.attention.value_length",
    "llama.attention.layer_norm_rms_epsilon",
    "llama.rope.dimension_count",
    "llama.rope.freq_base",
    "llama.rope.scaling.type",
    "llama.rope.scaling.finetuned",
    "llama.rope.scaling.original_context_length",
    "llama.tensor_data_layout",
};

/* Features that are off at this value and not supported at any other. */
static const struct {
    const char *key;
    double off;
} neutral_keys[] = {
    {"llama.expert_count", 0.0},
    {"llama.expert_used_count", 0.0},
    {"llama.attention.sliding_window", 0.0},
    {"llama.attention.clamp_kqv", 0.0},
    {"llama.attention.max_alibi_bias", 0.0},
    {"llama.attention.causal", 1.0},
    {"llama.use_parallel_residual", 0.0},
    {"llama.rope.scaling.factor", 1.0},
    {"llama.rope.scaling.attn_factor", 1.0},
    {"llama.rope.scale_linear", 1.0},
    {"llama.logit_scale", 1.0},
    {"llama.residual_scale", 1.0},
    {"llama.embedding_scale", 1.0},
};

static bool is_known(struct text key) {
    for (size_t i = 0; i < sizeof(known_keys) / sizeof(known_keys[0]); i++)
        if (text_is(key, known_keys[i]))
            return true;
    return false;
}

static bool as_number(const struct metadata *entry, double *out) {
    if (entry->type == METADATA_UINT)
        *out = (double)entry->as_uint;
    else if (entry->type == METADATA_INT)
        *out = (double)entry->as_int;
    else if (entry->type == METADATA_FLOAT)
        *out = entry->as_float;
    else
        return false;
    return true;
}

static bool is_neutral(const struct metadata *entry) {
    double value;
    for (size_t i = 0; i < sizeof(neutral_keys) / sizeof(neutral_keys[0]); i++)
        if (text_is(entry->key, neutral_keys[i].key))
            return as_number(entry, &value) && value == neutral_keys[i].off;
    return false;
}

static bool starts_with(struct text text, const char *prefix) {
    return text.length >= strlen(prefix) && memcmp(text.data, prefix, strlen(prefix)) == 0;
}

static int check_keys(const struct source *s) {
    for (size_t i = 0; i < tensor_file_num_metadata(s->file); i++) {
        const struct metadata *entry = tensor_file_metadata(s->file, i);
        if (!starts_with(entry->key, "llama.") || is_known(entry->key) || is_neutral(entry))
            continue;
        return error_set(s->err, ERROR_MODEL,
                         "%s: %.*s: this setting is not supported, and ignoring it could change "
                         "the model's output",
                         tensor_file_path(s->file), text_print_length(entry->key), entry->key.data);
    }
    return 0;
}

static int check_rope_scaling(const struct source *s) {
    static const char key[] = "llama.rope.scaling.type";
    const struct metadata *type = tensor_file_find_metadata(s->file, key);
    if (type == NULL)
        return 0;
    if (type->type != METADATA_STRING)
        return refuse(s, key, "is not a string");
    if (text_is(type->as_string, "none"))
        return 0;
    /* Linear scaling by 1, the only factor check_keys lets through, is none. */
    if (text_is(type->as_string, "linear"))
        return 0;
    char shown[32];
    copy_for_people(type->as_string, shown, sizeof(shown));
    return error_set(s->err, ERROR_MODEL, "%s: %s: '%s' is not supported (supported: none)",
                     tensor_file_path(s->file), key, shown);
}

/* --- Fields ------------------------------------------------------------------------------------
 */

/* The vocabulary's size is that of the tokenizer's list unless a key says so; they must agree. */
static int read_vocab_size(const struct source *s, struct model_config *out) {
    static const char key[] = "llama.vocab_size", list[] = "tokenizer.ggml.tokens";
    const struct metadata *tokens = tensor_file_find_metadata(s->file, list);
    if (tokens == NULL)
        return refuse(s, list, "is missing");
    if (tokens->type != METADATA_ARRAY)
        return refuse(s, list, "is not an array");
    uint64_t count = tokens->as_array.count;
    if (count < 1 || count > MAX_VOCAB)
        return error_set(s->err, ERROR_MODEL, "%s: %s: %" PRIu64 " tokens (allowed: 1 to %d)",
                         tensor_file_path(s->file), list, count, MAX_VOCAB);
    out->vocab_size = (int32_t)count;
    if (read_optional_int(s, key, 1, MAX_VOCAB, &out->vocab_size) != 0)
        return -1;
    if ((uint64_t)out->vocab_size != count)
        return error_set(s->err, ERROR_MODEL, "%s: %s: %d, but %s lists %" PRIu64 " tokens",
                         tensor_file_path(s->file), key, out->vocab_size, list, count);
    return 0;
}

static int read_sizes(const struct source *s, struct model_config *out) {
    if (read_int(s, "llama.block_count", 1, MODEL_MAX_LAYERS, &out->num_layers) != 0 ||
        read_int(s, "llama.context_length", 1, MAX_CONTEXT, &out->max_position) != 0 ||
        read_int(s, "llama.embedding_length", 1, MAX_HIDDEN, &out->hidden_size) != 0 ||
        read_int(s, "llama.feed_forward_length", 1, MAX_INTERMEDIATE, &out->intermediate_size) != 0)
        return -1;
    return read_vocab_size(s, out);
}

static int read_head_dim(const struct source *s, struct model_config *out) {
    static const char key[] = "llama.attention.key_length";
    static const char value_key[] = "llama.attention.value_length";
    if (tensor_file_find_metadata(s->file, key) != NULL) {
        if (read_int(s, key, 1, KV_MAX_HEAD_DIM, &out->head_dim) != 0)
            return -1;
    } else {
        out->head_dim = out->hidden_size / out->num_heads;
        if (out->hidden_size % out->num_heads != 0 || out->head_dim > KV_MAX_HEAD_DIM)
            return error_set(s->err, ERROR_MODEL,
                             "%s: llama.attention.head_count: %d does not divide "
                             "llama.embedding_length %d into heads of at most %d",
                             tensor_file_path(s->file), out->num_heads, out->hidden_size,
                             KV_MAX_HEAD_DIM);
    }
    int32_t value_length = out->head_dim;
    if (read_optional_int(s, value_key, 1, KV_MAX_HEAD_DIM, &value_length) != 0)
        return -1;
    if (value_length != out->head_dim)
        return error_set(s->err, ERROR_MODEL, "%s: %s: %d differs from the keys' %d",
                         tensor_file_path(s->file), value_key, value_length, out->head_dim);
    return 0;
}

/* The limits of every backend's attention. */
static int check_head_dim(const struct source *s, const struct model_config *config) {
    if (config->head_dim % KV_HEAD_DIM_STEP == 0)
        return 0;
    return error_set(s->err, ERROR_MODEL,
                     "%s: llama.attention.key_length (or llama.embedding_length %d / "
                     "llama.attention.head_count %d): heads of %d elements; must be a multiple "
                     "of %d",
                     tensor_file_path(s->file), config->hidden_size, config->num_heads,
                     config->head_dim, KV_HEAD_DIM_STEP);
}

static int read_heads(const struct source *s, struct model_config *out) {
    static const char key[] = "llama.attention.head_count_kv";
    if (read_int(s, "llama.attention.head_count", 1, MAX_HEADS, &out->num_heads) != 0)
        return -1;
    out->num_kv_heads = out->num_heads;
    if (read_optional_int(s, key, 1, out->num_heads, &out->num_kv_heads) != 0)
        return -1;
    if (out->num_heads % out->num_kv_heads != 0)
        return error_set(s->err, ERROR_MODEL,
                         "%s: %s: %d does not divide llama.attention.head_count %d",
                         tensor_file_path(s->file), key, out->num_kv_heads, out->num_heads);
    return read_head_dim(s, out) != 0 ? -1 : check_head_dim(s, out);
}

static int read_rope(const struct source *s, struct model_config *out) {
    static const char key[] = "llama.rope.dimension_count", base[] = "llama.rope.freq_base";
    out->rotary_dim = out->head_dim;
    out->num_ropes = 1;
    out->ropes[0] = (struct rope_config){.theta = 10000.0F, .attention_factor = 1.0F};
    out->rope_interleaved = true; /* llama files have their Q and K rows permuted for it */
    if (read_optional_int(s, key, 2, out->head_dim, &out->rotary_dim) != 0)
        return -1;
    if (out->rotary_dim % 2 != 0)
        return error_set(s->err, ERROR_MODEL, "%s: %s: %d is odd", tensor_file_path(s->file), key,
                         out->rotary_dim);
    if (tensor_file_find_metadata(s->file, base) != NULL &&
        read_float(s, base, 1.0, 1e12, &out->ropes[0].theta) != 0)
        return -1;
    return check_rope_scaling(s);
}

static int read_fields(const struct source *s, struct model_config *out) {
    if (read_architecture(s, out) != 0 || check_keys(s) != 0)
        return -1;
    if (read_sizes(s, out) != 0 || read_heads(s, out) != 0 || read_rope(s, out) != 0)
        return -1;
    if (read_float(s, "llama.attention.layer_norm_rms_epsilon", 1e-12, 1.0, &out->norm_eps) != 0)
        return -1;
    out->pre_norm = true;
    out->attention_scale = 1.0F / sqrtf((float)out->head_dim);
    out->embedding_scale = out->residual_scale = out->logit_scale = 1.0F;
    out->tied_embeddings = tensor_file_find(s->file, "output.weight") == NULL;
    return 0;
}

int model_config_read(const struct tensor_file *file, struct model_config *out, struct error *err) {
    const struct source source = {file, err};
    struct model_config config = {0};
    if (read_fields(&source, &config) != 0)
        return -1;
    *out = config;
    return 0;
}
