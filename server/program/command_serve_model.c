#include "server/program/command_serve_private.h"

#include "config/base/log.h"
#include "models/chat_template/chat_template.h"
#include "models/config/model_parts.h"
#include "models/files/input_file.h"
#include "server/program/command_line.h"
#include "server/client/client.h"
#include "server/program/engine_options.h"
#include "server/process/service.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int check_chat_template(const char *source, const char *path, struct error *err) {
    struct chat_template *parsed = NULL;
    struct error why = {0};
    int status = chat_template_create(source, strlen(source), &parsed, &why);
    chat_template_destroy(parsed);
    return status == 0 ? 0 : error_set(err, why.code, "%.200s: %.200s", path, why.message);
}

static int read_chat_template(struct serve *serve, struct error *err) {
    const char *path = serve->options.chat_template;
    struct text source = {0};
    struct error why = {0};
    int status = -1;
    char *data = input_file_read_all(path, CHAT_TEMPLATE_MAX_BYTES, &source.length, &why);
    source.data = data;
    if (data != NULL)
        status = model_parts_set_chat_template(&serve->given_template, source, path, &why);
    bool is_read = data != NULL;
    free(data);
    if (status == 0)
        status = check_chat_template(serve->given_template, path, &why);
    if (status == 0)
        return 0;
    return error_set(err, why.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG,
                     "chat-template: %.400s%s", why.message,
                     is_read ? ""
                             : "; it must be a file, by default the model's own template is used");
}

int command_serve_model_read_options(struct serve *serve, struct error *err) {
    struct speculative_config speculative;
    if (serve->options.chat_template != NULL && read_chat_template(serve, err) != 0)
        return -1;
    return engine_options_read_speculative(serve->options.speculative_config, &speculative, err);
}

/* Replaces a name of a hub by the path in its cache. */
static int find_in_hub(char **name, struct hub_reference *reference, struct hub_model *found,
                       struct error *err) {
    if (hub_reference_parse(*name, reference, err) != 0 ||
        command_pull_model(reference, HUB_CACHE_FIRST, found, err) != 0)
        return -1;
    char *path = strdup(found->path);
    if (path == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the model's path");
    free(*name);
    *name = path;
    service_extend_timeout(COMMAND_SERVE_LOAD_TIMEOUT_S);
    return 0;
}

static int find_adapters(struct adapter_loader *adapters, struct error *err) {
    struct hub_reference reference;
    struct hub_model model;
    for (int i = 0; i < adapters->num_modules; i++)
        if (command_pull_is_reference(adapters->modules[i].path) &&
            find_in_hub(&adapters->modules[i].path, &reference, &model, err) != 0)
            return -1;
    return 0;
}

/* The options then have its path, also for a recording. */
static int find_draft(struct options *options, struct error *err) {
    struct hub_reference reference;
    struct hub_model model;
    struct speculative_config config;
    struct error why = {0};
    if (engine_options_read_speculative(options->speculative_config, &config, err) != 0)
        return -1;
    if (config.model[0] == '\0' || !command_pull_is_reference(config.model))
        return 0;
    char *name = strdup(config.model);
    if (name == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for the draft model's name");
    int status = find_in_hub(&name, &reference, &model, &why);
    free(name);
    if (status != 0)
        return error_set(err, why.code, "speculative-config: model: %.480s", why.message);
    int length = snprintf(config.model, sizeof(config.model), "%s", model.path);
    if (length >= (int)sizeof(config.model))
        return error_set(err, ERROR_CONFIG,
                         "speculative-config: model: its path in the hub's cache has %d bytes: at "
                         "most %d are read",
                         length, (int)sizeof(config.model) - 1);
    log_info("draft      %s at %.12s, in %s", reference.repository, model.commit, model.path);
    return engine_options_write_speculative(&config, &options->speculative_config, err);
}

int command_serve_model_find(struct serve *serve, struct error *err) {
    struct hub_reference reference;
    struct hub_model model;
    if (adapter_loader_read(&serve->adapters, &serve->options, err) != 0 ||
        find_adapters(&serve->adapters, err) != 0 || find_draft(&serve->options, err) != 0)
        return -1;
    if (!command_pull_is_reference(serve->options.model))
        return 0;
    if (find_in_hub(&serve->options.model, &reference, &model, err) != 0)
        return -1;
    snprintf(serve->model_name, sizeof(serve->model_name), "%s", reference.repository);
    log_info("model      %s at %.12s, in %s", reference.repository, model.commit, model.path);
    return 0;
}

int command_serve_model_open(struct serve *serve, struct error *err) {
    const struct options *options = &serve->options;
    if (command_open_model(options->model, &serve->model, NULL, err) != 0 ||
        engine_options_executor(options, serve->model, &serve->executor_config, err) != 0 ||
        draft_model_open(options, serve->model, &serve->draft, err) != 0)
        return -1;
    draft_model_use(&serve->draft, &serve->executor_config);
    return adapter_loader_shape(&serve->adapters, options, serve->model,
                                &serve->executor_config.lora, err);
}

int command_serve_model_open_tokenizer(struct serve *serve, struct error *err) {
    if (command_open_tokenizer(serve->model, &serve->tokenizer, err) != 0)
        return -1;
    return draft_model_check(&serve->draft, serve->tokenizer, err);
}

int command_serve_model_start_vocabulary(struct serve *serve, struct error *err) {
    return vocabulary_loader_start(&serve->vocabulary, serve->tokenizer, err);
}

int command_serve_model_await_vocabulary(struct serve *serve, struct error *err) {
    return vocabulary_loader_wait(&serve->vocabulary, err);
}

int command_serve_model_start_verify(struct serve *serve, struct error *err) {
    const struct model *draft = serve->draft.model;
    if (!serve->options.verify_weights)
        return 0;
    if (command_verify_start(&serve->verify, serve->model->file, err) != 0)
        return -1;
    return draft != NULL && !serve->draft.config.is_mtp
               ? command_verify_start(&serve->draft_verify, draft->file, err)
               : 0;
}

static int await_verify(struct command_verify *verify, const char *name, struct error *err) {
    char line[512];
    if (command_verify_wait(verify, err) != 0)
        return -1;
    command_verify_describe(verify, line, sizeof(line));
    log_write(verify->unknown == NULL ? LOG_INFO : LOG_WARNING, "%s: %s", name, line);
    return 0;
}

int command_serve_model_await_verify(struct serve *serve, struct error *err) {
    if (!serve->options.verify_weights)
        return 0;
    if (await_verify(&serve->verify, "verify-weights", err) != 0)
        return -1;
    return serve->draft.model != NULL && !serve->draft.config.is_mtp
               ? await_verify(&serve->draft_verify, "verify-weights of the draft model", err)
               : 0;
}

/* --- Scores --- */

/* Finds a token by what it is called in the vocabulary. */
static int find_token(const struct tokenizer *tokenizer, struct text name, int32_t *out,
                      struct error *err) {
    for (int32_t i = 0; i < tokenizer_vocab_size(tokenizer); i++) {
        struct text piece = tokenizer_raw_piece(tokenizer, i);
        if (piece.length == name.length && memcmp(piece.data, name.data, name.length) == 0) {
            *out = i;
            return 0;
        }
    }
    return error_set(err, ERROR_CONFIG,
                     "classifier-from-token: the model has no token \"%.*s\"; give it as the "
                     "vocabulary has it",
                     text_print_length(name), name.data);
}

static int make_classifier(struct serve *serve, struct error *err) {
    enum { MAX_TOKENS = 2 };
    const char *at = serve->options.classifier_from_token, *label = at;
    int32_t tokens[MAX_TOKENS];
    int count = 0;
    struct error why = {0};
    while (at != NULL) {
        const char *end = strchrnul(at, ',');
        struct text name = {at, (size_t)(end - at)};
        if (count == MAX_TOKENS || name.length == 0)
            return error_set(err, ERROR_CONFIG,
                             "classifier-from-token \"%.100s\": must be one token, or two with a "
                             "comma between: no,yes",
                             serve->options.classifier_from_token);
        if (find_token(serve->tokenizer, name, &tokens[count++], err) != 0)
            return -1;
        label = at;
        at = *end == ',' ? end + 1 : NULL;
    }
    if (count == 0)
        return 0;
    if (classifier_from_tokens(serve->model, tokens, count, label, &why) == 0)
        return 0;
    return error_set(err, why.code, "classifier-from-token: %.400s", why.message);
}

int command_serve_model_open_scores(struct serve *serve, struct error *err) {
    if (make_classifier(serve, err) != 0)
        return -1;
    const struct model *model = serve->model;
    const struct classifier *classifier = &model->classifier;
    char label[CLASSIFIER_MAX_LABEL_BYTES + 1] = "";
    if (classifier->num_labels == 1)
        classifier_label(classifier, 0, label);
    const struct score_model_config config = {
        .given_template = serve->given_template,
        .pair_text = model->score_template,
        .chat_template = model->chat_is_of_pairs ? model->chat_template : NULL,
        .has_card_format = classifier->is_contrast && strcmp(label, "yes") == 0,
    };
    if (score_model_create(classifier, serve->tokenizer, &config, &serve->scores, err) != 0)
        return -1;
    if (serve->scores != NULL)
        log_info("scores     of %d label%s; a pair of texts is %s", classifier->num_labels,
                 classifier->num_labels > 1 ? "s" : "",
                 serve->scores->pair_template != NULL ? "written by a template" : "joined");
    return 0;
}

/* --- Chats --- */

/* Takes the place of the model's. */
static void set_chat_template(struct serve *serve) {
    free(serve->model->chat_template);
    serve->model->chat_template = serve->given_template;
    serve->given_template = NULL;
}

int command_serve_model_open_chat(struct serve *serve, struct error *err) {
    bool is_given = serve->given_template != NULL;
    if (is_given)
        set_chat_template(serve);
    const struct chat_model_config config = {
        .chat_template = serve->model->chat_template,
        .tool_template = is_given ? NULL : serve->model->tool_chat_template,
        .tool_call_parser = serve->options.tool_call_parser,
        .reasoning_parser = serve->options.reasoning_parser,
    };
    if (chat_model_create(serve->tokenizer, &config, &serve->chat, err) != 0)
        return -1;
    if (serve->chat->problem[0] != '\0')
        log_warning("%s; --chat-template gives another one", serve->chat->problem);
    return 0;
}
