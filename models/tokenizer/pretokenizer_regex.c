/* Matching uses PCRE2's JIT; where no executable memory may be had, PCRE2 interprets with the same
 * result. PCRE2's match limit, which guards against exponential regexes, counts each step of a
 * repeat, so that a run of millions of blanks would reach it: for patterns that are known to be
 * linear it is lifted.
 *
 * It counts anew from every place a match may start at. So a pattern that is not trusted is asked
 * for a match that starts in the next few places only, and the clock is read in between: at one
 * place first, then at more while that takes next to no time, fewer the longer the text is. */
#include "models/tokenizer/pretokenizer_regex.h"

#include "config/base/clock.h"
#include "config/base/utf8.h"
#include "models/tokenizer/pretokenizer_syntax.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <stdlib.h>
#include <time.h>

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
    if (pretokenizer_syntax_rewrite(pattern, &rewritten, err) != 0) {
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

/* Returns the places of the next search, behind one of `window` places that took so long. */
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
