#include "server/api/scores/score_model.h"

#include "config/base/byte_buffer.h"
#include "server/api/call/api_call_type.h"
#include "server/api/conversation/chat_value.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Memory of one rendering: a few times the largest body. */
#define ARENA_BYTES ((size_t)96 << 20)

/* The prompt of the model card of Qwen3-Reranker, with its own instruction. (Jinja drops the last
 * newline of a template.) */
static const char card_template[] =
    "<|im_start|>system\n"
    "Judge whether the Document meets the requirements based on the Query and the Instruct "
    "provided. Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n"
    "<|im_start|>user\n"
    "<Instruct>: {{ instruction or 'Given a web search query, retrieve relevant passages that "
    "answer the query' }}\n"
    "<Query>: {{ query }}\n"
    "<Document>: {{ document }}<|im_end|>\n"
    "<|im_start|>assistant\n<think>\n\n</think>\n\n\n";

/* --- Rendering --- */

static struct template_value *message(struct template_arena *arena, const char *role,
                                      const char *content) {
    struct template_value *map = template_map(arena);
    chat_value_set(arena, &map, "role",
                   template_string(arena, role, strlen(role), TEMPLATE_ORIGIN_SERVER));
    chat_value_set(arena, &map, "content", chat_value_text(arena, content));
    return map;
}

static struct template_value *make_variables(const struct tokenizer *tokenizer, const char *query,
                                             const char *document, const char *instruction,
                                             struct template_arena *arena) {
    struct template_value *map = template_map(arena), *messages = template_list(arena);
    if (instruction != NULL)
        messages = template_list_append(arena, messages, message(arena, "system", instruction));
    messages = template_list_append(arena, messages, message(arena, "query", query));
    messages = template_list_append(arena, messages, message(arena, "document", document));
    chat_value_set(arena, &map, "messages", messages);
    chat_value_set(arena, &map, "query", chat_value_text(arena, query));
    chat_value_set(arena, &map, "document", chat_value_text(arena, document));
    chat_value_set(arena, &map, "instruction",
                   instruction != NULL ? chat_value_text(arena, instruction)
                                       : template_none(arena));
    chat_value_set(arena, &map, "add_generation_prompt", template_bool(arena, true));
    chat_value_set_tokens(arena, &map, tokenizer);
    return map;
}

static int render(const struct chat_template *pair_template, const struct tokenizer *tokenizer,
                  const char *query, const char *document, const char *instruction,
                  struct template_arena *arena, struct chat_text *out, struct error *err) {
    const struct template_value *variables =
        make_variables(tokenizer, query, document, instruction, arena);
    if (variables == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a pair of texts");
    return chat_template_render(pair_template, arena, variables, time(NULL), out, err);
}

/* --- Finding the template --- */

static bool shows(const struct chat_text *text, const char *part) {
    return memmem(text->data, text->length, part, strlen(part)) != NULL;
}

/* Sets the template of pairs if it shows the texts. Returns 1, or 0 if it does not; -1 and err when
 * memory is short. `why` says what is wrong with it. */
static int try_template(struct score_model *model, const char *source, struct error *why) {
    static const char query[] = "probe-of-the-query", document[] = "probe-of-the-document",
                      instruction[] = "probe-of-the-instruction";
    struct chat_template *parsed = NULL;
    struct template_arena *arena = template_arena_create(ARENA_BYTES);
    struct chat_text text = {0};
    int status = arena == NULL ? error_set(why, ERROR_MEMORY, "no memory for a template")
                               : chat_template_create(source, strlen(source), &parsed, why);
    if (status == 0)
        status = render(parsed, model->tokenizer, query, document, NULL, arena, &text, why);
    if (status == 0 && (!shows(&text, query) || !shows(&text, document)))
        status = error_set(why, ERROR_SYNTAX,
                           "does not show messages with the roles \"query\" and \"document\"");
    if (status == 0)
        status = render(parsed, model->tokenizer, query, document, instruction, arena, &text, why);
    if (status == 0)
        model->takes_instruction = shows(&text, instruction);
    template_arena_destroy(arena);
    if (status == 0)
        model->pair_template = parsed;
    else
        chat_template_destroy(parsed);
    return status == 0 ? 1 : why->code == ERROR_MEMORY ? -1 : 0;
}

/* Turns llama.cpp's form, with {query} and {document}, into Jinja. */
static int try_placeholders(struct score_model *model, const char *source, struct error *why) {
    static const char *const names[] = {"{query}", "{document}"};
    struct byte_buffer text = {0};
    for (const char *at = source; *at != '\0'; at++) {
        size_t i = 0;
        while (i < 2 && strncmp(at, names[i], strlen(names[i])) != 0)
            i++;
        if (i == 2) {
            byte_buffer_append(&text, at, 1);
            continue;
        }
        byte_buffer_append(&text, "{", 1);
        byte_buffer_append_text(&text, names[i]);
        byte_buffer_append(&text, "}", 1);
        at += strlen(names[i]) - 1;
    }
    byte_buffer_append(&text, "\n", 2); /* with the end of the string */
    int status = text.failed ? -1 : try_template(model, text.data, why);
    byte_buffer_finish(&text);
    return status;
}

static int find_template(struct score_model *model, const struct score_model_config *config,
                         struct error *err) {
    struct error why = {0};
    int found = 0;
    if (config->given_template != NULL) {
        found = try_template(model, config->given_template, &why);
        if (found == 0)
            return error_set(err, ERROR_CONFIG, "chat-template: %.300s", why.message);
    }
    if (found == 0 && config->pair_text != NULL)
        found = try_placeholders(model, config->pair_text, &why);
    if (found == 0 && config->chat_template != NULL)
        found = try_template(model, config->chat_template, &why);
    if (found == 0 && config->has_card_format)
        found = try_template(model, card_template, &why);
    return found >= 0 ? 0 : error_set(err, ERROR_MEMORY, "no memory for a template");
}

int score_model_create(const struct classifier *classifier, const struct tokenizer *tokenizer,
                       const struct score_model_config *config, struct score_model **out,
                       struct error *err) {
    *out = NULL;
    if (classifier->num_labels == 0)
        return 0;
    struct score_model *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a classifier");
    made->classifier = classifier;
    made->tokenizer = tokenizer;
    if (find_template(made, config, err) != 0) {
        score_model_destroy(made);
        return -1;
    }
    *out = made;
    return 0;
}

void score_model_destroy(struct score_model *model) {
    if (model != NULL)
        chat_template_destroy(model->pair_template);
    free(model);
}

/* --- Prompts --- */

static int encode_joined(const struct api_context *context, const char *query, const char *document,
                         unsigned flags, const struct prompt_limits *limits, const char *path,
                         struct prompt_tokens *out, struct api_error *err) {
    struct byte_buffer joined = {0};
    byte_buffer_append_text(&joined, query);
    byte_buffer_append_text(&joined, document);
    const struct prompt_text text = {.data = joined.data, .length = joined.length, .flags = flags};
    int status = joined.failed ? api_error_set_memory(err)
                               : prompt_text_tokens(context, &text, path, limits, out, err);
    byte_buffer_finish(&joined);
    return status;
}

static int encode_rendered(const struct api_context *context, const char *query,
                           const char *document, const char *instruction, unsigned flags,
                           const struct prompt_limits *limits, const char *path,
                           struct prompt_tokens *out, struct api_error *err) {
    const struct score_model *model = context->scores;
    struct template_arena *arena = template_arena_create(ARENA_BYTES);
    struct chat_text rendered = {0};
    struct error why = {0};
    int status;
    if (arena == NULL)
        return api_error_set_memory(err);
    if (render(model->pair_template, model->tokenizer, query, document, instruction, arena,
               &rendered, &why) == 0) {
        const struct prompt_text text = {
            .data = rendered.data,
            .length = rendered.length,
            .client_spans = rendered.client_spans,
            .num_client_spans = rendered.num_client_spans,
            .flags = flags | TOKENIZER_PARSE_SPECIAL,
        };
        status = prompt_text_tokens(context, &text, path, limits, out, err);
    } else {
        status = why.code == ERROR_MEMORY && !template_arena_is_full(arena)
                     ? api_error_set_memory(err)
                     : bad_request(err, "chat_template_error", path,
                                   "the template of pairs refuses the texts: %.300s", why.message);
    }
    template_arena_destroy(arena);
    return status;
}

int score_model_encode(const struct api_context *context, const char *query, const char *document,
                       const char *instruction, unsigned flags,
                       const struct prompt_truncation *truncation, const char *path,
                       struct prompt_tokens *out, struct api_error *err) {
    const struct prompt_limits limits = {.truncation = *truncation};
    if (context->scores->pair_template == NULL)
        return encode_joined(context, query, document, flags, &limits, path, out, err);
    return encode_rendered(context, query, document, instruction, flags, &limits, path, out, err);
}
