/* grammar_steps MODEL.gguf|FOLDER: what grammars allow, token by token, and how long that takes,
 * for compare_grammars.py. Reads a JSON object a line,
 *     {"kind": "json", "regex" or "grammar", "grammar": ..., "texts": [[ids], ...]}
 * (JSON without white space; a grammar in a notation of grammar_text.h) and writes for each a line,
 *     {"error": "..."} or {"build_ns": N, "texts": [{"accepted": N, "cold_ns": [...], "warm_ns":
 * [...]}]}, and then the masks: for each text one in front of every token that was accepted and one
 * behind the last, (tokens of the vocabulary + 31) / 32 words each. A time is that of a mask and of
 * the token behind it; cold with a grammar that was just built (its first time includes the
 * state's), warm with one that followed the text before. build_ns is the first text's. */
#include "engine/grammar/read/grammar_regex.h"
#include "engine/grammar/read/grammar_text.h"
#include "scripts/compare/open_tokenizer.h"
#include "engine/grammar/read/json_schema.h"
#include "config/json/json_read.h"
#include "config/json/json_write.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_TOKENS 4096 /* of a text */

static struct tokenizer *tokenizer;
static struct grammar_vocabulary *vocabulary;
static size_t mask_words;

/* The processor's time: others use it too. */
static int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static const cJSON *member(const cJSON *json, const char *name) {
    return cJSON_GetObjectItemCaseSensitive(json, name);
}

static int read_root(const cJSON *json, struct grammar_builder *builder, grammar_node *out,
                     struct api_error *api, struct error *err) {
    const char *kind = member(json, "kind")->valuestring;
    const cJSON *grammar = member(json, "grammar");
    if (strcmp(kind, "json") == 0)
        return json_schema_node(builder, grammar, "schema", false, "", out, api);
    if (strcmp(kind, "regex") == 0)
        return grammar_regex(builder, grammar->valuestring, REGEX_TEXT, out, err);
    return grammar_text(builder, grammar->valuestring, out, err);
}

/* Returns NULL, and why in `reason`. */
static struct grammar *build(const cJSON *json, int64_t *out_ns, struct byte_buffer *reason) {
    int64_t begin = now_ns();
    struct grammar_builder *builder = grammar_builder_create();
    struct grammar *grammar = NULL;
    struct api_error api = {0};
    struct error err = {0};
    grammar_node root;
    if (read_root(json, builder, &root, &api, &err) == 0)
        grammar_build(builder, root, &grammar, &err);
    grammar_builder_destroy(builder);
    *out_ns = now_ns() - begin;
    const char *message = api.message[0] != '\0' ? api.message : err.message;
    if (grammar == NULL)
        byte_buffer_append(reason, message, strlen(message));
    return grammar;
}

struct steps {
    int32_t num_accepted, num_masks;
    int64_t ns[MAX_TOKENS + 1];
};

/* Follows the text; appends the masks to `masks`, unless that is NULL. */
static void follow(struct grammar *grammar, const cJSON *tokens, struct steps *out,
                   struct byte_buffer *masks) {
    static uint32_t *mask;
    mask = mask != NULL ? mask : malloc(mask_words * sizeof(*mask));
    int64_t begin = now_ns();
    struct grammar_state *state = grammar_state_create(grammar, vocabulary);
    const cJSON *token = tokens->child;
    out->num_accepted = out->num_masks = 0;
    bool goes_on = true;
    while (goes_on) {
        grammar_state_mask(state, mask);
        goes_on = token != NULL && out->num_accepted < MAX_TOKENS &&
                  grammar_state_accept(state, token->valueint) == 0;
        int64_t end = now_ns();
        out->ns[out->num_masks++] = end - begin;
        if (masks != NULL)
            byte_buffer_append(masks, mask, mask_words * sizeof(*mask));
        out->num_accepted += goes_on;
        token = goes_on ? token->next : token;
        begin = now_ns();
    }
    grammar_state_destroy(state);
}

static void write_times(struct byte_buffer *out, const char *name, const struct steps *steps) {
    json_write_key(out, name);
    json_write_begin_array(out);
    for (int32_t i = 0; i < steps->num_masks; i++)
        json_write_int(out, steps->ns[i]);
    json_write_end_array(out);
}

static void answer_text(struct grammar *grammar, const cJSON *tokens, struct byte_buffer *out,
                        struct byte_buffer *masks) {
    static struct steps cold, warm;
    follow(grammar, tokens, &cold, masks);
    follow(grammar, tokens, &warm, NULL);
    json_write_begin_object(out);
    json_write_int_member(out, "accepted", cold.num_accepted);
    write_times(out, "cold_ns", &cold);
    write_times(out, "warm_ns", &warm);
    json_write_end_object(out);
}

static void answer(const cJSON *json, struct byte_buffer *out, struct byte_buffer *masks) {
    struct byte_buffer reason = {0};
    int64_t build_ns, again_ns;
    struct grammar *grammar = build(json, &build_ns, &reason);
    const cJSON *tokens;
    json_write_begin_object(out);
    if (grammar == NULL) {
        json_write_key(out, "error");
        json_write_string(out, reason.data, reason.length);
    } else {
        json_write_int_member(out, "build_ns", build_ns);
        json_write_key(out, "texts");
        json_write_begin_array(out);
        cJSON_ArrayForEach(tokens, member(json, "texts")) {
            answer_text(grammar, tokens, out, masks);
            grammar_unref(grammar);
            grammar = build(json, &again_ns, &reason);
        }
        json_write_end_array(out);
    }
    json_write_end_object(out);
    grammar_unref(grammar);
    byte_buffer_finish(&reason);
}

static int run(void) {
    static const struct json_limits limits = {JSON_MAX_DEPTH, 1 << 22};
    struct error err;
    char *line = NULL;
    size_t capacity = 0;
    ssize_t length;
    while ((length = getline(&line, &capacity, stdin)) > 0) {
        struct byte_buffer out = {0}, masks = {0};
        cJSON *json = json_read(line, (size_t)length, &limits, &err);
        if (json == NULL) {
            fprintf(stderr, "grammar_steps: a line is no JSON\n");
            return 1;
        }
        answer(json, &out, &masks);
        printf("%.*s\n", (int)out.length, out.data);
        fwrite(masks.data, 1, masks.length, stdout);
        fflush(stdout);
        byte_buffer_finish(&out);
        byte_buffer_finish(&masks);
        cJSON_Delete(json);
    }
    free(line);
    return 0;
}

int main(int argc, char **argv) {
    struct error err = {0};
    if (argc != 2) {
        fprintf(stderr, "usage: grammar_steps MODEL.gguf|FOLDER < cases > answers\n");
        return 2;
    }
    if (open_tokenizer(argv[1], &tokenizer, &err) != 0 ||
        grammar_vocabulary_create(tokenizer, &vocabulary, &err) != 0) {
        fprintf(stderr, "grammar_steps: %s\n", err.message);
        return 1;
    }
    mask_words = ((size_t)tokenizer_vocab_size(tokenizer) + 31) / 32;
    int status = run();
    grammar_vocabulary_destroy(vocabulary);
    tokenizer_close(tokenizer);
    return status;
}
