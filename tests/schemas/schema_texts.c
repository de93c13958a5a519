/* schema_texts: what the grammars of JSON schemas admit. Reads cases, one JSON object a line,
 *     {"schema": ..., "texts": ["..."], "samples": N, "seed": N, "strict": false}
 * and writes for each a line
 *     {"error": "...", "code": "..."} or {"accepted": [true, ...], "samples": ["..."]},
 * with "microseconds", the processor's time that compiling took. `texts` are tried byte by byte;
 * samples are written by taking allowed bytes at random, an end where one is allowed with one
 * chance in three; one that has become long takes the shortest way to its end. Used by
 * check_schemas.py. */
#include "engine/grammar/machine/grammar_machine.h"
#include "engine/grammar/read/json_schema.h"
#include "config/json/json_read.h"
#include "config/json/json_write.h"
#include "tests/unit/engine/grammar/machine/grammar_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_SAMPLE 4000
#define LONG_SAMPLE 150
#define MAX_PLACES 3000 /* that a search for the end looks at */
#define MAX_TRIES 8

static struct tokenizer tokenizer;
static struct grammar_vocabulary *vocabulary;
static uint64_t random_state;

static uint32_t draw(uint32_t below) {
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % below);
}

static bool matches(struct grammar *grammar, const char *text) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    const char *at = text;
    while (*at != '\0' && grammar_state_accept(state, (uint8_t)*at) == 0)
        at++;
    bool whole = *at == '\0' && grammar_state_accept(state, tokenizer.end) == 0;
    grammar_state_destroy(state);
    return whole;
}

static bool has(const uint32_t *mask, int token) {
    return (mask[token / 32] >> token % 32 & 1u) != 0;
}

/* Returns the next byte, -1 for the end. */
static int choose(const uint32_t *mask, int length) {
    static const char closing[] = "\"}]";
    int bytes[256], count = 0;
    bool is_long = length > LONG_SAMPLE;
    if (has(mask, tokenizer.end) && (is_long || draw(3) == 0))
        return -1;
    for (int i = 0; i < 3; i++)
        if (has(mask, closing[i]) && (is_long || draw(4) == 0))
            return closing[i];
    /* Printable characters mostly, so that others do not drown them. */
    bool plain = draw(8) != 0;
    for (int pass = 0; pass < 2 && count == 0; pass++)
        for (int byte = 0; byte < 256; byte++)
            if (has(mask, byte) && (pass == 1 || !plain || (byte >= ' ' && byte <= '~')))
                bytes[count++] = byte;
    return count > 0 ? bytes[draw((uint32_t)count)] : -1;
}

/* --- The shortest way to the end: a breadth-first search --- */

struct place {
    struct grammar_state *state;
    int from;
    char byte;
};

struct search {
    struct place places[MAX_PLACES];
    int count;
};

static bool is_known(const struct search *s, int32_t set) {
    for (int i = 0; i < s->count; i++)
        if (s->places[i].state->set == set)
            return true;
    return false;
}

static void add_places(struct search *s, int from, const uint32_t *mask) {
    for (int byte = 0; byte < 256 && s->count < MAX_PLACES; byte++) {
        struct grammar_state *next;
        if (!has(mask, byte))
            continue;
        next = grammar_state_clone(s->places[from].state);
        if (grammar_state_accept(next, byte) == 0 && !is_known(s, next->set))
            s->places[s->count++] = (struct place){next, from, (char)byte};
        else
            grammar_state_destroy(next);
    }
}

/* Appends the bytes to the end; returns the length, -1 when none was found. */
static int append_end(const struct grammar_state *state, char *out, int length) {
    static struct search s;
    uint32_t mask[FIXTURE_WORDS] = {0};
    int found = -1;
    s.places[0] = (struct place){grammar_state_clone(state), -1, 0};
    s.count = 1;
    for (int i = 0; i < s.count && found < 0; i++) {
        if (grammar_state_mask(s.places[i].state, mask) != 0)
            break;
        if (has(mask, tokenizer.end))
            found = i;
        else
            add_places(&s, i, mask);
    }
    int steps = 0;
    for (int i = found; i > 0; i = s.places[i].from)
        steps++;
    for (int i = found, at = length + steps; i > 0; i = s.places[i].from)
        out[--at] = s.places[i].byte;
    for (int i = 0; i < s.count; i++)
        grammar_state_destroy(s.places[i].state);
    return found >= 0 ? length + steps : -1;
}

/* Returns the length; -1: no end was found. */
static int try_sample(struct grammar *grammar, char *out) {
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    uint32_t mask[FIXTURE_WORDS] = {0};
    int length = 0, result = -1;
    while (length < MAX_SAMPLE && result < 0) {
        if (grammar_state_mask(state, mask) != 0)
            break;
        int byte = choose(mask, length);
        if (byte < 0) {
            result = has(mask, tokenizer.end) ? length : -1;
            break;
        }
        if (grammar_state_accept(state, byte) != 0)
            break;
        out[length++] = (char)byte;
        if (length > LONG_SAMPLE && length % 16 == 0)
            result = append_end(state, out, length);
    }
    grammar_state_destroy(state);
    return result;
}

static int sample(struct grammar *grammar, char *out) {
    int result = -1;
    for (int i = 0; i < MAX_TRIES && result < 0; i++)
        result = try_sample(grammar, out);
    return result;
}

static void write_texts(struct grammar *grammar, const cJSON *texts, struct byte_buffer *out) {
    const cJSON *text;
    json_write_key(out, "accepted");
    json_write_begin_array(out);
    cJSON_ArrayForEach(text, texts) json_write_bool(out, matches(grammar, text->valuestring));
    json_write_end_array(out);
}

static void write_samples(struct grammar *grammar, int count, struct byte_buffer *out) {
    static char text[MAX_SAMPLE + MAX_PLACES];
    grammar->cache_bytes = (size_t)1 << 30; /* sets keep their ids */
    json_write_key(out, "samples");
    json_write_begin_array(out);
    for (int i = 0; i < count; i++) {
        int length = sample(grammar, text);
        if (length < 0)
            json_write_null(out);
        else
            json_write_string(out, text, (size_t)length);
    }
    json_write_end_array(out);
}

static int build(const cJSON *schema, bool strict, struct grammar **out, struct api_error *err) {
    struct grammar_builder *builder = grammar_builder_create();
    grammar_node node;
    int result = json_schema_node(builder, schema, "schema", strict, NULL, &node, err);
    if (result == 0)
        result = json_schema_build(builder, node, "schema", out, err);
    grammar_builder_destroy(builder);
    return result;
}

static int number_of(const cJSON *json, const char *key) {
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(json, key);
    return cJSON_IsNumber(item) ? item->valueint : 0;
}

static void answer(const cJSON *json, struct byte_buffer *out) {
    struct grammar *grammar;
    struct api_error err = {0};
    clock_t start = clock();
    int result =
        build(cJSON_GetObjectItemCaseSensitive(json, "schema"),
              cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(json, "strict")), &grammar, &err);
    clock_t took = clock() - start;
    random_state = (uint64_t)number_of(json, "seed");
    json_write_begin_object(out);
    json_write_int_member(out, "microseconds", (int64_t)took * 1000000 / CLOCKS_PER_SEC);
    if (result != 0) {
        json_write_text_member(out, "error", err.message);
        json_write_text_member(out, "code", err.code);
        json_write_int_member(out, "status", err.status);
    } else {
        write_texts(grammar, cJSON_GetObjectItemCaseSensitive(json, "texts"), out);
        write_samples(grammar, number_of(json, "samples"), out);
        grammar_unref(grammar);
    }
    json_write_end_object(out);
}

int main(void) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, 1 << 20, .takes_any_escape = true,
                                              .takes_doubled_keys = true};
    struct error err;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    fixture_init_bytes(&tokenizer);
    if (grammar_vocabulary_create(&tokenizer, &vocabulary, &err) != 0)
        return 1;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        struct byte_buffer out = {0};
        cJSON *json = json_read(line, (size_t)length, &limits, &err);
        if (json == NULL) {
            fprintf(stderr, "a line is no JSON\n");
            return 1;
        }
        answer(json, &out);
        printf("%.*s\n", (int)out.length, out.data);
        fflush(stdout);
        byte_buffer_finish(&out);
        cJSON_Delete(json);
    }
    free(line);
    grammar_vocabulary_destroy(vocabulary);
    return 0;
}
