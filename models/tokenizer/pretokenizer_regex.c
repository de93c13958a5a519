#include "models/tokenizer/pretokenizer_regex.h"

#include "config/base/byte_buffer.h"
#include "config/base/clock.h"
#include "config/base/utf8.h"
#include "models/tokenizer/unicode_classes.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define MAX_PATTERN_BYTES 4096

/* --- Oniguruma's syntax, rewritten for PCRE2 --- */

/* Members of classes: PCRE2's own, and what newer Unicode added. */
#define SPACE                                                                                      \
    "\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}"    \
    "\\x{205f}\\x{3000}"
#define NO_SPACE                                                                                   \
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-"         \
    "\\x{1fff}\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"        \
    "\\x{3001}-\\x{10ffff}"

struct class {
    const char *name;
    const char *members;
};

/* Scripts are listed where newer Unicode added to them. */
static const struct class categories[] = {
    {"L", "\\p{L}" NEW_L},
    {"Letter", "\\p{L}" NEW_L},
    {"Lu", "\\p{Lu}" NEW_LU},
    {"Ll", "\\p{Ll}" NEW_LL},
    {"Lt", "\\p{Lt}"},
    {"Lm", "\\p{Lm}" NEW_LM},
    {"Lo", "\\p{Lo}" NEW_LO},
    {"M", "\\p{M}" NEW_M},
    {"Mark", "\\p{M}" NEW_M},
    {"Mn", "\\p{Mn}" NEW_MN},
    {"Mc", "\\p{Mc}" NEW_MC},
    {"Me", "\\p{Me}"},
    {"N", "\\p{N}" NEW_N},
    {"Number", "\\p{N}" NEW_N},
    {"Nd", "\\p{Nd}" NEW_ND},
    {"Nl", "\\p{Nl}"},
    {"No", "\\p{No}" NEW_NO},
    {"P", "\\p{P}" NEW_P},
    {"Punctuation", "\\p{P}" NEW_P},
    {"Pc", "\\p{Pc}"},
    {"Pd", "\\p{Pd}" NEW_PD},
    {"Ps", "\\p{Ps}"},
    {"Pe", "\\p{Pe}"},
    {"Pi", "\\p{Pi}"},
    {"Pf", "\\p{Pf}"},
    {"Po", "\\p{Po}" NEW_PO},
    {"S", "\\p{S}" NEW_S},
    {"Symbol", "\\p{S}" NEW_S},
    {"Sm", "\\p{Sm}" NEW_SM},
    {"Sc", "\\p{Sc}"},
    {"Sk", "\\p{Sk}"},
    {"So", "\\p{So}" NEW_SO},
    {"Z", "\\p{Z}"},
    {"Zs", "\\p{Zs}"},
    {"Zl", "\\p{Zl}"},
    {"Zp", "\\p{Zp}"},
    {"Cc", "\\p{Cc}"},
    {"Cf", "\\p{Cf}" NEW_CF},
    {"Co", "\\p{Co}"},
    {"Han", "\\p{sc:Han}\\x{2b739}\\x{2ebf0}-\\x{2ee5d}\\x{31350}-\\x{323af}"},
    {"Hiragana", "\\p{sc:Hiragana}\\x{1b132}"},
    {"Katakana", "\\p{sc:Katakana}\\x{1b155}"},
    {"Hangul", "\\p{sc:Hangul}"},
    {"Thai", "\\p{sc:Thai}"},
};

/* Appends \s and the like. */
static const struct class shorthands[] = {
    {"s", SPACE},
    {"d", "\\p{Nd}" NEW_ND},
    {"w", "\\p{L}" NEW_L "\\p{M}" NEW_M "\\p{Nd}" NEW_ND "\\p{Nl}\\p{Pc}" ODD_WORD},
    {"h", "0-9A-Fa-f"},
};

struct rewrite {
    struct text pattern;
    size_t at;
    bool in_class;
    struct byte_buffer *out;
    struct error *err;
};

static int refuse(const struct rewrite *r, const char *what) {
    char shown[UTF8_PRINTABLE_BYTES];
    utf8_printable(r->pattern, shown);
    return error_set(r->err, ERROR_MODEL, "regex \"%s\": %s at %zu is not supported", shown, what,
                     r->at);
}

static void put(struct rewrite *r, const char *text) {
    byte_buffer_append(r->out, text, strlen(text));
}

static void copy(struct rewrite *r, size_t length) {
    byte_buffer_append(r->out, r->pattern.data + r->at, length);
    r->at += length;
}

/* Returns the character `ahead` of the current one, 0 after the end. */
static char peek(const struct rewrite *r, size_t ahead) {
    return r->at + ahead < r->pattern.length ? r->pattern.data[r->at + ahead] : 0;
}

static int put_class(struct rewrite *r, const char *members, bool negated) {
    if (r->in_class && negated) {
        if (strcmp(members, SPACE) != 0)
            return refuse(r, "a negated class within a class");
        members = NO_SPACE;
        negated = false;
    }
    put(r, r->in_class ? "" : negated ? "[^" : "[");
    put(r, members);
    put(r, r->in_class ? "" : "]");
    return 0;
}

static const char *find_category(const char *name, size_t length) {
    for (size_t i = 0; i < sizeof(categories) / sizeof(categories[0]); i++) {
        if (strlen(categories[i].name) == length && memcmp(categories[i].name, name, length) == 0)
            return categories[i].members;
    }
    return NULL;
}

/* \p{..} and \P{..}. */
static int rewrite_property(struct rewrite *r) {
    bool negated = peek(r, 1) == 'P';
    size_t begin = r->at + 3;
    if (peek(r, 2) == '{' && peek(r, 3) == '^') {
        negated = !negated;
        begin++;
    }
    size_t end = begin;
    while (end < r->pattern.length && r->pattern.data[end] != '}')
        end++;
    const char *members = peek(r, 2) == '{' && end < r->pattern.length
                              ? find_category(r->pattern.data + begin, end - begin)
                              : NULL;
    if (members == NULL)
        return refuse(r, "a character property of that name");
    if (put_class(r, members, negated) != 0)
        return -1;
    r->at = end + 1;
    return 0;
}

static bool is_hex(char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

/* \uHHHH */
static int rewrite_code_point(struct rewrite *r) {
    for (size_t i = 2; i < 6; i++) {
        if (!is_hex(peek(r, i)))
            return refuse(r, "\\u without four digits");
    }
    put(r, "\\x{");
    r->at += 2;
    copy(r, 4);
    put(r, "}");
    return 0;
}

static int rewrite_escape(struct rewrite *r) {
    char c = peek(r, 1);
    if (c == 'p' || c == 'P')
        return rewrite_property(r);
    if (c == 'u')
        return rewrite_code_point(r);
    for (size_t i = 0; i < sizeof(shorthands) / sizeof(shorthands[0]); i++) {
        char name = shorthands[i].name[0];
        if (c != name && c != name - 'a' + 'A')
            continue;
        if (put_class(r, shorthands[i].members, c != name) != 0)
            return -1;
        r->at += 2;
        return 0;
    }
    bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (c == 0 || (is_letter && strchr(r->in_class ? "nrtfvaex" : "nrtfvaexAzZbB", c) == NULL))
        return refuse(r, "that escape");
    copy(r, 2);
    return 0;
}

/* "(?" and its options: (?m) makes a point match newlines, which PCRE2 writes (?s). */
static int rewrite_group(struct rewrite *r) {
    if (peek(r, 1) == '*' ||
        (peek(r, 1) == '?' && peek(r, 2) != 0 && strchr("CR&P0123456789~", peek(r, 2)) != NULL))
        return refuse(r, "a group of that kind");
    if (peek(r, 1) != '?') {
        copy(r, 1);
        return 0;
    }
    copy(r, 2);
    while (peek(r, 0) != 0 && strchr("imx-", peek(r, 0)) != NULL) {
        if (peek(r, 0) == 'm') {
            put(r, "s");
            r->at++;
        } else {
            copy(r, 1);
        }
    }
    return 0;
}

/* {n}, {n,m}; any other brace is itself. */
static int rewrite_brace(struct rewrite *r) {
    size_t end = 1;
    while (peek(r, end) == ',' || (peek(r, end) >= '0' && peek(r, end) <= '9'))
        end++;
    if (peek(r, end) == '}' && end > 1 && peek(r, end + 1) == '+')
        return refuse(r, "a + after a count");
    /* "{,m}" counts from 0 there and is plain text in older PCRE2. */
    if (peek(r, end) == '}' && end > 2 && peek(r, 1) == ',') {
        put(r, "{0");
        r->at++;
        end--;
    }
    copy(r, peek(r, end) == '}' ? end + 1 : 1);
    return 0;
}

static int rewrite_in_class(struct rewrite *r) {
    char c = peek(r, 0);
    if (c == '\\')
        return rewrite_escape(r);
    if (c == '[')
        return refuse(r, "a class within a class");
    if (c == '&' && peek(r, 1) == '&')
        return refuse(r, "&& in a class");
    r->in_class = c != ']';
    copy(r, 1);
    return 0;
}

static int rewrite_outside(struct rewrite *r) {
    switch (peek(r, 0)) {
    case '\\':
        return rewrite_escape(r);
    case '(':
        return rewrite_group(r);
    case '{':
        return rewrite_brace(r);
    case '[':
        r->in_class = true;
        copy(r, peek(r, 1) == '^' ? 2 : 1);
        if (peek(r, 0) == ']')
            return refuse(r, "an empty class");
        return 0;
    default:
        copy(r, 1);
        return 0;
    }
}

/* Appends the pattern in PCRE2's syntax. ERROR_MODEL names it and what is not supported. */
static int rewrite(struct text pattern, struct byte_buffer *out, struct error *err) {
    struct rewrite r = {.pattern = pattern, .out = out, .err = err};
    if (pattern.length > MAX_PATTERN_BYTES)
        return error_set(err, ERROR_MODEL, "a regex has %zu bytes, allowed are %d", pattern.length,
                         MAX_PATTERN_BYTES);
    if (memchr(pattern.data, 0, pattern.length) != NULL)
        return error_set(err, ERROR_MODEL, "a regex has a NUL character");
    while (r.at < pattern.length) {
        if ((r.in_class ? rewrite_in_class(&r) : rewrite_outside(&r)) != 0)
            return -1;
    }
    return out->failed ? error_set(err, ERROR_MEMORY, "no memory for a regex") : 0;
}

/* --- Matching ---
 * Matching uses PCRE2's JIT; where no executable memory may be had, PCRE2 interprets with the same
 * result. PCRE2's match limit, which guards against exponential regexes, counts each step of a
 * repeat, so that a run of millions of blanks would reach it: for patterns that are known to be
 * linear it is lifted.
 *
 * It starts counting again at every place where a match may start. So a pattern that is not trusted
 * is asked for a match that starts in the next few places only, and the clock is read in between:
 * at one place first, then at more while that takes next to no time, fewer the longer the text
 * is. */

#define MATCH_LIMIT 1000000
#define HEAP_LIMIT_KIB (64 * 1024)
#define JIT_STACK_BYTES (512 * 1024)
/* Places where one search may start, at most; places times the bytes that each may look at; and
 * what a search may take for the next one to have twice the places. */
#define MAX_WINDOW 256
#define MAX_WINDOW_WORK ((size_t)1 << 24)
#define CHEAP_NS 20000

struct split_regex {
    pcre2_code *code;
    bool trusted;
};

struct split_matcher {
    const struct split_regex *regex;
    pcre2_match_data *data;
    pcre2_match_context *context;
    pcre2_jit_stack *stack;
};

static int compile(struct text pattern, struct split_regex *regex, struct error *err) {
    struct byte_buffer rewritten = {0};
    int code = 0;
    size_t offset = 0;
    if (rewrite(pattern, &rewritten, err) != 0) {
        byte_buffer_finish(&rewritten);
        return -1;
    }
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    if (context != NULL) {
        pcre2_set_newline(context, PCRE2_NEWLINE_LF);
        regex->code = pcre2_compile(
            (PCRE2_SPTR)(rewritten.data != NULL ? rewritten.data : ""), rewritten.length,
            options | (regex->trusted ? 0 : PCRE2_USE_OFFSET_LIMIT), &code, &offset, context);
        pcre2_compile_context_free(context);
    }
    byte_buffer_finish(&rewritten);
    if (regex->code == NULL) {
        char shown[UTF8_PRINTABLE_BYTES], reason[120] = "no memory";
        utf8_printable(pattern, shown);
        if (code != 0)
            pcre2_get_error_message(code, (PCRE2_UCHAR *)reason, sizeof(reason));
        return error_set(err, ERROR_MODEL, "regex \"%s\": %s", shown, reason);
    }
    /* A failure does no harm: see above. */
    pcre2_jit_compile(regex->code, PCRE2_JIT_COMPLETE);
    return 0;
}

int split_regex_create(struct text pattern, bool trusted, struct split_regex **out,
                       struct error *err) {
    struct split_regex *regex = calloc(1, sizeof(*regex));
    if (regex == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a regex");
    regex->trusted = trusted;
    if (compile(pattern, regex, err) != 0) {
        split_regex_destroy(regex);
        return -1;
    }
    *out = regex;
    return 0;
}

void split_regex_destroy(struct split_regex *regex) {
    if (regex == NULL)
        return;
    pcre2_code_free(regex->code);
    free(regex);
}

struct split_matcher *split_matcher_create(const struct split_regex *regex) {
    struct split_matcher *matcher = calloc(1, sizeof(*matcher));
    if (matcher == NULL)
        return NULL;
    matcher->regex = regex;
    matcher->data = pcre2_match_data_create(1, NULL);
    matcher->context = pcre2_match_context_create(NULL);
    if (matcher->data == NULL || matcher->context == NULL) {
        split_matcher_destroy(matcher);
        return NULL;
    }
    pcre2_set_match_limit(matcher->context, regex->trusted ? UINT32_MAX : MATCH_LIMIT);
    if (!regex->trusted) {
        pcre2_set_heap_limit(matcher->context, HEAP_LIMIT_KIB);
        /* Without one, 32 KiB of the machine's stack serve. */
        matcher->stack = pcre2_jit_stack_create(32 * 1024, JIT_STACK_BYTES, NULL);
        if (matcher->stack != NULL)
            pcre2_jit_stack_assign(matcher->context, NULL, matcher->stack);
    }
    return matcher;
}

void split_matcher_destroy(struct split_matcher *matcher) {
    if (matcher == NULL)
        return;
    pcre2_jit_stack_free(matcher->stack);
    pcre2_match_context_free(matcher->context);
    pcre2_match_data_free(matcher->data);
    free(matcher);
}

static int64_t processor_ns(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (int64_t)used.tv_sec * CLOCK_NS_PER_S + used.tv_nsec;
}

struct split_deadline split_deadline_after(int64_t budget_ns) {
    return (struct split_deadline){
        .clock_ns = clock_now_ns() + budget_ns,
        .processor_ns = processor_ns() + budget_ns,
    };
}

static bool is_over(const struct split_deadline *deadline, int64_t now_ns) {
    return now_ns > deadline->clock_ns && processor_ns() > deadline->processor_ns;
}

static int match(struct split_matcher *m, const char *text, size_t length, size_t from) {
    int found = pcre2_match(m->regex->code, (PCRE2_SPTR)text, length, from, PCRE2_NO_UTF_CHECK,
                            m->data, m->context);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT)
        found = pcre2_match(m->regex->code, (PCRE2_SPTR)text, length, from,
                            PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, m->data, m->context);
    return found;
}

/* Returns the number of places of the next search, after one of `window` places that took that
 * long. */
static size_t next_window(size_t window, int64_t took_ns, size_t length) {
    size_t most = MAX_WINDOW_WORK / (length + 1);
    most = most > MAX_WINDOW ? MAX_WINDOW : most;
    window = took_ns < CHEAP_NS ? 2 * window : 1;
    return window < most ? window : most > 0 ? most : 1;
}

/* Searches as `match` does, for a pattern that is not trusted. Returns -1 if the deadline is
 * over. */
static int match_within(struct split_matcher *m, const char *text, size_t length, size_t from,
                        const struct split_deadline *deadline, int *out_found) {
    int64_t now_ns = clock_now_ns(), before_ns;
    size_t window = 1;
    for (size_t at = from; at <= length;) {
        size_t last = length - at < window ? length : at + window - 1;
        if (is_over(deadline, now_ns))
            return -1;
        pcre2_set_offset_limit(m->context, last);
        *out_found = match(m, text, length, at);
        if (*out_found != PCRE2_ERROR_NOMATCH)
            return 0;
        at = last + 1;
        while (at < length && utf8_continues(text[at]))
            at++;
        before_ns = now_ns;
        now_ns = clock_now_ns();
        window = next_window(window, now_ns - before_ns, length - last);
    }
    return 0;
}

int split_matcher_find(struct split_matcher *matcher, const char *text, size_t length, size_t from,
                       const struct split_deadline *deadline, size_t range[2]) {
    int found = PCRE2_ERROR_NOMATCH;
    if (matcher->regex->trusted)
        found = match(matcher, text, length, from);
    else if (match_within(matcher, text, length, from, deadline, &found) != 0)
        return -1;
    if (found < 0)
        return 0;
    const size_t *ovector = pcre2_get_ovector_pointer(matcher->data);
    range[0] = ovector[0];
    range[1] = ovector[1];
    return range[1] >= range[0] && range[0] >= from;
}
