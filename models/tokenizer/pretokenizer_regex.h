/* Private to models/: the regexes of tokenizer.json files, on PCRE2.
 *
 * They were written for Oniguruma (Ruby's syntax, UTF-8), and its meaning is kept: \s \w \d \h and
 * \p{..} of general categories are rewritten to the characters of Unicode 16.0, independently of
 * PCRE2's own tables; (?m) becomes PCRE2's (?s), ^ and $ match at every line. Set operations in a
 * class ([a&&b], a class within a class), \P{..} of a category within a class that newer Unicode
 * extends, and a + after {n,m} mean different things there and are refused.
 *
 * A pattern that is not one of ours may take exponential time, so it runs with limits: a match that
 * exceeds PCRE2's limits counts as no match for the rest of the text; when all matches in a text
 * take longer than its budget, the search fails. */
#ifndef QUIRE_MODELS_TOKENIZER_PRETOKENIZER_REGEX_H
#define QUIRE_MODELS_TOKENIZER_PRETOKENIZER_REGEX_H

#include "config/base/error.h"
#include "models/files/tensor_file.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Immutable; shared by all threads. */
struct split_regex;

/* trusted: the pattern is ours and known to take linear time. ERROR_MODEL names the pattern. */
int split_regex_create(struct text pattern, bool trusted, struct split_regex **out,
                       struct error *err);
/* Accepts NULL. */
void split_regex_destroy(struct split_regex *regex);

/* Scratch of one thread for one regex. */
struct split_matcher;
/* NULL when memory is short. */
struct split_matcher *split_matcher_create(const struct split_regex *regex);
/* Accepts NULL. */
void split_matcher_destroy(struct split_matcher *matcher);

/* The deadline of a thread's matching, in processor time of the thread. That much time must also
 * have passed on the clock, which is cheaper to read and is checked first. */
struct split_deadline {
    int64_t clock_ns, processor_ns;
};
struct split_deadline split_deadline_after(int64_t budget_ns);

/* Finds the first match in text[0..length), valid UTF-8, at or after `from`. Returns 1 with the
 * match in range[0..1], 0 if there is none, -1 if the deadline has passed. deadline is NULL for a
 * trusted regex. */
int split_matcher_find(struct split_matcher *matcher, const char *text, size_t length, size_t from,
                       const struct split_deadline *deadline, size_t range[2]);

#endif
