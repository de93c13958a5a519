/* Any bytes as a tokenizer.json and, behind a NUL, a tokenizer_config.json. What is accepted keeps
 * its ids in range, and what a tokenizer can be made of encodes and decodes. */
#include "models/files/json_file.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/tokenizer_json.h"
#include "models/tokenizer/vocabulary.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void check(bool holds) {
    if (!holds)
        abort();
}

static void check_refusal(const struct error *err) {
    check(err->code == ERROR_MODEL && strchr(err->message, '\n') == NULL);
    check(strncmp(err->message, "t.json: ", 8) == 0 || strncmp(err->message, "c.json: ", 8) == 0);
}

/* Reads every byte of the text. */
static void touch(struct text text) {
    volatile char sum = 0;
    for (size_t i = 0; i < text.length; i++)
        sum = (char)(sum + text.data[i]);
}

static void check_ids(const struct tokenizer_spec *spec, const int32_t *ids, int count) {
    check(count >= 0 && count <= TOKENIZER_MAX_TEMPLATE);
    for (int i = 0; i < count; i++)
        check(ids[i] >= 0 && ids[i] < spec->num_tokens);
}

static void check_spec(const struct tokenizer_spec *spec) {
    check(spec->num_tokens > 0 && spec->num_tokens <= VOCABULARY_MAX_TOKENS);
    for (int32_t i = 0; i < spec->num_tokens; i++) {
        touch(spec->tokens[i]);
        check(spec->types[i] >= TOKEN_NORMAL && spec->types[i] <= TOKEN_BYTE);
    }
    for (size_t i = 0; i < spec->num_merges; i++) {
        touch(spec->merges[i].left);
        touch(spec->merges[i].right);
    }
    for (size_t i = 0; i < spec->num_added; i++)
        check(spec->added[i].id >= 0 && spec->added[i].id < spec->num_tokens);
    check(spec->num_normalizers <= TOKENIZER_MAX_STEPS);
    check(spec->num_pretokenizers <= TOKENIZER_MAX_STEPS);
    check(spec->unknown >= -1 && spec->unknown < spec->num_tokens);
    check(spec->bos >= -1 && spec->bos < spec->num_tokens);
    check_ids(spec, spec->prefix, spec->num_prefix);
    check_ids(spec, spec->suffix, spec->num_suffix);
    check_ids(spec, spec->eos, spec->num_eos);
}

static void check_tokenizer(const struct tokenizer_spec *spec) {
    static const char text[] = "Hello  it's 12345\n\n<s>a\u0301\u2581 \xff\xe4\xbd\xa0<x>ab";
    int32_t ids[256];
    char decoded[64];
    struct tokenizer *tokenizer;
    struct error err = {0};
    if (tokenizer_create(spec, &tokenizer, &err) != 0) {
        check(err.code == ERROR_MODEL && strchr(err.message, '\n') == NULL);
        return;
    }
    for (unsigned flags = 0; flags < 4; flags++) {
        int64_t count = tokenizer_encode(tokenizer, text, sizeof(text) - 1, flags, ids, 256);
        for (int64_t i = 0; i < count && i < 256; i++)
            check(ids[i] >= 0 && ids[i] < spec->num_tokens);
        if (count >= 0)
            tokenizer_decode(tokenizer, ids, (size_t)(count < 256 ? count : 256), false, decoded,
                             sizeof(decoded));
    }
    tokenizer_close(tokenizer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    const uint8_t *end = bytes > 0 ? memchr(data, '\0', bytes) : NULL;
    size_t length = end != NULL ? (size_t)(end - data) : bytes;
    struct tokenizer_spec spec;
    struct error err = {0};
    cJSON *config = NULL, *root = json_memory_read((const char *)data, length, "t.json", &err);
    if (root == NULL) {
        check_refusal(&err);
        return 0;
    }
    if (end != NULL)
        config = json_memory_read((const char *)end + 1, bytes - length - 1, "c.json", &err);
    if (end != NULL && config == NULL) {
        check_refusal(&err);
    } else if (tokenizer_spec_from_json("t.json", root, "c.json", config, &spec, &err) != 0) {
        check_refusal(&err);
    } else {
        check_spec(&spec);
        check_tokenizer(&spec);
        tokenizer_spec_finish(&spec);
    }
    cJSON_Delete(config);
    cJSON_Delete(root);
    return 0;
}
