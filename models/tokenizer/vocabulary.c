/* The hash is open addressing over ids: 4 bytes a slot, keys compared in the arena, at most three
 * quarters full. A vocabulary of 49,152 tokens takes about 1 MiB in all. */
#include "models/tokenizer/vocabulary.h"

#include "config/base/check.h"
#include "config/base/utf8.h"

#include <stdlib.h>
#include <string.h>

/* The alphabet's characters lie below U+0144, so a character has one or two bytes. */
#define ALPHABET_END 0x144

/* Returns whether a byte's character is itself: printable and not the soft hyphen. */
static bool is_printable(int byte) {
    return (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

/* Returns the byte of the character c, or -1. The unprintable bytes follow each other from
 * U+0100. */
static int byte_of_character(int32_t c) {
    if (c < 0x100)
        return is_printable(c) ? c : -1;
    int32_t n = c - 0x100;
    if (n <= 0x20)
        return n;
    if (n <= 0x42)
        return n - 0x21 + 0x7f;
    return n == 0x43 ? 0xad : -1;
}

int64_t vocabulary_decode(struct text written, char *out) {
    size_t count = 0, bytes;
    for (size_t i = 0; i < written.length; i += bytes) {
        bytes = utf8_char_bytes(written.data + i, written.length - i);
        int byte = bytes == 0 ? -1 : byte_of_character(utf8_decode(written.data + i, bytes));
        if (byte < 0)
            return -1;
        out[count++] = (char)byte;
    }
    return (int64_t)count;
}

static uint32_t hash_bytes(uint64_t seed, const char *bytes, size_t length) {
    const uint64_t multiplier = 0x9e3779b97f4a7c15u;
    uint64_t hash = seed + length;
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

/* Returns the slot where the token with this key is, or the free one where it belongs. */
static uint32_t find_slot(const struct vocabulary *v, const char *key, size_t length) {
    uint32_t slot = hash_bytes(v->seed, key, length) & v->slot_mask;
    for (; v->slots[slot] >= 0; slot = (slot + 1) & v->slot_mask) {
        uint32_t begin = v->key_offsets[v->slots[slot]];
        if (v->key_offsets[v->slots[slot] + 1] - begin == length &&
            memcmp(v->keys + begin, key, length) == 0)
            break;
    }
    return slot;
}

int32_t vocabulary_find_any(const struct vocabulary *v, const char *key, size_t length) {
    if (length == 0 || length > v->max_length)
        return -1;
    return v->slots[find_slot(v, key, length)];
}

int32_t vocabulary_find(const struct vocabulary *v, const char *key, size_t length) {
    int32_t token = vocabulary_find_any(v, key, length);
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
    uint32_t length = v->offsets[token + 1] - v->offsets[token];
    if (length == 0 || type == TOKEN_CONTROL || type == TOKEN_UNKNOWN)
        return vocabulary_raw(v, token);
    return (struct text){v->arena + v->offsets[token], length};
}

/* Sums the bytes of all written forms, which bounds the arena of the decoded ones. */
static int sum_lengths(const struct tokenizer_spec *spec, size_t *out, struct error *err) {
    size_t sum = 0;
    if (spec->num_tokens < 1 || spec->num_tokens > VOCABULARY_MAX_TOKENS)
        return error_set(err, ERROR_MODEL, "the vocabulary has %d tokens, allowed 1 to %d",
                         spec->num_tokens, VOCABULARY_MAX_TOKENS);
    for (int32_t i = 0; i < spec->num_tokens; i++) {
        if (spec->tokens[i].length > VOCABULARY_MAX_TOKEN_BYTES)
            return error_set(err, ERROR_MODEL, "token %d has %zu bytes, allowed are %d", i,
                             spec->tokens[i].length, VOCABULARY_MAX_TOKEN_BYTES);
        sum += spec->tokens[i].length;
    }
    if (sum > UINT32_MAX)
        return error_set(err, ERROR_MODEL, "the tokens have %zu bytes, allowed are %u", sum,
                         UINT32_MAX);
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
    v->seed = tokenizer_spec_seed();
    return 0;
}

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* Returns the byte of "<0x0A>", or -1. */
static int byte_of_name(struct text written) {
    if (written.length != 6 || memcmp(written.data, "<0x", 3) != 0 || written.data[5] != '>')
        return -1;
    int high = hex_digit(written.data[3]), low = hex_digit(written.data[4]);
    return high < 0 || low < 0 ? -1 : high * 16 + low;
}

static void copy_written(struct vocabulary *v, const struct tokenizer_spec *spec) {
    uint32_t used = 0;
    for (int32_t i = 0; i < v->size; i++) {
        struct text text = spec->tokens[i];
        bool is_byte =
            spec->byte_fallback && spec->types[i] != TOKEN_CONTROL && byte_of_name(text) >= 0;
        v->types[i] = is_byte ? TOKEN_BYTE : spec->types[i];
        v->written_offsets[i] = used;
        if (text.length > 0)
            memcpy(v->written + used, text.data, text.length);
        used += (uint32_t)text.length;
    }
    v->written_offsets[v->size] = used;
}

/* Decodes plain text; each `space`, U+2581, is one blank. Returns the number of bytes. */
static size_t decode_characters(struct text written, bool has_spaces, char *out) {
    static const char space[] = TOKENIZER_SPACE;
    size_t count = 0;
    for (size_t i = 0; i < written.length;) {
        bool is_space =
            has_spaces && written.length - i >= 3 && memcmp(written.data + i, space, 3) == 0;
        out[count++] = is_space ? ' ' : written.data[i];
        i += is_space ? 3 : 1;
    }
    return count;
}

/* Writes the bytes that a token stands for; returns their number, or -1. */
static int64_t token_bytes(const struct vocabulary *v, bool has_spaces, int32_t token, char *out) {
    struct text written = vocabulary_raw(v, token);
    if (v->alphabet == ALPHABET_CHARACTERS) {
        int byte = v->types[token] == TOKEN_BYTE ? byte_of_name(written) : -1;
        if (byte < 0)
            return (int64_t)decode_characters(written, has_spaces, out);
        out[0] = (char)byte;
        return 1;
    }
    /* Added tokens are written as the text they match. */
    if (v->types[token] != TOKEN_USER_DEFINED)
        return vocabulary_decode(written, out);
    memcpy(out, written.data, written.length);
    return (int64_t)written.length;
}

static void decode_tokens(struct vocabulary *v, bool has_spaces) {
    uint32_t used = 0;
    v->offsets[0] = 0;
    for (int32_t i = 0; i < v->size; i++) {
        int64_t length = token_bytes(v, has_spaces, i, v->arena + used);
        used += length > 0 ? (uint32_t)length : 0;
        v->offsets[i + 1] = used;
    }
}

static void index_tokens(struct vocabulary *v) {
    bool bytes = v->alphabet == ALPHABET_BYTES;
    v->keys = bytes ? v->arena : v->written;
    v->key_offsets = bytes ? v->offsets : v->written_offsets;
    for (int32_t i = 0; i < v->size; i++) {
        uint32_t begin = v->key_offsets[i];
        size_t length = v->key_offsets[i + 1] - begin;
        if (length == 0)
            continue;
        v->slots[find_slot(v, v->keys + begin, length)] = i;
        v->max_length = length > v->max_length ? length : v->max_length;
    }
}

static void find_bytes(struct vocabulary *v) {
    for (int byte = 0; byte < 256; byte++)
        v->byte_tokens[byte] =
            v->alphabet == ALPHABET_BYTES ? vocabulary_find(v, &(char){(char)byte}, 1) : -1;
    for (int32_t i = 0; v->alphabet == ALPHABET_CHARACTERS && i < v->size; i++) {
        int byte = v->types[i] == TOKEN_BYTE ? byte_of_name(vocabulary_raw(v, i)) : -1;
        if (byte >= 0)
            v->byte_tokens[byte] = i;
    }
}

int vocabulary_init(const struct tokenizer_spec *spec, struct vocabulary *out, struct error *err) {
    size_t written_bytes = 0;
    if (sum_lengths(spec, &written_bytes, err) != 0)
        return -1;
    struct vocabulary v = {.size = spec->num_tokens, .alphabet = spec->alphabet};
    if (allocate(&v, written_bytes, err) != 0) {
        vocabulary_finish(&v);
        return -1;
    }
    copy_written(&v, spec);
    decode_tokens(&v, spec->space_replacement);
    index_tokens(&v);
    find_bytes(&v);
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
