/* The regexes run on PCRE2 with its JIT; where no executable memory may be had, PCRE2 interprets
 * them with the same result. They are ours, not a file's, and linear: each either consumes what it
 * scans or gives it back once. So PCRE2's match limit, which guards against exponential regexes, is
 * lifted: a run of millions of blanks would reach it. If a match fails all the same, what is left
 * of the span becomes one piece.
 *
 * Two things make them mean what they mean in the engine they were written for (Oniguruma):
 *  - \s there is the White_Space property; PCRE2 adds U+180E. It is written out here.
 *  - \p{L} and \p{N} follow the Unicode version of the library: 14.0 in PCRE2 10.42. What 15.0 to
 *    16.0 added is written out, so that ids do not depend on the PCRE2 at hand.
 *
 * Sources: the GPT-2 regex is ByteLevel's in huggingface/tokenizers; the others are the Split
 * patterns in the tokenizer.json files of SmolLM2, Llama 3 and Qwen2. */
#include "models/pretokenizer.h"

#include "config/utf8.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SPLITS 2
#define MAX_NAMES 4

/* Members of a character class. Ranges: letters and numbers of Unicode 15.0, 15.1 and 16.0
 * (DerivedGeneralCategory.txt of the Unicode Character Database). */
#define SPACE                                                                                      \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define LETTER "\\p{L}" NEW_LETTERS
#define NUMBER "\\p{N}" NEW_NUMBERS
#define NEW_LETTERS                                                                                \
    "\\x{1c89}-\\x{1c8a}\\x{a7cb}-\\x{a7cd}\\x{a7da}-\\x{a7dc}\\x{105c0}-\\x{105f3}"               \
    "\\x{10d4a}-\\x{10d65}\\x{10d6f}-\\x{10d85}\\x{10ec2}-\\x{10ec4}\\x{1123f}-\\x{11240}"         \
    "\\x{11380}-\\x{11389}\\x{1138b}\\x{1138e}\\x{11390}-\\x{113b5}\\x{113b7}\\x{113d1}"           \
    "\\x{113d3}\\x{11bc0}-\\x{11be0}\\x{11f02}\\x{11f04}-\\x{11f10}\\x{11f12}-\\x{11f33}"          \
    "\\x{1342f}\\x{13441}-\\x{13446}\\x{13460}-\\x{143fa}\\x{16100}-\\x{1611d}"                    \
    "\\x{16d40}-\\x{16d6c}\\x{18cff}\\x{1b132}\\x{1b155}\\x{1df25}-\\x{1df2a}"                     \
    "\\x{1e030}-\\x{1e06d}\\x{1e4d0}-\\x{1e4eb}\\x{1e5d0}-\\x{1e5ed}\\x{1e5f0}\\x{2b739}"          \
    "\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"
#define NEW_NUMBERS                                                                                \
    "\\x{10d40}-\\x{10d49}\\x{116d0}-\\x{116e3}\\x{11bf0}-\\x{11bf9}\\x{11f50}-\\x{11f59}"         \
    "\\x{16130}-\\x{16139}\\x{16d70}-\\x{16d79}\\x{1ccf0}-\\x{1ccf9}\\x{1d2c0}-\\x{1d2d3}"         \
    "\\x{1e4f0}-\\x{1e4f9}\\x{1e5f1}-\\x{1e5fa}"
/* Hugging Face's Digits follows Rust's tables, here of Unicode 17.0. */
#define DIGITS "[" NUMBER "\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]"

#define OTHER "[^" SPACE LETTER NUMBER "]"
#define SPACES "[" SPACE "]+(?![^" SPACE "])|[" SPACE "]+"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?[" LETTER "]+| ?[" NUMBER "]+| ?" OTHER "+|" SPACES
#define CL100K(numbers)                                                                            \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n" LETTER NUMBER "]?[" LETTER "]+|[" NUMBER "]" numbers   \
    "| ?" OTHER "+[\\r\\n]*|[" SPACE "]*[\\r\\n]+|" SPACES

struct pretokenizer_kind {
    const char *names[MAX_NAMES];
    const char *splits[MAX_SPLITS];
    bool ignores_merges;
    bool adds_bos;
};

static const struct pretokenizer_kind kinds[] = {
    {.names = {"gpt-2", "gpt2", "default"}, .splits = {GPT2}},
    {.names = {"smollm", "starcoder", "refact"}, .splits = {DIGITS, GPT2}},
    {.names = {"llama-bpe", "llama3", "llama-v3"},
     .splits = {CL100K("{1,3}")},
     .ignores_merges = true,
     .adds_bos = true},
    {.names = {"qwen2", "deepseek-r1-qwen"}, .splits = {CL100K("")}},
};

struct pretokenizer {
    const struct pretokenizer_kind *kind;
    int num_splits;
    pcre2_code *splits[MAX_SPLITS];
    pcre2_match_context *limits;
};

struct pretokenizer_scratch {
    pcre2_match_data *matches[MAX_SPLITS];
};

static const struct pretokenizer_kind *find_kind(struct text name) {
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (int k = 0; k < MAX_NAMES && kinds[i].names[k] != NULL; k++) {
            const char *known = kinds[i].names[k];
            if (strlen(known) == name.length && memcmp(known, name.data, name.length) == 0)
                return &kinds[i];
        }
    }
    return NULL;
}

static int refuse_name(struct text name, struct error *err) {
    char shown[UTF8_PRINTABLE_BYTES];
    char known[256] = "";
    size_t used = 0;
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        for (int k = 0; k < MAX_NAMES && kinds[i].names[k] != NULL && used < sizeof(known); k++)
            used += (size_t)snprintf(known + used, sizeof(known) - used, "%s%s",
                                     used > 0 ? ", " : "", kinds[i].names[k]);
    }
    utf8_printable(name, shown);
    return error_set(err, ERROR_MODEL, "tokenizer.ggml.pre is \"%s\", known are %s", shown, known);
}

static int compile(struct pretokenizer *p, struct error *err) {
    for (int i = 0; i < MAX_SPLITS && p->kind->splits[i] != NULL; i++) {
        int code;
        size_t offset;
        p->splits[i] = pcre2_compile((PCRE2_SPTR)p->kind->splits[i], PCRE2_ZERO_TERMINATED,
                                     PCRE2_UTF | PCRE2_UCP, &code, &offset, NULL);
        if (p->splits[i] == NULL)
            return error_set(err, ERROR_MEMORY,
                             "PCRE2 does not compile pre-tokenizer %s: error %d at %zu",
                             p->kind->names[0], code, offset);
        /* Failure is no matter: see above. */
        pcre2_jit_compile(p->splits[i], PCRE2_JIT_COMPLETE);
        p->num_splits = i + 1;
    }
    return 0;
}

int pretokenizer_create(struct text name, struct pretokenizer **out, struct error *err) {
    const struct pretokenizer_kind *kind = find_kind(name);
    if (kind == NULL)
        return refuse_name(name, err);
    struct pretokenizer *p = calloc(1, sizeof(*p));
    if (p == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for pre-tokenizer %s", kind->names[0]);
    p->kind = kind;
    p->limits = pcre2_match_context_create(NULL);
    int status = p->limits != NULL ? compile(p, err)
                                   : error_set(err, ERROR_MEMORY, "no memory for pre-tokenizer %s",
                                               kind->names[0]);
    if (status != 0) {
        pretokenizer_destroy(p);
        return -1;
    }
    pcre2_set_match_limit(p->limits, UINT32_MAX);
    *out = p;
    return 0;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer) {
    if (pretokenizer == NULL)
        return;
    for (int i = 0; i < MAX_SPLITS; i++)
        pcre2_code_free(pretokenizer->splits[i]);
    pcre2_match_context_free(pretokenizer->limits);
    free(pretokenizer);
}

const char *pretokenizer_name(const struct pretokenizer *pretokenizer) {
    return pretokenizer->kind->names[0];
}

bool pretokenizer_ignores_merges(const struct pretokenizer *pretokenizer) {
    return pretokenizer->kind->ignores_merges;
}

bool pretokenizer_adds_bos(const struct pretokenizer *pretokenizer) {
    return pretokenizer->kind->adds_bos;
}

struct pretokenizer_scratch *pretokenizer_scratch_create(const struct pretokenizer *pretokenizer) {
    struct pretokenizer_scratch *scratch = calloc(1, sizeof(*scratch));
    for (int i = 0; scratch != NULL && i < pretokenizer->num_splits; i++) {
        scratch->matches[i] = pcre2_match_data_create(1, NULL);
        if (scratch->matches[i] == NULL) {
            pretokenizer_scratch_destroy(scratch);
            return NULL;
        }
    }
    return scratch;
}

void pretokenizer_scratch_destroy(struct pretokenizer_scratch *scratch) {
    if (scratch == NULL)
        return;
    for (int i = 0; i < MAX_SPLITS; i++)
        pcre2_match_data_free(scratch->matches[i]);
    free(scratch);
}

struct run {
    const struct pretokenizer *pretokenizer;
    struct pretokenizer_scratch *scratch;
    pretokenizer_sink sink;
    void *context;
};

/* Splits the span with regex number `depth` and hands the parts to the next one. A span is a
 * subject of its own: look-ahead ends where it ends. */
static int split(const struct run *run, int depth, const char *span, size_t length) {
    if (length == 0)
        return 0;
    const struct pretokenizer *p = run->pretokenizer;
    if (depth == MAX_SPLITS || depth == p->num_splits)
        return run->sink(run->context, span, length);
    pcre2_match_data *match = run->scratch->matches[depth];
    const size_t *range = pcre2_get_ovector_pointer(match);
    for (size_t position = 0; position < length;) {
        int found = pcre2_match(p->splits[depth], (PCRE2_SPTR)span, length, position,
                                PCRE2_NO_UTF_CHECK, match, p->limits);
        size_t start = found > 0 && range[1] > range[0] ? range[0] : length;
        size_t end = start < length ? range[1] : length;
        int status = split(run, depth + 1, span + position, start - position);
        if (status == 0)
            status = split(run, depth + 1, span + start, end - start);
        if (status != 0)
            return status;
        position = end;
    }
    return 0;
}

int pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                     const char *text, size_t length, pretokenizer_sink sink, void *context) {
    const struct run run = {pretokenizer, scratch, sink, context};
    return split(&run, 0, text, length);
}
