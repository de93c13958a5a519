#include "server/api/scores/score_body.h"

#include "server/api/call/api_call_type.h"
#include "server/api/fields/unknown_fields.h"
#include "server/api/scores/score_model.h"
#include "config/json/json_parse.h"

#include <stdio.h>

#define MEMBER struct score_body

#define COMMON_FIELDS                                                                              \
    JSON_TEXT(MEMBER, model), JSON_OTHER(pooling), JSON_BOOL(MEMBER, add_special_tokens),          \
        JSON_BOOL(MEMBER, parse_special), JSON_OTHER(truncate_prompt_tokens),                      \
        JSON_OTHER(truncation_side), JSON_INT(MEMBER, priority, INT32_MIN, INT32_MAX),             \
        JSON_INT(MEMBER, timeout_ms, 1, MAX_TIMEOUT_MS), JSON_TEXT(MEMBER, cache_salt),            \
        JSON_TEXT(MEMBER, request_id), JSON_BOOL(MEMBER, use_activation)

static const struct json_field score_fields[] = {
    JSON_OTHER(text_1), JSON_OTHER(text_2), JSON_OTHER(queries), JSON_OTHER(documents),
    JSON_OTHER(items),  JSON_OTHER(data_1), JSON_OTHER(data_2),  JSON_TEXT(MEMBER, instruction),
    COMMON_FIELDS,
};

static const struct json_field rerank_fields[] = {
    JSON_OTHER(query),
    JSON_OTHER(documents),
    JSON_INT(MEMBER, top_n, 0, INT32_MAX),
    JSON_BOOL(MEMBER, return_documents),
    JSON_TEXT(MEMBER, instruction),
    COMMON_FIELDS,
};

static const struct json_field classify_fields[] = {JSON_OTHER(input), COMMON_FIELDS};

/* Older names in vLLM, in the order in which they count there. */
static const struct json_alias aliases[] = {
    {"use_activation", "softmax", .is_synonym = true},
    {"use_activation", "activation", .is_synonym = true},
};

static struct json_table with_aliases(struct json_table table) {
    table.aliases = aliases;
    table.num_aliases = (int)(sizeof(aliases) / sizeof(aliases[0]));
    return table;
}

struct json_table score_body_table(void) {
    return with_aliases(JSON_TABLE(score_fields));
}

struct json_table score_body_rerank_table(void) {
    return with_aliases(JSON_TABLE(rerank_fields));
}

struct json_table score_body_classify_table(void) {
    return with_aliases(JSON_TABLE(classify_fields));
}

const cJSON *score_body_text(const cJSON *item) {
    return cJSON_IsObject(item) ? json_member(item, "text") : item;
}

/* What a field accepts, under any one of its names. */
struct text_rule {
    const char *names[4], *allowed;
    bool is_list, takes_objects;
};

/* Finds the name that the body uses; a 400 if it uses two. */
static int find_name(const cJSON *body, const struct text_rule *rule, const char **out,
                     struct api_error *err) {
    const char *found = NULL;
    for (size_t i = 0; i < 4 && rule->names[i] != NULL; i++) {
        if (json_given_member(body, rule->names[i]) == NULL)
            continue;
        if (found != NULL)
            return bad_request(err, "unsupported_value", rule->names[i],
                               "%s is %s by another name: leave one out", rule->names[i], found);
        found = rule->names[i];
    }
    *out = found != NULL ? found : rule->names[0];
    return 0;
}

static int check_text(const cJSON *item, const char *path, const struct text_rule *rule,
                      struct api_error *err) {
    const cJSON *text = rule->takes_objects ? score_body_text(item) : item;
    if (!cJSON_IsString(text))
        return json_refuse(item, path, rule->allowed, err);
    if (text->valuestring[0] != '\0')
        return 0;
    return bad_request(err, "empty_prompt", path, "%s is empty: at least one token is needed",
                       path);
}

/* Reads one text, or a list of texts. */
static int read_texts(const struct api_context *context, const cJSON *body,
                      const struct text_rule *rule, struct prompt_list *out,
                      struct api_error *err) {
    const char *name = NULL;
    if (find_name(body, rule, &name, err) != 0)
        return -1;
    const cJSON *given = json_given_member(body, name), *item;
    struct prompt_list list = {.name = name, .first = given, .num_prompts = 1};
    if (given == NULL)
        return bad_request(err, "missing_required_parameter", name, "%s is missing: it must be %s",
                           name, rule->allowed);
    if (!cJSON_IsArray(given) || !rule->is_list) {
        *out = list;
        return check_text(given, name, rule, err);
    }
    list = (struct prompt_list){.name = name, .first = given->child, .is_list = true};
    if (given->child == NULL)
        return json_refuse(given, name, "a list of one text or more", err);
    cJSON_ArrayForEach(item, given) {
        char path[PROMPT_PATH_BYTES];
        if (list.num_prompts == context->max_prompts)
            return bad_request(err, "array_above_max_length", name,
                               "%s has more than %d entries, the most allowed", name,
                               (int)context->max_prompts);
        prompt_list_path(&list, list.num_prompts, path);
        if (check_text(item, path, rule, err) != 0)
            return -1;
        list.num_prompts++;
    }
    *out = list;
    return 0;
}

static int read_pairs(const struct api_context *context, struct score_body *body, bool is_rerank,
                      struct api_error *err) {
    static const char text[] = "a string", texts[] = "a string or an array of strings",
                      documents[] = "a string, {\"text\": ...} or an array of these";
    const struct text_rule
        score[] = {{{"text_1", "queries", "data_1"}, texts, true, false},
                   {{"text_2", "documents", "items", "data_2"}, texts, true, false}},
        rerank[] = {{{"query"}, text, false, false}, {{"documents"}, documents, true, true}};
    const struct text_rule *rules = is_rerank ? rerank : score;
    if (read_texts(context, body->json, &rules[0], &body->first, err) != 0 ||
        read_texts(context, body->json, &rules[1], &body->second, err) != 0)
        return -1;
    int32_t num_first = body->first.num_prompts, num_second = body->second.num_prompts;
    if (num_first != 1 && num_first != num_second)
        return bad_request(err, "unsupported_value", body->second.name,
                           "%s must have the same number of entries as %s (%d) if that has more "
                           "than one, not %d",
                           body->second.name, body->first.name, (int)num_first, (int)num_second);
    if (num_first + num_second <= context->max_prompts)
        return 0;
    return bad_request(err, "array_above_max_length", body->second.name,
                       "%s and %s must have at most %d entries together, not %d", body->first.name,
                       body->second.name, (int)context->max_prompts, (int)(num_first + num_second));
}

/* Fields that only some models have a use for. */
static int check_model(const struct api_context *context, const struct score_body *body,
                       enum score_form form, struct api_error *err) {
    const struct score_model *scores = context->scores;
    int32_t num_labels = scores != NULL ? scores->classifier->num_labels : 0;
    if (form == SCORE_OF_CLASSES && scores == NULL)
        return bad_request(err, "unsupported_model", "model", "this model is not a classifier");
    if (form != SCORE_OF_CLASSES && num_labels > 1)
        return bad_request(err, "unsupported_model", "model",
                           "this model has %d labels, and a score is a single number: use "
                           "/classify",
                           (int)num_labels);
    if (scores != NULL && body->settings.pooling != POOLING_LAST)
        return bad_request(err, "unsupported_value", "pooling",
                           "pooling must be \"last\": this model's scores are of the last token");
    if (body->instruction != NULL && (scores == NULL || !scores->takes_instruction))
        return bad_request(err, "unsupported_parameter", "instruction",
                           "instruction is not supported: this model's prompt has no place for "
                           "one; put it into the texts");
    return 0;
}

static int read_all(const struct api_context *context, struct score_body *body,
                    enum score_form form, struct api_error *err) {
    const struct json_table table = form == SCORE_OF_PAIRS   ? score_body_table()
                                    : form == SCORE_OF_RANKS ? score_body_rerank_table()
                                                             : score_body_classify_table();
    if (json_fields_read(body->json, table, body, err) != 0 ||
        (body->model != NULL && api_context_check_model(context, body->model, err) != 0))
        return -1;
    if (unknown_fields_read(body->json, &table, 1, &body->ignored, err) != 0 ||
        unknown_fields_check(context, &body->ignored, err) != 0 ||
        prompt_truncation_read(context, body->json, &body->settings.truncation, err) != 0 ||
        embedding_pooling_read(body->json, &body->settings.pooling, err) != 0 ||
        check_model(context, body, form, err) != 0)
        return -1;
    body->settings.flags = prompt_text_flags(body->add_special_tokens, body->parse_special);
    body->settings.priority = body->priority;
    body->settings.cache_salt = body->cache_salt;
    body->settings.model = body->model;
    return form == SCORE_OF_CLASSES
               ? prompt_list_read(context, body->json, "input", false, &body->first, err)
               : read_pairs(context, body, form == SCORE_OF_RANKS, err);
}

int score_body_parse(const struct api_context *context, const char *text, size_t length,
                     enum score_form form, struct score_body *out, struct api_error *err) {
    struct score_body body = {
        .settings = {.pooling = context->scores != NULL ? POOLING_LAST : context->pooling},
        .use_activation = true,
        .add_special_tokens = true,
        .parse_special = true,
        .return_documents = true,
    };
    body.json = json_parse(text, length, err);
    if (body.json == NULL)
        return -1;
    if (read_all(context, &body, form, err) != 0) {
        score_body_finish(&body);
        return -1;
    }
    *out = body;
    return 0;
}

void score_body_finish(struct score_body *body) {
    cJSON_Delete(body->json);
    body->json = NULL;
    byte_buffer_finish(&body->ignored);
}
