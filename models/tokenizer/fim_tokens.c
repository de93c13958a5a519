#include "models/tokenizer/fim_tokens.h"

#include "config/base/text.h"

#include <string.h>

static const char *const families[][NUM_FIM_PARTS] = {
    {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"}, /* Qwen, CodeGemma */
    {"<fim-prefix>", "<fim-suffix>", "<fim-middle>"},       /* SantaCoder */
    {"<fim_prefix>", "<fim_suffix>", "<fim_middle>"},       /* StarCoder, Granite */
    /* DeepSeek, with U+FF5C and U+2581 */
    {"<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "begin\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81hole\xef\xbd\x9c>",
     "<\xef\xbd\x9c"
     "fim\xe2\x96\x81"
     "end\xef\xbd\x9c>"},
    {"<PRE>", "<SUF>", "<MID>"},                                     /* CodeLlama */
    {"\xe2\x96\x81<PRE>", "\xe2\x96\x81<SUF>", "\xe2\x96\x81<MID>"}, /* and as its files have it */
    {"<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"},       /* GLM */
    {"<|prefix|>", "<|suffix|>", "<|middle|>"},
};

#define NUM_FAMILIES (sizeof(families) / sizeof(families[0]))

/* Notes the token as the one of its name. */
static void note(int32_t found[NUM_FAMILIES][NUM_FIM_PARTS], struct text written, int32_t token) {
    for (size_t family = 0; family < NUM_FAMILIES; family++)
        for (size_t part = 0; part < NUM_FIM_PARTS; part++)
            if (text_is(written, families[family][part]))
                found[family][part] = token;
}

/* Goes through the written forms, as a vocabulary of bytes has no key for a name beyond ASCII. */
bool fim_tokens_find(const struct vocabulary *vocabulary, int32_t *ids) {
    int32_t found[NUM_FAMILIES][NUM_FIM_PARTS];
    memset(found, -1, sizeof(found));
    for (int32_t token = 0; token < vocabulary->size; token++) {
        struct text written = vocabulary_raw(vocabulary, token);
        if (written.length > 0 && strchr("<\xe2", written.data[0]) != NULL)
            note(found, written, token);
    }
    for (size_t family = 0; family < NUM_FAMILIES; family++) {
        const int32_t *three = found[family];
        if (three[FIM_PREFIX] < 0 || three[FIM_SUFFIX] < 0 || three[FIM_MIDDLE] < 0)
            continue;
        for (size_t part = 0; part < NUM_FIM_PARTS; part++)
            ids[part] = ids[part] < 0 ? three[part] : ids[part];
        break;
    }
    return ids[FIM_PREFIX] >= 0 && ids[FIM_SUFFIX] >= 0 && ids[FIM_MIDDLE] >= 0;
}
