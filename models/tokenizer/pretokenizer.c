/* A split walks through what matches and what is between, in order. A match stays a piece, vanishes
 * or joins a neighbour, so one range is held back until the next is known. */
#include "models/tokenizer/pretokenizer.h"

#include "config/base/byte_buffer.h"
#include "config/base/utf8.h"
#include "models/tokenizer/pretokenizer_presets.h"
#include "models/tokenizer/pretokenizer_regex.h"
#include "models/tokenizer/tokenizer.h"
#include "models/tokenizer/unicode_classes.h"

#include <stdlib.h>
#include <string.h>

/* For a file's own patterns: 2 s, and 0.2 s for each megabyte. */
#define BUDGET_NS 2000000000
#define BUDGET_NS_PER_BYTE 200

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+"
/* Hugging Face's Digits follows Rust's tables, here of Unicode 17.0. */
#define DIGIT "[\\p{N}\\x{11de0}-\\x{11de9}\\x{16ff4}-\\x{16ff6}]"
#define PUNCTUATION "[!-/:-@\\[-`{-~" PUNCTUATION_ODD "]|(?![" PUNCTUATION_LATER "])\\p{P}"

struct step {
    struct pretokenizer_step spec;  /* its texts are copies */
    enum split_behaviour behaviour; /* of what the step splits by */
    struct split_regex *regex;      /* NULL: by spec.pattern or not at all */
    struct text separator;          /* a plain string to split by; length 0: none */
    bool is_simple;                 /* a regex of ours, whose matches stay pieces */
};

struct pretokenizer {
    int num_steps;
    struct step steps[TOKENIZER_MAX_STEPS];
    char *texts;
};

struct pretokenizer_scratch {
    int num_steps;
    struct split_matcher *matchers[TOKENIZER_MAX_STEPS];
    struct byte_buffer texts[TOKENIZER_MAX_STEPS]; /* what a step makes of a piece */
    struct split_deadline deadline;
};

/* --- Opening --- */

static struct text literal(const char *text) {
    return (struct text){text, strlen(text)};
}

static int open_regex(struct step *step, struct text pattern, bool trusted,
                      enum split_behaviour behaviour, struct error *err) {
    step->behaviour = behaviour;
    step->is_simple = trusted && behaviour == SPLIT_ISOLATED;
    return split_regex_create(pattern, trusted, &step->regex, err);
}

static int open_step(struct step *step, struct error *err) {
    const struct pretokenizer_step *spec = &step->spec;
    switch (spec->kind) {
    case PRETOKENIZER_SPLIT:
        step->behaviour = spec->behaviour;
        if (spec->pattern_is_regex)
            return open_regex(step, spec->pattern, pretokenizer_presets_have(spec->pattern),
                              spec->behaviour, err);
        step->separator = spec->pattern;
        return 0;
    case PRETOKENIZER_DIGITS:
        return open_regex(step, literal(spec->individual ? DIGIT : DIGIT "+"), true, SPLIT_ISOLATED,
                          err);
    case PRETOKENIZER_PUNCTUATION:
        return open_regex(step, literal(PUNCTUATION), true, spec->behaviour, err);
    case PRETOKENIZER_BYTE_LEVEL:
        return spec->use_regex ? open_regex(step, literal(GPT2), true, SPLIT_ISOLATED, err) : 0;
    case PRETOKENIZER_METASPACE:
        step->behaviour = SPLIT_MERGED_WITH_NEXT;
        step->separator = spec->split ? spec->replacement : (struct text){0};
        return 0;
    }
    return 0;
}

int pretokenizer_create(const struct tokenizer_spec *spec, struct pretokenizer **out,
                        struct error *err) {
    size_t bytes = 0;
    if (spec->num_pretokenizers < 0 || spec->num_pretokenizers > TOKENIZER_MAX_STEPS)
        return error_set(err, ERROR_MODEL, "the tokenizer has %d pre-tokenizers, allowed are %d",
                         spec->num_pretokenizers, TOKENIZER_MAX_STEPS);
    for (int i = 0; i < spec->num_pretokenizers; i++)
        bytes += spec->pretokenizers[i].pattern.length + spec->pretokenizers[i].replacement.length;
    struct pretokenizer *p = calloc(1, sizeof(*p));
    char *next = p == NULL ? NULL : malloc(bytes + 1);
    int status = 0;
    if (next == NULL)
        status = error_set(err, ERROR_MEMORY, "no memory for a pre-tokenizer");
    else
        p->texts = next;
    for (int i = 0; status == 0 && i < spec->num_pretokenizers; i++) {
        struct step *step = &p->steps[p->num_steps++];
        step->spec = spec->pretokenizers[i];
        step->spec.pattern = text_copy(step->spec.pattern, &next);
        step->spec.replacement = text_copy(step->spec.replacement, &next);
        status = open_step(step, err);
    }
    if (status != 0) {
        pretokenizer_destroy(p);
        return -1;
    }
    *out = p;
    return 0;
}

void pretokenizer_destroy(struct pretokenizer *pretokenizer) {
    if (pretokenizer == NULL)
        return;
    for (int i = 0; i < pretokenizer->num_steps; i++)
        split_regex_destroy(pretokenizer->steps[i].regex);
    free(pretokenizer->texts);
    free(pretokenizer);
}

struct pretokenizer_scratch *pretokenizer_scratch_create(const struct pretokenizer *pretokenizer,
                                                         size_t length) {
    struct pretokenizer_scratch *scratch = calloc(1, sizeof(*scratch));
    if (scratch == NULL)
        return NULL;
    scratch->num_steps = pretokenizer->num_steps;
    int64_t bytes = length < INT32_MAX ? (int64_t)length : INT32_MAX;
    scratch->deadline = split_deadline_after(BUDGET_NS + bytes * BUDGET_NS_PER_BYTE);
    for (int i = 0; i < pretokenizer->num_steps; i++) {
        if (pretokenizer->steps[i].regex == NULL)
            continue;
        scratch->matchers[i] = split_matcher_create(pretokenizer->steps[i].regex);
        if (scratch->matchers[i] == NULL) {
            pretokenizer_scratch_destroy(scratch);
            return NULL;
        }
    }
    return scratch;
}

void pretokenizer_scratch_destroy(struct pretokenizer_scratch *scratch) {
    if (scratch == NULL)
        return;
    for (int i = 0; i < scratch->num_steps; i++) {
        split_matcher_destroy(scratch->matchers[i]);
        byte_buffer_finish(&scratch->texts[i]);
    }
    free(scratch);
}

/* --- Splitting --- */

struct run {
    const struct pretokenizer *pretokenizer;
    struct pretokenizer_scratch *scratch;
    pretokenizer_sink sink;
    void *context;
};

static int run_step(const struct run *run, int depth, struct text piece,
                    enum pretokenizer_place place);

/* A step that is splitting one piece. */
struct split {
    const struct run *run;
    int depth;
    struct text piece;
    enum pretokenizer_place place;
    enum split_behaviour behaviour;
    bool holds; /* a range is held back */
    bool held_is_match;
    size_t held_start, held_end;
};

static int emit(const struct split *split, size_t start, size_t end) {
    struct text part = {split->piece.data + start, end - start};
    if (part.length == 0)
        return 0;
    return run_step(split->run, split->depth + 1, part,
                    start == 0 ? split->place : PRETOKENIZER_INSIDE);
}

static int hold(struct split *split, size_t start, size_t end, bool is_match) {
    int status = split->holds ? emit(split, split->held_start, split->held_end) : 0;
    split->holds = true;
    split->held_is_match = is_match;
    split->held_start = start;
    split->held_end = end;
    return status;
}

/* Returns the next range: a match, or what is before one. */
static int put_range(struct split *split, size_t start, size_t end, bool is_match) {
    switch (split->behaviour) {
    case SPLIT_ISOLATED:
        return emit(split, start, end);
    case SPLIT_REMOVED:
        return is_match ? 0 : emit(split, start, end);
    case SPLIT_CONTIGUOUS:
        if (!split->holds || is_match != split->held_is_match)
            return hold(split, start, end, is_match);
        split->held_end = end;
        return 0;
    case SPLIT_MERGED_WITH_PREVIOUS:
        if (!split->holds || !is_match || split->held_is_match)
            return hold(split, start, end, is_match);
        split->held_end = end;
        split->held_is_match = true;
        return 0;
    case SPLIT_MERGED_WITH_NEXT:
        if (!split->holds || !split->held_is_match || is_match)
            return hold(split, start, end, is_match);
        split->held_end = end;
        split->held_is_match = false;
        return 0;
    }
    return 0;
}

/* Finds like split_matcher_find. */
static int find(const struct split *split, size_t from, size_t range[2]) {
    const struct step *step = &split->run->pretokenizer->steps[split->depth];
    struct pretokenizer_scratch *scratch = split->run->scratch;
    struct text piece = split->piece;
    if (step->regex != NULL)
        return split_matcher_find(scratch->matchers[split->depth], piece.data, piece.length, from,
                                  &scratch->deadline, range);
    const char *found = memmem(piece.data + from, piece.length - from, step->separator.data,
                               step->separator.length);
    if (found == NULL)
        return 0;
    range[0] = (size_t)(found - piece.data);
    range[1] = range[0] + step->separator.length;
    return 1;
}

/* Returns the next place where a digit may be. */
static size_t skip_ascii_letters(struct text piece, size_t at) {
    while (at < piece.length && (signed char)piece.data[at] >= 0 &&
           (piece.data[at] < '0' || piece.data[at] > '9'))
        at++;
    return at;
}

/* The usual case, all in one loop: what matches and what is between are pieces. The regex is ours,
 * and none of those matches nothing. */
static int split_isolated(const struct split *split) {
    struct split_matcher *matcher = split->run->scratch->matchers[split->depth];
    bool digits = split->run->pretokenizer->steps[split->depth].spec.kind == PRETOKENIZER_DIGITS;
    size_t range[2], length = split->piece.length;
    for (size_t position = 0; position < length; position = range[1]) {
        size_t from = digits ? skip_ascii_letters(split->piece, position) : position;
        if (from == length ||
            split_matcher_find(matcher, split->piece.data, length, from, NULL, range) == 0)
            return emit(split, position, length);
        int status = range[0] > position ? emit(split, position, range[0]) : 0;
        if (status == 0)
            status = emit(split, range[0], range[1]);
        if (status != 0)
            return status;
    }
    return 0;
}

static size_t next_character(struct text piece, size_t at) {
    do
        at++;
    while (at < piece.length && utf8_continues(piece.data[at]));
    return at;
}

/* An empty match counts unless it touches the match before, as in Oniguruma's bindings. */
static int split_piece(struct split *split, bool invert) {
    size_t range[2], previous = 0, length = split->piece.length;
    bool any = false;
    int status = 0, found;
    for (size_t from = 0; from <= length;) {
        found = find(split, from, range);
        if (found < 0)
            return TOKENIZER_TOO_COSTLY;
        if (found == 0)
            break;
        if (range[0] == range[1] && any && range[1] == previous) {
            from = next_character(split->piece, from);
            continue;
        }
        if (range[0] > previous)
            status = put_range(split, previous, range[0], invert);
        if (status == 0)
            status = put_range(split, range[0], range[1], !invert);
        if (status != 0)
            return status;
        from = previous = range[1];
        any = true;
    }
    if (previous < length)
        status = put_range(split, previous, length, invert);
    if (status == 0 && split->holds)
        status = emit(split, split->held_start, split->held_end);
    return status;
}

/* Spaces become the replacement, and one is put in front. */
static void put_metaspaces(const struct pretokenizer_step *spec, struct text piece,
                           enum pretokenizer_place place, struct byte_buffer *out) {
    struct text space = spec->replacement;
    bool has_one = piece.data[0] == ' ' || (piece.length >= space.length &&
                                            memcmp(piece.data, space.data, space.length) == 0);
    bool wants_one = spec->prepend == PREPEND_ALWAYS
                         ? place != PRETOKENIZER_CONTINUES
                         : spec->prepend == PREPEND_FIRST && place == PRETOKENIZER_BEGINS;
    if (wants_one && !has_one)
        byte_buffer_append(out, space.data, space.length);
    for (size_t i = 0; i < piece.length;) {
        const char *found = memchr(piece.data + i, ' ', piece.length - i);
        size_t end = found == NULL ? piece.length : (size_t)(found - piece.data);
        byte_buffer_append(out, piece.data + i, end - i);
        if (found != NULL)
            byte_buffer_append(out, space.data, space.length);
        i = end + 1;
    }
}

/* Prepares the piece as the step wants it before it splits; -1 when memory is short. */
static int change_piece(const struct step *step, enum pretokenizer_place place,
                        struct byte_buffer *buffer, struct text *piece) {
    bool is_metaspace = step->spec.kind == PRETOKENIZER_METASPACE;
    bool wants_space = step->spec.kind == PRETOKENIZER_BYTE_LEVEL && step->spec.add_prefix_space &&
                       place != PRETOKENIZER_CONTINUES && piece->data[0] != ' ';
    if (!is_metaspace && !wants_space)
        return 0;
    byte_buffer_clear(buffer);
    if (is_metaspace) {
        put_metaspaces(&step->spec, *piece, place, buffer);
    } else {
        byte_buffer_append(buffer, " ", 1);
        byte_buffer_append(buffer, piece->data, piece->length);
    }
    *piece = (struct text){buffer->data, buffer->length};
    return buffer->failed ? -1 : 0;
}

static int run_step(const struct run *run, int depth, struct text piece,
                    enum pretokenizer_place place) {
    if (depth == run->pretokenizer->num_steps)
        return run->sink(run->context, piece.data, piece.length);
    const struct step *step = &run->pretokenizer->steps[depth];
    if (change_piece(step, place, &run->scratch->texts[depth], &piece) != 0)
        return -1;
    if (step->regex == NULL && step->separator.length == 0)
        return run_step(run, depth + 1, piece, place);
    struct split split = {
        .run = run, .depth = depth, .piece = piece, .place = place, .behaviour = step->behaviour};
    if (step->is_simple)
        return split_isolated(&split);
    return split_piece(&split, step->spec.kind == PRETOKENIZER_SPLIT && step->spec.invert);
}

int pretokenizer_run(const struct pretokenizer *pretokenizer, struct pretokenizer_scratch *scratch,
                     const char *text, size_t length, enum pretokenizer_place place,
                     pretokenizer_sink sink, void *context) {
    const struct run run = {pretokenizer, scratch, sink, context};
    return length == 0 ? 0 : run_step(&run, 0, (struct text){text, length}, place);
}
