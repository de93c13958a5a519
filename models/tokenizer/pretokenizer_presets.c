#include "models/tokenizer/pretokenizer_presets.h"

#include "config/base/utf8.h"

#include <stdio.h>
#include <string.h>

#define SPLIT(regex)                                                                               \
    { .kind = PRETOKENIZER_SPLIT, .pattern = {regex, sizeof(regex) - 1}, .pattern_is_regex = true }
#define DIGITS                                                                                     \
    { .kind = PRETOKENIZER_DIGITS, .individual = true }
#define GPT2                                                                                       \
    { .kind = PRETOKENIZER_BYTE_LEVEL, .use_regex = true }

#define CL100K(numbers)                                                                            \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}" numbers                    \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define QWEN35                                                                                     \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"                    \
    "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

/* Words of capital letters and then small ones; `ending` follows a word, `numbers` a digit. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(ending, numbers)                                                                     \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" ending "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER  \
    "*" ending "|\\p{N}" numbers "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

#define DEEPSEEK_V3                                                                                \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"             \
    "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"

/* Sources: the models' tokenizer.json files and, for qwen2, qwen35, command-r and GPT-NeoX (olmo,
 * mpt), the tokenizers that Transformers 5 builds for them. Which names mean the same: llama.cpp's
 * llama-vocab.cpp. */
static const struct pretokenizer_preset presets[] = {
    {.names = {"gpt-2", "gpt2", "default", "phi-2"}, .num_steps = 1, .steps = {GPT2}},
    {.names = {"olmo", "mpt"}, .num_steps = 1, .steps = {GPT2}, .nfc = true},
    {.names = {"smollm", "starcoder", "refact"}, .num_steps = 2, .steps = {DIGITS, GPT2}},
    {.names = {"command-r"}, .num_steps = 2, .steps = {DIGITS, GPT2}, .nfc = true},
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .num_steps = 1,
     .steps = {SPLIT(CL100K("{1,3}"))},
     .ignore_merges = true,
     .adds_bos = true},
    {.names = {"dbrx", "smaug-bpe", "glm4", "chatglm-bpe"},
     .num_steps = 1,
     .steps = {SPLIT(CL100K("{1,3}"))}},
    {.names = {"qwen2", "deepseek-r1-qwen"},
     .num_steps = 1,
     .steps = {SPLIT(CL100K(""))},
     .nfc = true},
    {.names = {"qwen35"}, .num_steps = 1, .steps = {SPLIT(QWEN35)}, .nfc = true},
    {.names = {"tekken"},
     .num_steps = 1,
     .steps = {SPLIT(CASED("", ""))},
     .ignore_merges = true,
     .adds_bos = true},
    {.names = {"gpt-4o"},
     .num_steps = 1,
     .steps = {SPLIT(CASED("(?i:'s|'t|'re|'ve|'m|'ll|'d)?", "{1,3}"))}},
    {.names = {"deepseek-coder"},
     .num_steps = 5,
     .steps = {SPLIT("[\r\n]"), SPLIT("\\s?\\p{L}+"), SPLIT("\\s?\\p{P}+"),
               SPLIT("[一-龥ࠀ-一가-퟿]+"), DIGITS}},
    {.names = {"deepseek-v3"},
     .num_steps = 3,
     .steps = {SPLIT("\\p{N}{1,3}"), SPLIT("[一-龥぀-ゟ゠-ヿ]+"), SPLIT(DEEPSEEK_V3)}},
};

#define NUM_PRESETS (sizeof(presets) / sizeof(presets[0]))

static bool is_text(const char *known, struct text text) {
    return strlen(known) == text.length && memcmp(known, text.data, text.length) == 0;
}

static int refuse(struct text name, struct error *err) {
    char shown[UTF8_PRINTABLE_BYTES], known[512] = "";
    size_t used = 0;
    for (size_t i = 0; i < NUM_PRESETS; i++) {
        for (int k = 0; k < PRETOKENIZER_MAX_NAMES && presets[i].names[k] != NULL; k++) {
            if (used < sizeof(known))
                used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                         used > 0 ? ", " : "", presets[i].names[k]);
        }
    }
    utf8_printable(name, shown);
    return error_set(err, ERROR_MODEL, "tokenizer.ggml.pre is \"%s\", known are %s", shown, known);
}

int pretokenizer_preset_find(struct text name, const struct pretokenizer_preset **out,
                             struct error *err) {
    for (size_t i = 0; i < NUM_PRESETS; i++) {
        for (int k = 0; k < PRETOKENIZER_MAX_NAMES && presets[i].names[k] != NULL; k++) {
            if (is_text(presets[i].names[k], name)) {
                *out = &presets[i];
                return 0;
            }
        }
    }
    return refuse(name, err);
}

/* From OLMo 2's tokenizer.json: CL100K's sequences but for newlines. */
static const char olmo2[] = "'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}{1,3}| "
                            "?[^\\s\\p{L}\\p{N}]++[\\r\\n]*"
                            "|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+";

bool pretokenizer_presets_have(struct text pattern) {
    if (is_text(olmo2, pattern))
        return true;
    for (size_t i = 0; i < NUM_PRESETS; i++) {
        for (int k = 0; k < presets[i].num_steps; k++) {
            struct text known = presets[i].steps[k].pattern;
            if (known.length > 0 && known.length == pattern.length &&
                memcmp(known.data, pattern.data, pattern.length) == 0)
                return true;
        }
    }
    return false;
}

/* --- The preset of a tokenizer.json --- */

/* Matches that are removed where the pattern says what pieces are: they are the pieces then. */
static bool isolates(const struct pretokenizer_step *step) {
    return step->invert ? step->behaviour == SPLIT_REMOVED : step->behaviour == SPLIT_ISOLATED;
}

static bool is_same_pattern(struct text pattern, struct text known) {
    static const char cl100k[] = CL100K("{1,3}");
    return text_compare(pattern, known) == 0 ||
           (is_text(olmo2, pattern) && is_text(cl100k, known)); /* which match the same */
}

static bool is_same_step(const struct pretokenizer_step *step,
                         const struct pretokenizer_step *known) {
    if (step->kind != known->kind)
        return false;
    switch (step->kind) {
    case PRETOKENIZER_SPLIT:
        return step->pattern_is_regex && isolates(step) &&
               is_same_pattern(step->pattern, known->pattern);
    case PRETOKENIZER_DIGITS:
        return step->individual == known->individual;
    default:
        return step->kind == PRETOKENIZER_BYTE_LEVEL;
    }
}

/* Returns whether a step changes bytes to characters only, as all byte-level tokenizers do. */
static bool only_maps_bytes(const struct pretokenizer_step *step) {
    return step->kind == PRETOKENIZER_BYTE_LEVEL && !step->use_regex && !step->add_prefix_space;
}

static bool is_like(const struct tokenizer_spec *spec, const struct pretokenizer_preset *preset) {
    bool nfc = spec->num_normalizers == 1 && spec->normalizers[0].kind == NORMALIZER_NFC;
    int matched = 0;
    if (nfc != preset->nfc || spec->num_normalizers != (int)nfc ||
        spec->ignore_merges != preset->ignore_merges)
        return false;
    for (int i = 0; i < spec->num_pretokenizers; i++) {
        const struct pretokenizer_step *step = &spec->pretokenizers[i];
        if (only_maps_bytes(step))
            continue;
        if (step->add_prefix_space || matched == preset->num_steps ||
            !is_same_step(step, &preset->steps[matched]))
            return false;
        matched++;
    }
    return matched == preset->num_steps;
}

const struct pretokenizer_preset *pretokenizer_preset_like(const struct tokenizer_spec *spec) {
    for (size_t i = 0; i < NUM_PRESETS; i++)
        if (is_like(spec, &presets[i]))
            return &presets[i];
    return NULL;
}
