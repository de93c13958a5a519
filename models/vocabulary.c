/* The hash is open addressing over ids: 4 bytes a slot, keys compared in the arena, at most three
 * quarters full. A vocabulary of 49,152 tokens takes about 1 MiB in all. */
#include "models/vocabulary.h"

#include "config/check.h"

#include <stdlib.h>
#include <string.h>

/* The alphabet's characters lie below U+0144, so a character has one or two bytes. */
#define ALPHABET_END 0x144

/* A byte whose character is itself: printable and not the soft hyphen. */
static bool is_printable(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* Byte of the character c, or -1. The unprintable bytes follow each other from U+0100. */
static int byte_of_character(unsigned c) {
    if (c < 0x100)
        return is_printable((int)c) ? (int)c : -1;
    unsigned n = c - 0x100;
    if (n <= 0x20)
        return (int)n;
    if (n <= 0x42)
        return (int)(n - 0x21 + 0x7f);
    return n == 0x43 ? 0xad : -1;
}

int64_t vocabulary_decode(struct text written, char *out) {
    const unsigned char *in = (const unsigned char *)written.data;
    size_t count = 0;
    for (size_t i = 0; i < written.length; i++) {
        unsigned c = in[i];
        if (c >= 0x80) {
            if ((c & 0xe0) != 0xc0 || i + 1 == written.length || (in[i + 1] & 0xc0) != 0x80)
                return -1;
            c = (c & 0x1f) << 6 | (in[++i] & 0x3f);
            if (c < 0x80)
                return -1;
        }
        int byte = byte_of_character(c);
        if (byte < 0)
            return -1;
        out[count++] = (char)byte;
    }
    return (int64_t)count;
}

static uint32_t hash_bytes(const char *bytes, size_t length) {
    const uint64_t multiplier = 0x9e3779b97f4a7c15u;
    uint64_t hash = length;
    while (length > 0) {
        uint64_t word = 0;
        size_t n = length < sizeof(word) ? length : sizeof(word);
        memcpy(&word, bytes, n);
        hash = (hash ^ word) * multiplier;
        hash ^= hash >> 29;
        bytes += n;
        length -= n;
    }
    return (uint32_t)(hash * multiplier >> 32);
}

/* The slot where these bytes are, or the free one where they belong. */
static uint32_t find_slot(const struct vocabulary *v, const char *bytes, size_t length) {
    uint32_t slot = hash_bytes(bytes, length) & v->slot_mask;
    for (; v->slots[slot] >= 0; slot = (slot + 1) & v->slot_mask) {
        int32_t token = v->slots[slot];
        if (vocabulary_length(v, token) == length &&
            memcmp(v->arena + v->offsets[token], bytes, length) == 0)
            break;
    }
    return slot;
}

int32_t vocabulary_find_any(const struct vocabulary *v, const char *bytes, size_t length) {
    if (length == 0 || length > v->max_length)
        return -1;
    return v->slots[find_slot(v, bytes, length)];
}

int32_t vocabulary_find(const struct vocabulary *v, const char *bytes, size_t length) {
    int32_t token = vocabulary_find_any(v, bytes, length);
    return token >= 0 && vocabulary_is_text(v, token) ? token : -1;
}

struct text vocabulary_raw(const struct vocabulary *v, int32_t token) {
    CHECK(token >= 0 && token < v->size);
    uint32_t begin = v->written_offsets[token];
    return (struct text){v->written + begin, v->written_offsets[token + 1] - begin};
}

struct text vocabulary_piece(const struct vocabulary *v, int32_t token) {
    CHECK(token >= 0 && token < v->size);
    uint8_t type = v->types[token];
    uint32_t length = vocabulary_length(v, token);
    if (length == 0 || type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)
        return vocabulary_raw(v, token);
    return (struct text){v->arena + v->offsets[token], length};
}

static int check_tokens(const struct metadata *tokens, struct error *err) {
    const char *key = "tokenizer.ggml.tokens";
    if (tokens == NULL)
        return error_set(err, ERROR_MODEL, "%s is missing", key);
    if (tokens->type != METADATA_ARRAY || tokens->as_array.element_type != METADATA_STRING)
        return error_set(err, ERROR_MODEL, "%s is not an array of strings", key);
    if (tokens->as_array.count < 1 || tokens->as_array.count > VOCABULARY_MAX_TOKENS)
        return error_set(err, ERROR_MODEL, "%s has %llu elements, allowed 1 to %d", key,
                         (unsigned long long)tokens->as_array.count, VOCABULARY_MAX_TOKENS);
    return 0;
}

/* A file without types has normal tokens only. */
static int read_types(const struct tensor_file *file, struct vocabulary *v, struct error *err) {
    const char *key = "tokenizer.ggml.token_type";
    const struct metadata *types = tensor_file_find_metadata(file, key);
    memset(v->types, TOKEN_NORMAL, (size_t)v->size);
    if (types == NULL)
        return 0;
    if (types->type != METADATA_ARRAY || (types->as_array.element_type != METADATA_INT &&
                                          types->as_array.element_type != METADATA_UINT))
        return error_set(err, ERROR_MODEL, "%s is not an array of integers", key);
    if (types->as_array.count != (uint64_t)v->size)
        return error_set(err, ERROR_MODEL, "%s has %llu elements, tokenizer.ggml.tokens has %d",
                         key, (unsigned long long)types->as_array.count, v->size);
    for (int32_t i = 0; i < v->size; i++) {
        double type = metadata_array_number(types, (uint64_t)i);
        if (!(type >= TOKEN_NORMAL && type <= TOKEN_BYTE))
            return error_set(err, ERROR_MODEL, "%s[%d] is %.0f, allowed %d to %d", key, i, type,
                             TOKEN_NORMAL, TOKEN_BYTE);
        v->types[i] = (uint8_t)type;
    }
    return 0;
}

/* Bytes of all written forms, which bounds the arena of the decoded ones. */
static int sum_lengths(const struct metadata *tokens, size_t *out, struct error *err) {
    size_t sum = 0;
    for (uint64_t i = 0; i < tokens->as_array.count; i++) {
        size_t length = metadata_array_string(tokens, i).length;
        if (length > VOCABULARY_MAX_TOKEN_BYTES)
            return error_set(err, ERROR_MODEL,
                             "tokenizer.ggml.tokens[%llu] has %zu bytes, allowed are %d",
                             (unsigned long long)i, length, VOCABULARY_MAX_TOKEN_BYTES);
        sum += length;
    }
    if (sum > UINT32_MAX)
        return error_set(err, ERROR_MODEL, "tokenizer.ggml.tokens has %zu bytes, allowed are %u",
                         sum, UINT32_MAX);
    *out = sum;
    return 0;
}

static int allocate(struct vocabulary *v, size_t written_bytes, struct error *err) {
    size_t size = (size_t)v->size;
    size_t num_slots = 64;
    while (num_slots * 3 / 4 < size)
        num_slots *= 2;
    v->types = malloc(size);
    v->written = malloc(written_bytes + 1);
    v->written_offsets = malloc((size + 1) * sizeof(*v->written_offsets));
    v->arena = malloc(written_bytes + 1);
    v->offsets = malloc((size + 1) * sizeof(*v->offsets));
    v->slots = malloc(num_slots * sizeof(*v->slots));
    if (v->types == NULL || v->written == NULL || v->written_offsets == NULL || v->arena == NULL ||
        v->offsets == NULL || v->slots == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a vocabulary of %d tokens", v->size);
    memset(v->slots, 0xff, num_slots * sizeof(*v->slots));
    v->slot_mask = (uint32_t)num_slots - 1;
    return 0;
}

static void copy_written(struct vocabulary *v, const struct metadata *tokens) {
    uint32_t used = 0;
    for (int32_t i = 0; i < v->size; i++) {
        struct text text = metadata_array_string(tokens, (uint64_t)i);
        v->written_offsets[i] = used;
        memcpy(v->written + used, text.data, text.length);
        used += (uint32_t)text.length;
    }
    v->written_offsets[v->size] = used;
}

/* Added tokens are written as the text they match, the others in the byte-level alphabet. */
static int64_t token_bytes(const struct vocabulary *v, int32_t token, char *out) {
    struct text written = vocabulary_raw(v, token);
    if (v->types[token] != TOKEN_USER_DEFINED)
        return vocabulary_decode(written, out);
    memcpy(out, written.data, written.length);
    return (int64_t)written.length;
}

static void decode_tokens(struct vocabulary *v) {
    uint32_t used = 0;
    v->offsets[0] = 0;
    for (int32_t i = 0; i < v->size; i++) {
        int64_t length = token_bytes(v, i, v->arena + used);
        const char *bytes = v->arena + used;
        used += length > 0 ? (uint32_t)length : 0;
        v->offsets[i + 1] = used;
        if (length <= 0)
            continue;
        v->slots[find_slot(v, bytes, (size_t)length)] = i;
        v->max_length = (size_t)length > v->max_length ? (size_t)length : v->max_length;
    }
    for (int byte = 0; byte < 256; byte++)
        v->byte_tokens[byte] = vocabulary_find(v, &(char){(char)byte}, 1);
}

int vocabulary_init(const struct tensor_file *file, struct vocabulary *out, struct error *err) {
    const struct metadata *tokens = tensor_file_find_metadata(file, "tokenizer.ggml.tokens");
    size_t written_bytes = 0;
    if (check_tokens(tokens, err) != 0 || sum_lengths(tokens, &written_bytes, err) != 0)
        return -1;
    struct vocabulary v = {.size = (int32_t)tokens->as_array.count};
    if (allocate(&v, written_bytes, err) != 0 || read_types(file, &v, err) != 0) {
        vocabulary_finish(&v);
        return -1;
    }
    copy_written(&v, tokens);
    decode_tokens(&v);
    *out = v;
    return 0;
}

void vocabulary_finish(struct vocabulary *vocabulary) {
    free(vocabulary->types);
    free(vocabulary->written);
    free(vocabulary->written_offsets);
    free(vocabulary->arena);
    free(vocabulary->offsets);
    free(vocabulary->slots);
    *vocabulary = (struct vocabulary){0};
}
