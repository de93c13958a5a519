/* /classify: the probability of each label for each prompt, like vLLM's. A prompt's JSON is written
 * as soon as its hidden state is ready. */
#include "server/api/call/endpoints.h"

#include "config/base/check.h"
#include "config/json/json_write.h"
#include "server/api/call/api_call_format.h"
#include "server/api/call/api_call_type.h"
#include "server/api/scores/score_body.h"
#include "server/api/scores/score_model.h"

#include <stdlib.h>

/* Numbers that one API call may produce. Each takes about 12 bytes of JSON, which are held until
 * the end. */
#define MAX_NUMBERS (8 << 20)

struct classify_api_call {
    struct api_call base; /* first: see api_call_type.h */
    const struct classifier *classifier;
    bool use_activation;
    float *scores;               /* [labels]; those of the prompt that is being written */
    struct byte_buffer *classes; /* [num_prompts] */
};

static int check_size(const struct classifier *classifier, const struct prompt_list *list,
                      struct api_error *err) {
    int32_t most = MAX_NUMBERS / classifier->num_labels;
    if (list->num_prompts <= most)
        return 0;
    return bad_request(err, "array_above_max_length", list->name,
                       "%s must have at most %d entries with %d labels, not %d", list->name,
                       (int)most, (int)classifier->num_labels, (int)list->num_prompts);
}

static int add_prompts(const struct api_context *context, const struct score_body *body,
                       struct api_call *call, struct api_error *err) {
    const cJSON *item = body->first.first;
    int64_t num_tokens = 0;
    for (int32_t i = 0; i < call->num_prompts; i++, item = item->next) {
        char path[PROMPT_PATH_BYTES];
        struct request **made = &call->prompts[i].request;
        prompt_list_path(&body->first, i, path);
        if (embedding_request_create(context, &body->settings, item, path, made, err) != 0)
            return -1;
        num_tokens += (*made)->num_prompt_tokens;
        if (prompt_list_check_total(context, &body->first, num_tokens, err) != 0)
            return -1;
    }
    return 0;
}

static int fill(const struct api_context *context, void *parsed, struct api_call *base,
                struct api_error *err) {
    struct classify_api_call *call = (struct classify_api_call *)base;
    struct score_body *body = parsed;
    api_call_set_ignored_params(base, &body->ignored);
    base->timeout_ms = body->timeout_ms;
    call->classifier = context->scores->classifier;
    call->use_activation = body->use_activation;
    if (check_size(call->classifier, &body->first, err) != 0 ||
        api_call_set_id(base, body->request_id, err) != 0 ||
        api_call_set_size(base, body->first.num_prompts, 1, err) != 0)
        return -1;
    call->scores = calloc((size_t)call->classifier->num_labels, sizeof(*call->scores));
    call->classes = calloc((size_t)base->num_prompts, sizeof(*call->classes));
    if (call->scores == NULL || call->classes == NULL || base->ignored.failed)
        return api_error_set_memory(err);
    return add_prompts(context, body, base, err);
}

static void finish(struct api_call *base) {
    struct classify_api_call *call = (struct classify_api_call *)base;
    for (int32_t i = 0; call->classes != NULL && i < base->num_prompts; i++)
        byte_buffer_finish(&call->classes[i]);
    free(call->classes);
    free(call->scores);
}

static size_t held_bytes(const struct api_call *base) {
    const struct classify_api_call *call = (const struct classify_api_call *)base;
    size_t bytes = 0;
    for (int32_t i = 0; i < base->num_prompts; i++)
        bytes += call->classes[i].capacity;
    return bytes;
}

static int add_classes(struct api_call *base, int32_t index, const struct token_event *event) {
    struct classify_api_call *call = (struct classify_api_call *)base;
    struct byte_buffer *out = &call->classes[index];
    const struct classifier *classifier = call->classifier;
    char label[CLASSIFIER_MAX_LABEL_BYTES + 1];
    int32_t best = 0;
    CHECK(event->kind == TOKEN_EVENT_EMBEDDING && event->num_dimensions == classifier->hidden_size);
    classifier_scores(classifier, event->embedding, call->use_activation, call->scores);
    for (int32_t i = 1; i < classifier->num_labels; i++)
        best = call->scores[i] > call->scores[best] ? i : best;
    classifier_label(classifier, best, label);
    json_write_begin_object(out);
    json_write_int_member(out, "index", index);
    json_write_text_member(out, "label", label);
    json_write_key(out, "probs");
    json_write_begin_array(out);
    for (int32_t i = 0; i < classifier->num_labels; i++)
        json_write_float(out, call->scores[i]);
    json_write_end_array(out);
    json_write_int_member(out, "num_classes", classifier->num_labels);
    json_write_end_object(out);
    return out->failed ? -1 : 0;
}

static void write_body(struct api_call *base, struct byte_buffer *out) {
    struct classify_api_call *call = (struct classify_api_call *)base;
    int64_t num_tokens = api_call_total_usage(base).prompt_tokens;
    json_write_begin_object(out);
    json_write_text_member(out, "id", base->head.id);
    json_write_text_member(out, "object", "list");
    json_write_int_member(out, "created", base->head.created);
    json_write_text_member(out, "model", base->head.model);
    json_write_key(out, "data");
    json_write_begin_array(out);
    for (int32_t i = 0; i < base->num_prompts; i++) {
        json_write_items(out, &call->classes[i]);
        byte_buffer_finish(&call->classes[i]);
    }
    json_write_end_array(out);
    json_write_key(out, "usage");
    json_write_begin_object(out);
    json_write_int_member(out, "prompt_tokens", num_tokens);
    json_write_int_member(out, "total_tokens", num_tokens);
    json_write_end_object(out);
    json_write_end_object(out);
}

static const struct api_call_operations operations = {
    .size = sizeof(struct classify_api_call),
    .id_prefix = "classify-",
    .fill = fill,
    .add = add_classes,
    .write_body = write_body,
    .held_bytes = held_bytes,
    .finish = finish,
};

int classify_endpoint_parse(const struct api_context *context, const char *text, size_t length,
                            struct api_call **out, struct api_error *err) {
    struct score_body body;
    if (score_body_parse(context, text, length, SCORE_OF_CLASSES, &body, err) != 0)
        return -1;
    int result = api_call_create(&operations, context, &body, out, err);
    score_body_finish(&body);
    return result;
}
