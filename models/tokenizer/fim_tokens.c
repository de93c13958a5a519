#include "models/tokenizer/vocabulary.h"

#include "config/base/text.h"
#include "models/tokenizer/tokenizer.h"

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

/* NUM_FIM_MARKS: it ends a text. */
static const struct {
    const char *name;
    enum fim_mark mark;
} names[] = {
    {"<|fim_pad|>", FIM_PAD},
    {"<fim-pad>", FIM_PAD},
    {"<fim_pad>", FIM_PAD},
    {"<PAD>", FIM_PAD},
    {"[PAD]", FIM_PAD},
    {"<|fim_repo|>", FIM_REPO},
    {"<|repo_name|>", FIM_REPO},
    {"<fim-repo>", FIM_REPO},
    {"<REPO>", FIM_REPO},
    {"<reponame>", FIM_REPO},
    {"<repo_name>", FIM_REPO},
    {"<|file_sep|>", FIM_FILE},
    {"<file_sep>", FIM_FILE},
    {"<|file_separator|>", FIM_FILE},
    {"<|endoftext|>", NUM_FIM_MARKS},
    {"<|end_of_text|>", NUM_FIM_MARKS},
    {"<EOT>", NUM_FIM_MARKS},
    {"\xe2\x96\x81<EOT>", NUM_FIM_MARKS},
    {"[EOT]", NUM_FIM_MARKS},
    {"<|im_end|>", NUM_FIM_MARKS},
    {"<|eot_id|>", NUM_FIM_MARKS},
    {"<end_of_turn>", NUM_FIM_MARKS},
    /* DeepSeek, with U+FF5C and U+2581 */
    {"<\xef\xbd\x9c"
     "end\xe2\x96\x81of\xe2\x96\x81sentence\xef\xbd\x9c>",
     NUM_FIM_MARKS},
};

#define NUM_NAMES (sizeof(names) / sizeof(names[0]))
_Static_assert(NUM_NAMES + NUM_FIM_MARKS <= FIM_MAX_ENDS, "each may be another token");

static int add_end(int32_t *ends, int count, int32_t token) {
    for (int i = 0; i < count; i++)
        if (ends[i] == token)
            return count;
    ends[count] = token;
    return count + 1;
}

int fim_tokens_find_marks(const struct vocabulary *vocabulary, int32_t *marks, int32_t *ends) {
    int32_t found[NUM_NAMES];
    int count = 0;
    memset(found, -1, sizeof(found));
    for (int32_t token = 0; token < vocabulary->size; token++) {
        struct text written = vocabulary_raw(vocabulary, token);
        bool may_be = written.length > 0 && strchr("<[\xe2", written.data[0]) != NULL;
        for (size_t i = 0; i < NUM_NAMES && may_be; i++)
            if (text_is(written, names[i].name))
                found[i] = token;
    }
    for (size_t i = 0; i < NUM_NAMES; i++) {
        bool is_mark = names[i].mark < NUM_FIM_MARKS;
        if (found[i] >= 0 && is_mark && marks[names[i].mark] < 0)
            marks[names[i].mark] = found[i];
        if (found[i] >= 0)
            count = add_end(ends, count, found[i]);
    }
    for (int mark = 0; mark < NUM_FIM_MARKS; mark++)
        if (marks[mark] >= 0)
            count = add_end(ends, count, marks[mark]);
    return count;
}
