#include "engine/record/record_header.h"

#include "models/kv_groups.h"

#include <inttypes.h>
#include <stddef.h>
#include <string.h>

#define MAX_BYTES (INT64_C(1) << 50)

static const char magic[] = "quire recording";

/* What is written is what is compared: one table for all of it. */
enum field_type { FIELD_TEXT, FIELD_DIGEST, FIELD_INT32, FIELD_INT64, FIELD_BOOL };

struct field {
    const char *name;
    enum field_type type;
    size_t offset, bytes;
    int64_t min, max;
    bool is_compared;
    const char *hint; /* how to make it the same; may be NULL */
};

#define NAMED(title, type, member, low, high, compared, how)                                       \
    {                                                                                              \
        title, type, offsetof(struct record_header, member),                                       \
            sizeof(((struct record_header *)NULL)->member), low, high, compared, how               \
    }
#define OF(type, member, low, high, compared, how)                                                 \
    NAMED(#member, type, member, low, high, compared, how)
/* Of the core, not compared. */
#define OF_CORE(type, title, member, low, high)                                                    \
    NAMED(title, type, core.member, low, high, false, NULL)

static const struct field fields[] = {
    OF(FIELD_TEXT, options, 0, 0, false, NULL),
    OF(FIELD_TEXT, build, 0, 0, false, NULL),
    OF(FIELD_DIGEST, model_digest, 0, 0, true, "the weights are not the same; --model"),
    OF(FIELD_DIGEST, draft_digest, 0, 0, true,
       "the draft model is not the same; --speculative-config"),
    OF(FIELD_TEXT, device, 0, 0, true, "--device"),
    OF(FIELD_TEXT, numerics, 0, 0, true, "--cpu-isa or --gpu-isa"),
    OF(FIELD_TEXT, kv_type, 0, 0, true, NULL),
    OF(FIELD_TEXT, activation_dtype, 0, 0, true, NULL),
    OF(FIELD_INT32, num_ranks, 1, BACKEND_MAX_RANKS, true, NULL),
    OF(FIELD_INT32, num_stages, 1, BACKEND_MAX_RANKS, true, NULL),
    OF(FIELD_BOOL, batch_invariant, 0, 1, true, NULL),
    OF(FIELD_INT64, kv_bytes, 1, MAX_BYTES, false, NULL),
    OF(FIELD_INT64, swap_bytes, 0, MAX_BYTES, false, NULL),
    OF(FIELD_INT32, limits.max_num_seqs, 1, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.max_num_batched_tokens, 1, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.max_logit_rows, 0, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.max_model_len, 1, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.num_speculative_tokens, 0, MAX_SPECULATIVE_TOKENS, true, NULL),
    OF(FIELD_INT32, limits.max_logprobs, 0, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.block_size, 1, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.num_blocks, 1, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.num_host_blocks, 0, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.vocab_size, 1, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.hidden_size, 0, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.window, 0, INT32_MAX, true, NULL),
    OF(FIELD_INT32, limits.num_groups, 0, KV_GROUPS_MOST, true, NULL),
    OF(FIELD_INT32, limits.num_full_groups, 0, KV_GROUPS_MOST - 1, true, NULL),
    NAMED("max_loras", FIELD_INT32, core.lora.num_slots, 0, LORA_MAX_SLOTS, true, "--max-loras"),
    NAMED("max_lora_rank", FIELD_INT32, core.lora.max_rank, 0, LORA_MAX_RANK, true,
          "--max-lora-rank"),
    NAMED("lora_dtype", FIELD_INT32, core.lora.dtype, DTYPE_F32, DTYPE_BF16, true, NULL),
    OF_CORE(FIELD_INT64, "swap_block_ns", schedule.swap_block_ns, 0, RECORD_MAX_NS),
    OF_CORE(FIELD_INT64, "max_step_ns", schedule.max_step_ns, -RECORD_MAX_NS, RECORD_MAX_NS),
    OF_CORE(FIELD_INT64, "stall_timeout_ns", stall_timeout_ns, 1, RECORD_MAX_NS),
    OF_CORE(FIELD_INT32, "num_tenants", schedule.kv.num_tenants, 1, 1 << 20),
    OF_CORE(FIELD_INT32, "num_shares", schedule.num_shares, 1, 1 << 20),
    OF_CORE(FIELD_BOOL, "prefix_caching", schedule.kv.caching, 0, 1),
    OF_CORE(FIELD_BOOL, "host_tier", schedule.kv.keeps_evicted, 0, 1),
    OF_CORE(FIELD_BOOL, "async_scheduling", async_scheduling, 0, 1),
    OF_CORE(FIELD_BOOL, "draft_model", has_draft_model, 0, 1),
    OF_CORE(FIELD_BOOL, "mtp", schedule.has_mtp, 0, 1),
};

#define NUM_FIELDS (sizeof(fields) / sizeof(fields[0]))

static int64_t number_of(const struct field *field, const void *at) {
    switch (field->type) {
    case FIELD_INT32:
        return *(const int32_t *)at;
    case FIELD_INT64:
        return *(const int64_t *)at;
    default:
        return *(const bool *)at;
    }
}

static void write_field(const struct field *field, const void *at, struct byte_buffer *out) {
    if (field->type == FIELD_TEXT)
        record_put_text(out, at);
    else if (field->type == FIELD_DIGEST)
        record_put_bytes(out, at, field->bytes);
    else
        record_put_signed(out, number_of(field, at));
}

static void read_number(const struct field *field, struct record_input *in, void *at) {
    int64_t value = record_get_signed(in, field->name, field->min, field->max);
    if (field->type == FIELD_INT32)
        *(int32_t *)at = (int32_t)value;
    else if (field->type == FIELD_INT64)
        *(int64_t *)at = value;
    else
        *(bool *)at = value != 0;
}

static void read_field(const struct field *field, struct record_input *in, void *at) {
    if (field->type == FIELD_TEXT) {
        record_get_text(in, field->name, at, field->bytes);
    } else if (field->type == FIELD_DIGEST) {
        struct text digest = record_get_bytes(in, field->name, field->bytes);
        if (digest.length == field->bytes)
            memcpy(at, digest.data, field->bytes);
        else
            record_input_refuse(in, field->name);
    } else {
        read_number(field, in, at);
    }
}

void record_header_write(const struct record_header *header, struct byte_buffer *out) {
    record_put_text(out, magic);
    record_put_unsigned(out, RECORD_VERSION);
    for (size_t i = 0; i < NUM_FIELDS; i++)
        write_field(&fields[i], (const char *)header + fields[i].offset, out);
}

/* Together they have to fit what the engine computes with them. */
static void check_limits(const struct record_header *header, struct record_input *in) {
    const struct serving_limits *limits = &header->limits;
    if (limits->max_num_batched_tokens < limits->max_num_seqs)
        record_input_refuse(in, "limits.max_num_batched_tokens");
    if (limits->num_full_groups >= serving_limits_groups(limits))
        record_input_refuse(in, "limits.num_full_groups");
    if (limits->num_blocks > INT32_MAX / limits->block_size)
        record_input_refuse(in, "limits.num_blocks");
}

bool record_header_is_one(struct record_input *in) {
    char word[sizeof(magic)];
    record_get_text(in, "the magic word", word, sizeof(word));
    return in->wrong == NULL && strcmp(word, magic) == 0;
}

int record_header_read(struct record_input *in, struct record_header *out, struct error *err) {
    if (!record_header_is_one(in))
        return error_set(err, ERROR_SYNTAX, "is not a recording");
    uint64_t version = record_get_unsigned(in, "version", UINT32_MAX);
    if (in->wrong == NULL && version != RECORD_VERSION)
        return error_set(err, ERROR_SYNTAX, "is of version %" PRIu64 ", this program reads %d",
                         version, RECORD_VERSION);
    memset(out, 0, sizeof(*out));
    for (size_t i = 0; i < NUM_FIELDS; i++)
        read_field(&fields[i], in, (char *)out + fields[i].offset);
    if (in->wrong == NULL)
        check_limits(out, in);
    return record_input_finish(in, "header", err);
}

static void print_field(const struct field *field, const void *at, char out[static 208]) {
    if (field->type == FIELD_TEXT) {
        snprintf(out, 208, "\"%.200s\"", (const char *)at);
    } else if (field->type == FIELD_DIGEST) {
        const uint8_t *bytes = at;
        snprintf(out, 208, "%02x%02x%02x%02x...", bytes[0], bytes[1], bytes[2], bytes[3]);
    } else {
        snprintf(out, 208, "%" PRId64, number_of(field, at));
    }
}

static bool is_equal(const struct field *field, const void *a, const void *b) {
    if (field->type == FIELD_TEXT)
        return strcmp(a, b) == 0;
    if (field->type == FIELD_DIGEST)
        return memcmp(a, b, field->bytes) == 0;
    return number_of(field, a) == number_of(field, b);
}

int record_header_compare(const struct record_header *recorded, const struct record_header *here,
                          struct error *err) {
    for (size_t i = 0; i < NUM_FIELDS; i++) {
        const struct field *field = &fields[i];
        const void *a = (const char *)recorded + field->offset;
        const void *b = (const char *)here + field->offset;
        char was[208], is[208];
        if (!field->is_compared || is_equal(field, a, b))
            continue;
        print_field(field, a, was);
        print_field(field, b, is);
        return error_set(err, ERROR_CONFIG, "recorded with %s %s, here it is %s%s%s%s", field->name,
                         was, is, field->hint != NULL ? " (" : "",
                         field->hint != NULL ? field->hint : "", field->hint != NULL ? ")" : "");
    }
    return 0;
}
