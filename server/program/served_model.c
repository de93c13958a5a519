#include "server/program/served_model.h"

#include "config/base/log.h"
#include "engine/kv/kv_store.h"
#include "server/api/call/conversation_slots.h"
#include "engine/executor/process_executor.h"
#include "kernels/dtype.h"
#include "kernels/kv_type.h"
#include "models/config/sampling_fields.h"
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
#include <unistd.h>

static int check_chat_template(const char *source, const char *path, struct error *err) {
    struct chat_template *parsed = NULL;
    struct error why = {0};
    int status = chat_template_create(source, strlen(source), &parsed, &why);
    chat_template_destroy(parsed);
    return status == 0 ? 0 : error_set(err, why.code, "%.200s: %.200s", path, why.message);
}

static int read_chat_template(struct served_model *served, struct error *err) {
    const char *path = served->options->chat_template;
    struct text source = {0};
    struct error why = {0};
    int status = -1;
    char *data = input_file_read_all(path, CHAT_TEMPLATE_MAX_BYTES, &source.length, &why);
    source.data = data;
    if (data != NULL)
        status = model_parts_set_chat_template(&served->given_template, source, path, &why);
    bool is_read = data != NULL;
    free(data);
    if (status == 0)
        status = check_chat_template(served->given_template, path, &why);
    if (status == 0)
        return 0;
    return error_set(err, why.code == ERROR_MEMORY ? ERROR_MEMORY : ERROR_CONFIG,
                     "chat-template: %.400s%s", why.message,
                     is_read ? ""
                             : "; it must be a file, by default the model's own template is used");
}

int served_model_read_options(struct served_model *served, struct error *err) {
    struct speculative_config speculative;
    if (served->options->chat_template != NULL && read_chat_template(served, err) != 0)
        return -1;
    return engine_options_read_speculative(served->options->speculative_config, &speculative, err);
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
    service_extend_timeout(SERVED_MODEL_LOAD_TIMEOUT_S);
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

int served_model_find(struct served_model *served, struct error *err) {
    struct hub_reference reference;
    struct hub_model model;
    if (adapter_loader_read(&served->adapters, served->options, err) != 0 ||
        find_adapters(&served->adapters, err) != 0 || find_draft(served->options, err) != 0)
        return -1;
    if (!command_pull_is_reference(served->options->model))
        return 0;
    if (find_in_hub(&served->options->model, &reference, &model, err) != 0)
        return -1;
    if (served->model_name[0] == '\0')
        snprintf(served->model_name, sizeof(served->model_name), "%s", reference.repository);
    log_info("model      %s at %.12s, in %s", reference.repository, model.commit, model.path);
    return 0;
}

int served_model_open(struct served_model *served, struct error *err) {
    const struct options *options = served->options;
    if (command_open_model(options->model, &served->model, NULL, err) != 0 ||
        engine_options_executor(options, served->model, &served->executor_config, err) != 0 ||
        draft_model_open(options, served->model, &served->draft, err) != 0)
        return -1;
    draft_model_use(&served->draft, &served->executor_config);
    return adapter_loader_shape(&served->adapters, options, served->model,
                                &served->executor_config.lora, err);
}

int served_model_plan(struct served_model *served, struct error *err) {
    if (served->transport != NULL || process_executor_is_default(served->options->device))
        return 0;
    return executor_plan(served->model, &served->executor_config, &served->info, err);
}

int served_model_open_tokenizer(struct served_model *served, struct error *err) {
    if (command_open_tokenizer(served->model, &served->tokenizer, err) != 0)
        return -1;
    return draft_model_check(&served->draft, served->tokenizer, err);
}

int served_model_start_vocabulary(struct served_model *served, struct error *err) {
    return vocabulary_loader_start(&served->vocabulary, served->tokenizer, err);
}

int served_model_await_vocabulary(struct served_model *served, struct error *err) {
    return vocabulary_loader_wait(&served->vocabulary, err);
}

int served_model_start_verify(struct served_model *served, struct error *err) {
    const struct model *draft = served->draft.model;
    if (!served->options->verify_weights)
        return 0;
    if (command_verify_start(&served->verify, served->model->file, err) != 0)
        return -1;
    return draft != NULL && !served->draft.config.is_mtp
               ? command_verify_start(&served->draft_verify, draft->file, err)
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

int served_model_await_verify(struct served_model *served, struct error *err) {
    if (!served->options->verify_weights)
        return 0;
    if (await_verify(&served->verify, "verify-weights", err) != 0)
        return -1;
    return served->draft.model != NULL && !served->draft.config.is_mtp
               ? await_verify(&served->draft_verify, "verify-weights of the draft model", err)
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

static int make_classifier(struct served_model *served, struct error *err) {
    enum { MAX_TOKENS = 2 };
    const char *at = served->options->classifier_from_token, *label = at;
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
                             served->options->classifier_from_token);
        if (find_token(served->tokenizer, name, &tokens[count++], err) != 0)
            return -1;
        label = at;
        at = *end == ',' ? end + 1 : NULL;
    }
    if (count == 0)
        return 0;
    if (classifier_from_tokens(served->model, tokens, count, label, &why) == 0)
        return 0;
    return error_set(err, why.code, "classifier-from-token: %.400s", why.message);
}

int served_model_open_scores(struct served_model *served, struct error *err) {
    if (make_classifier(served, err) != 0)
        return -1;
    const struct model *model = served->model;
    const struct classifier *classifier = &model->classifier;
    char label[CLASSIFIER_MAX_LABEL_BYTES + 1] = "";
    if (classifier->num_labels == 1)
        classifier_label(classifier, 0, label);
    const struct score_model_config config = {
        .given_template = served->given_template,
        .pair_text = model->score_template,
        .chat_template = model->chat_is_of_pairs ? model->chat_template : NULL,
        .has_card_format = classifier->is_contrast && strcmp(label, "yes") == 0,
    };
    if (score_model_create(classifier, served->tokenizer, &config, &served->scores, err) != 0)
        return -1;
    if (served->scores != NULL)
        log_info("scores     of %d label%s; a pair of texts is %s", classifier->num_labels,
                 classifier->num_labels > 1 ? "s" : "",
                 served->scores->pair_template != NULL ? "written by a template" : "joined");
    return 0;
}

/* --- Chats --- */

/* Takes the place of the model's. */
static void set_chat_template(struct served_model *served) {
    free(served->model->chat_template);
    served->model->chat_template = served->given_template;
    served->given_template = NULL;
}

int served_model_open_chat(struct served_model *served, struct error *err) {
    bool is_given = served->given_template != NULL;
    if (is_given)
        set_chat_template(served);
    const struct chat_model_config config = {
        .chat_template = served->model->chat_template,
        .tool_template = is_given ? NULL : served->model->tool_chat_template,
        .tool_call_parser = served->options->tool_call_parser,
        .reasoning_parser = served->options->reasoning_parser,
    };
    if (chat_model_create(served->tokenizer, &config, &served->chat, err) != 0)
        return -1;
    if (served->chat->problem[0] != '\0')
        log_warning("%s; --chat-template gives another one", served->chat->problem);
    return 0;
}

/* --- What the API knows --- */

/* "*" stands for any name. */
void served_model_set_names(struct served_model *served) {
    const struct option_list *given = &served->options->served_model_names;
    struct http_model *http = &served->http;
    if (served->model_name[0] == '\0')
        api_context_model_name(served->options->model, served->model_name,
                               sizeof(served->model_name));
    http->num_names = 0;
    for (int i = 0; i < given->count; i++) {
        if (strcmp(given->items[i], "*") == 0)
            http->takes_any_name = true;
        else
            served->served_names[http->num_names++] = given->items[i];
    }
    if (http->num_names == 0)
        served->served_names[http->num_names++] = served->model_name;
    http->names = served->served_names;
    http->owner = served;
}

static struct sampling_settings default_settings(const struct served_model *served) {
    static const struct sampling_settings neutral = SAMPLING_SETTINGS_NEUTRAL;
    return strcmp(served->options->generation_config, "none") == 0
               ? neutral
               : sampling_fields_defaults(&served->model->generation);
}

static enum pooling default_pooling(const struct served_model *served) {
    const char *given = served->options->pooling;
    if (strcmp(given, "auto") == 0)
        return served->model->pooling == MODEL_POOLING_MEAN ? POOLING_MEAN : POOLING_LAST;
    return strcmp(given, "mean") == 0 ? POOLING_MEAN : POOLING_LAST;
}

void served_model_set_context(struct served_model *served) {
    const struct options *options = served->options;
    served->context = (struct api_context){
        .limits = &served->info.limits,
        .tokenizer = served->tokenizer,
        .chat = served->chat,
        .responses = served->responses,
        .tenant = -1,
        .grammars = grammar_cache_create(GRAMMAR_CACHE_MAX_BYTES),
        .model_names = served->http.names,
        .num_model_names = served->http.num_names,
        .takes_any_model = served->http.takes_any_name,
        .created = served->http.created,
        .max_prompts =
            (int32_t)(options->max_queued_requests < MAX_PROMPTS ? options->max_queued_requests
                                                                 : MAX_PROMPTS),
        .max_n = (int32_t)options->max_n,
        .max_choices = engine_options_call_choices(options),
        .max_prompt_tokens = options->max_queued_tokens,
        .sampling = default_settings(served),
        .seed = (uint64_t)options->seed,
        .num_seeds = &served->num_seeds,
        .system_fingerprint = served->fingerprint,
        .embedding_sizes = &served->model->embedding_sizes,
        .scores = served->scores,
        .refuses_generation = !served->model->generates || served->scores != NULL,
        .has_raw_embeddings = served->model->has_raw_embeddings,
        .pooling = default_pooling(served),
        .trusts_chat_template = options->trust_request_chat_template,
        .rejects_unknown_params = strcmp(options->unknown_params, "reject") == 0,
        .ignores_schema_keywords = strcmp(options->unsupported_schema_keywords, "ignore") == 0,
    };
}

static void write_server_info(void *context, struct byte_buffer *out) {
    server_info_write(context, out);
}

int served_model_show(struct served_model *served, struct error *err) {
    const struct options *options = served->options;
    served->server_info = (struct server_info){options, &served->memory, &served->context,
                                               draft_model_path(&served->draft),
                                               dtype_name(served->info.activation_dtype)};
    served->parts = (struct http_model_parts){
        .engine = served->engine,
        .context = &served->context,
        .wake_fd = served->wake_fd,
        .metrics_facts = {.device = served->info.device,
                          .cache_dtype = kv_type_name(served->info.kv_type),
                          .has_prefix_caching = options->enable_prefix_caching,
                          .num_ranks = served->info.num_ranks,
                          .are_waits_known = !served->info.has_dedicated_memory,
                          .rank_memory = served->info.rank_memory,
                          .adapters = served->context.adapters,
                          .max_adapters = served->info.lora.num_slots},
        .rank_process = served->info.rank_process > 0 ? served->executor : NULL,
        .kv_events = served->kv_events,
        .kv_store = served->kv_store,
        .write_info = write_server_info,
        .info_context = &served->server_info,
    };
    return 0;
}

/* --- The end --- */

static void note(struct stop_guard *guard, const char *activity) {
    if (guard != NULL)
        stop_guard_note(guard, activity);
}

bool served_model_hangs(const struct served_model *served) {
    return served->executor != NULL && executor_has_hung(served->executor);
}

static void close_files(struct served_model *served) {
    vocabulary_loader_finish(&served->vocabulary);
    command_verify_finish(&served->verify);
    command_verify_finish(&served->draft_verify);
    chat_model_destroy(served->chat);
    score_model_destroy(served->scores);
    free(served->given_template);
    tokenizer_close(served->tokenizer);
    draft_model_close(&served->draft);
    model_close(served->model);
    served->verify = served->draft_verify = (struct command_verify){0};
    served->chat = NULL;
    served->scores = NULL;
    served->given_template = NULL;
    served->tokenizer = NULL;
    served->model = NULL;
}

static void close_engine(struct served_model *served) {
    kv_event_publisher_close(served->kv_events);
    recorder_destroy(served->recorder);
    record_file_close(served->record_file);
    if (served->drafter != NULL)
        served->drafter->ops->destroy(served->drafter);
    served->kv_events = NULL;
    served->recorder = NULL;
    served->record_file = NULL;
    served->drafter = NULL;
}

bool served_model_close(struct served_model *served, struct stop_guard *guard) {
    note(guard, "ends the engine");
    engine_destroy(served->engine);
    served->engine = NULL;
    adapter_loader_finish(&served->adapters);
    if (served_model_hangs(served)) /* found by the engine while it ended */
        return false;
    note(guard, "closes the rest");
    close_engine(served);
    note(guard, "closes the ranks");
    if (served->executor != NULL)
        served->executor->ops->destroy(served->executor);
    served->executor = NULL;
    kv_store_close(served->kv_store);
    served->kv_store = NULL;
    if (served->wake_fd >= 0)
        close(served->wake_fd);
    served->wake_fd = -1;
    grammar_cache_destroy(served->context.grammars);
    conversation_slots_destroy(served->context.slots);
    served->context = (struct api_context){0};
    close_files(served);
    return true;
}
