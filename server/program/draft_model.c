#include "server/program/draft_model.h"

#include "config/base/numbers.h"
#include "models/config/mtp.h"

#include <stdio.h>
#include <string.h>

#define FIELD "speculative-config: model: "

/* A file that cannot be read is as bad as a broken one. */
static int refuse(const struct error *why, struct error *err) {
    return error_set(err, why->code == ERROR_IO ? ERROR_MODEL : why->code, FIELD "%.480s",
                     why->message);
}

static bool generates(const struct model *model) {
    return model->generates && model->classifier.num_labels == 0;
}

/* The path is then the model's. */
static int name_itself(const char *path, struct speculative_config *config, struct error *err) {
    if (strlen(path) >= sizeof(config->model))
        return error_set(err, ERROR_CONFIG,
                         "speculative-config: mtp: the model's path has more than %zu bytes",
                         sizeof(config->model) - 1);
    snprintf(config->model, sizeof(config->model), "%s", path);
    return 0;
}

static int select_mtp(struct model *model, struct error *err) {
    struct error why = {0};
    if (mtp_select(model, &why) == 0)
        return 0;
    return error_set(err, why.code, "speculative-config: mtp: %.480s", why.message);
}

int draft_model_open(const struct options *options, const struct model *target,
                     struct draft_model *out, struct error *err) {
    struct error why = {0};
    *out = (struct draft_model){0};
    if (engine_options_read_speculative(options->speculative_config, &out->config, err) != 0)
        return -1;
    if (out->config.is_mtp && name_itself(options->model, &out->config, err) != 0)
        return -1;
    const char *path = draft_model_path(out);
    if (path == NULL)
        return 0;
    if (!generates(target))
        return error_set(err, ERROR_CONFIG,
                         FIELD "%.300s has nothing to draft: %.300s does not generate text", path,
                         options->model);
    if (model_open(path, &out->model, &why) != 0)
        return refuse(&why, err);
    if (!generates(out->model))
        return error_set(err, ERROR_CONFIG, FIELD "%.300s does not generate text", path);
    return out->config.is_mtp ? select_mtp(out->model, err) : 0;
}

/* --- The vocabulary --- */

static bool is_same_token(const struct tokenizer *a, const struct tokenizer *b, int32_t token) {
    return (tokenizer_is_unused(a, token) && tokenizer_is_unused(b, token)) ||
           text_compare(tokenizer_piece(a, token), tokenizer_piece(b, token)) == 0;
}

static int refuse_token(const char *path, const struct tokenizer *draft,
                        const struct tokenizer *target, int32_t token, struct error *err) {
    struct text here = tokenizer_raw_piece(draft, token);
    struct text there = tokenizer_raw_piece(target, token);
    return error_set(err, ERROR_CONFIG,
                     FIELD "token %d is \"%.*s\" in %.200s, and \"%.*s\" in the model itself: "
                           "both must have the same vocabulary",
                     token, text_print_length(here), here.data, path, text_print_length(there),
                     there.data);
}

static int refuse_further(const char *where, const struct tokenizer *larger, int32_t token,
                          struct error *err) {
    struct text piece = tokenizer_raw_piece(larger, token);
    return error_set(err, ERROR_CONFIG,
                     FIELD "only %.200s has token %d, \"%.*s\": both must have the same vocabulary",
                     where, token, text_print_length(piece), piece.data);
}

int draft_model_compare(const char *path, const struct tokenizer *draft,
                        const struct tokenizer *target, struct error *err) {
    int32_t of_draft = tokenizer_vocab_size(draft), of_target = tokenizer_vocab_size(target);
    int32_t smaller = min_int32(of_draft, of_target), size = max_int32(of_draft, of_target);
    const struct tokenizer *larger = of_draft > of_target ? draft : target;
    for (int32_t token = 0; token < smaller; token++)
        if (!is_same_token(draft, target, token))
            return refuse_token(path, draft, target, token, err);
    for (int32_t token = smaller; token < size; token++)
        if (!tokenizer_is_unused(larger, token))
            return refuse_further(larger == draft ? path : "the model itself", larger, token, err);
    return 0;
}

int draft_model_check(const struct draft_model *draft, const struct tokenizer *target,
                      struct error *err) {
    struct tokenizer *tokenizer;
    struct error why = {0};
    if (draft->model == NULL || draft->config.is_mtp)
        return 0;
    if (tokenizer_open(draft->model, &tokenizer, &why) != 0)
        return refuse(&why, err);
    int status = draft_model_compare(draft_model_path(draft), tokenizer, target, err);
    tokenizer_close(tokenizer);
    return status;
}

/* --- Its use --- */

void draft_model_use(const struct draft_model *draft, struct executor_config *config) {
    if (draft->model == NULL)
        return;
    int32_t window = model_window(&draft->model->config);
    config->draft_model = draft->model;
    config->has_mtp = draft->config.is_mtp;
    /* keys and values are kept as long as one of the two reads them; the draft model's are in the
     * blocks of the first group */
    if (config->limits.num_full_groups == 0)
        config->limits.window = window == 0 || config->limits.window == 0
                                    ? 0
                                    : max_int32(window, config->limits.window);
}

const char *draft_model_path(const struct draft_model *draft) {
    return draft->config.model[0] != '\0' ? draft->config.model : NULL;
}

void draft_model_close(struct draft_model *draft) {
    model_close(draft->model);
    *draft = (struct draft_model){0};
}
