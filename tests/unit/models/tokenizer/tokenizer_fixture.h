/* Small tokenizers for tests: a GGUF image in memory with the 256 byte tokens in byte order (ids
 * 0..255), then the tests' own tokens, and an opened tokenizer over it. */
#ifndef QUIRE_TESTS_UNIT_MODELS_TOKENIZER_TOKENIZER_FIXTURE_H
#define QUIRE_TESTS_UNIT_MODELS_TOKENIZER_TOKENIZER_FIXTURE_H

#include "models/config/model.h"
#include "models/tokenizer/tokenizer.h"

#include "tests/unit/models/gguf_writer.h"

struct fixture_token {
    const char *text;
    int32_t type; /* as in the file: 1 normal, 3 control, 4 user-defined */
};

/* Zeroed fields: the key is not there. */
struct fixture_spec {
    const char *pre;
    const char *model; /* NULL: gpt2 */
    const char *architecture;
    int64_t bos;
    int64_t eos;
    bool add_bos;
    int missing_byte;  /* the byte whose token is replaced by a word; 0: all are there */
    size_t num_tokens; /* after the 256 bytes */
    const struct fixture_token *tokens;
    size_t num_merges;
    const char *const *merges;
    size_t num_ids; /* further keys of ids */
    const char *const *id_keys;
    const uint32_t *ids;
};

struct fixture {
    struct gguf_writer image;
    struct tensor_file *file;
    struct tokenizer *tokenizer;
};

/* The character GPT-2's alphabet writes a byte with, NUL-terminated. */
static inline void fixture_byte_token(int byte, char out[3]) {
    unsigned c = 0x100;
    for (int b = 0; b < 256; b++) {
        bool printable = (b > 0x20 && b < 0x7f) || (b > 0xa0 && b != 0xad);
        if (b == byte) {
            c = printable ? (unsigned)b : c;
            break;
        }
        c += !printable;
    }
    size_t n = 0;
    if (c > 0x80)
        out[n++] = (char)(0xc0 | c >> 6);
    out[n++] = (char)(c > 0x80 ? 0x80 | (c & 0x3f) : c);
    out[n] = '\0';
}

static inline void fixture_put_tokens(struct gguf_writer *w, const struct fixture_spec *spec) {
    gguf_put_key_array(w, "tokenizer.ggml.tokens", GGUF_STRING, 256 + spec->num_tokens);
    for (int byte = 0; byte < 256; byte++) {
        char token[3];
        fixture_byte_token(byte, token);
        gguf_put_string(w, byte > 0 && byte == spec->missing_byte ? "unreachable" : token);
    }
    for (size_t i = 0; i < spec->num_tokens; i++)
        gguf_put_string(w, spec->tokens[i].text);
    gguf_put_key_array(w, "tokenizer.ggml.token_type", GGUF_INT32, 256 + spec->num_tokens);
    for (size_t i = 0; i < 256 + spec->num_tokens; i++)
        gguf_put_u32(w, i < 256 ? 1 : (uint32_t)spec->tokens[i - 256].type);
}

static inline void fixture_write(const struct fixture_spec *spec, struct gguf_writer *w) {
    uint64_t num_keys = 4 + (spec->pre != NULL) + (spec->architecture != NULL) + (spec->bos > 0) +
                        (spec->eos > 0) + spec->add_bos + spec->num_ids;
    gguf_put_header(w, 3, 0, num_keys);
    gguf_put_key_string(w, "tokenizer.ggml.model", spec->model != NULL ? spec->model : "gpt2");
    if (spec->pre != NULL)
        gguf_put_key_string(w, "tokenizer.ggml.pre", spec->pre);
    if (spec->architecture != NULL)
        gguf_put_key_string(w, "general.architecture", spec->architecture);
    if (spec->bos > 0)
        gguf_put_key_u32(w, "tokenizer.ggml.bos_token_id", (uint32_t)spec->bos);
    if (spec->eos > 0)
        gguf_put_key_u32(w, "tokenizer.ggml.eos_token_id", (uint32_t)spec->eos);
    for (size_t i = 0; i < spec->num_ids; i++)
        gguf_put_key_u32(w, spec->id_keys[i], spec->ids[i]);
    if (spec->add_bos) {
        gguf_put_key(w, "tokenizer.ggml.add_bos_token", GGUF_BOOL);
        gguf_put(w, &(uint8_t){1}, 1);
    }
    fixture_put_tokens(w, spec);
    gguf_put_key_array(w, "tokenizer.ggml.merges", GGUF_STRING, spec->num_merges);
    for (size_t i = 0; i < spec->num_merges; i++)
        gguf_put_string(w, spec->merges[i]);
    gguf_pad(w, 32);
}

static inline void fixture_close(struct fixture *fixture) {
    tokenizer_close(fixture->tokenizer);
    tensor_file_close(fixture->file);
    gguf_finish(&fixture->image);
    *fixture = (struct fixture){0};
}

/* Returns tokenizer_open's answer, or -2 if the file itself is refused. */
static inline int fixture_open_image(struct fixture *fixture, struct error *err) {
    if (tensor_file_open_memory(fixture->image.data, fixture->image.bytes, "t.gguf", &fixture->file,
                                err) != 0)
        return -2;
    const struct model model = {.file = fixture->file};
    return tokenizer_open(&model, &fixture->tokenizer, err);
}

static inline int fixture_open(const struct fixture_spec *spec, struct fixture *fixture,
                               struct error *err) {
    *fixture = (struct fixture){0};
    fixture_write(spec, &fixture->image);
    return fixture_open_image(fixture, err);
}

#endif
