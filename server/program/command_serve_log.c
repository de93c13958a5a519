#include "server/program/command_serve_private.h"

#include "config/base/log.h"
#include "config/base/numbers.h"
#include "models/config/sampling_fields.h"
#include "server/program/build_facts.h"

#include <stdio.h>
#include <string.h>

static void log_model(const struct served_model *served) {
    const struct model *model = served->model;
    const char *held = served->options->quantization;
    bool is_held = strcmp(held, "none") != 0;
    log_info("model      %s: %s, %.4g million parameters, %s%s%s",
             served->model_name[0] != '\0' ? served->model_name : served->options->model,
             model->config.architecture, (double)model_num_parameters(model) / 1e6,
             model_quantisation(model), is_held ? ", float weights held as " : "",
             is_held ? held : "");
}

static void log_draft(const struct served_model *served) {
    const struct draft_model *draft = &served->draft;
    if (draft->config.is_mtp)
        log_info(
            "draft      the model's layer %d, which predicts further tokens (MTP)%s; at most %d "
            "tokens a step",
            draft->model->config.num_layers - 1,
            draft->model->config.has_own_head ? ", with its own head" : "",
            draft->config.num_speculative_tokens);
    else if (draft->model != NULL)
        log_info("draft      %s: %s, %.4g million parameters, %s; at most %d tokens a step",
                 draft_model_path(draft), draft->model->config.architecture,
                 (double)model_num_parameters(draft->model) / 1e6, model_quantisation(draft->model),
                 draft->config.num_speculative_tokens);
}

static void log_line(void *context, const char *line) {
    log_info("%s", line);
}

/* The whole table is for operators: of GPUs and ranks, or who ask for it. */
static void log_memory(struct served_model *served) {
    struct memory_table *table = &served->memory;
    const struct executor_info *info = &served->info;
    const struct serving_limits *limits = &info->limits;
    table->is_brief =
        !info->has_dedicated_memory && info->num_ranks == 1 && log_get_level() < LOG_DEBUG;
    memory_table_write(table, log_line, NULL);
    log_info("sequences  %d at a time (--max-num-seqs), of at most %d tokens each; %lld requests "
             "more may wait",
             (int)limits->max_num_seqs, (int)limits->max_model_len,
             (long long)served->options->max_queued_requests);
    log_info("memory     %.0f of at most %.0f MiB in use%s", mib(memory_table_resident()),
             mib(memory_table_total(table)),
             table->is_brief ? "; --log-level debug lists the parts" : "");
}

static void log_chat(const struct served_model *served) {
    const struct chat_model *chat = served->chat;
    if (chat->chat_template != NULL)
        log_info("chat       template of %zu bytes, tool calls %s%s, reasoning %s",
                 strlen(served->model->chat_template), tool_call_format_name(chat->tools),
                 chat->writes_tools ? " (described in text)" : "",
                 reasoning_format_name(chat->reasoning));
}

/* Defaults of requests that are not neutral, and where they come from. */
static void log_sampling(const struct served_model *served) {
    static const struct sampling_settings neutral = SAMPLING_SETTINGS_NEUTRAL;
    const struct sampling_settings *used = &served->context.sampling;
    int count, length = 0;
    const struct sampling_field *fields = sampling_fields(&count);
    char text[512];
    for (int i = 0; i < count && length < (int)sizeof(text); i++) {
        double value = sampling_field_value(&fields[i], used);
        if (i == 0 || value != sampling_field_value(&fields[i], &neutral)) /* temperature always */
            length += snprintf(text + length, sizeof(text) - (size_t)length, "%s%s %.4g",
                               i > 0 ? ", " : "", fields[i].name, value);
    }
    log_info("sampling   %s by default: %s", text,
             strcmp(served->options->generation_config, "none") == 0 ? "--generation-config none"
             : sampling_fields_recommend(&served->model->generation)
                 ? "the model recommends it"
                 : "llama.cpp's, as the model recommends none");
}

/* Returns false for a socket other than TCP, on which no browser finds the page. */
static bool write_page_url(const struct listen_socket *socket, char out[LISTEN_NAME_BYTES]) {
    static const char *const every[][2] = {{"//0.0.0.0:", "//127.0.0.1:"}, {"//[::]:", "//[::1]:"}};
    snprintf(out, LISTEN_NAME_BYTES, "%s", socket->name);
    for (size_t i = 0; i < sizeof(every) / sizeof(every[0]); i++) {
        const char *host = strstr(socket->name, every[i][0]);
        if (host != NULL)
            snprintf(out, LISTEN_NAME_BYTES, "%.*s%s%.6s", (int)(host - socket->name), socket->name,
                     every[i][1], host + strlen(every[i][0]));
    }
    return strncmp(out, "http", 4) == 0;
}

static void log_access(const struct serve *serve) {
    char url[LISTEN_NAME_BYTES];
    bool needs_key = api_keys_are_needed(serve->keys);
    bool has_page = write_page_url(&serve->socket, url);
    if (needs_key)
        log_info("API keys   %d: requests need one", api_keys_count(serve->keys));
    else
        log_info("API keys   none: requests need no key");
    if (has_page)
        log_info("page       %s/", url);
    if (has_page && !needs_key && !listen_socket_is_loopback(&serve->socket))
        log_warning(
            "%s is open to other machines without an API key: anyone who can reach it can use "
            "the model; --api-key-file asks for keys, --host 127.0.0.1 keeps others out",
            serve->socket.name);
}

static void log_role(const struct served_model *served) {
    static const char *const does[] = {[KV_ROLE_PREFILL] = "prefills for servers",
                                       [KV_ROLE_DECODE] = "decodes what servers have prefilled",
                                       [KV_ROLE_BOTH] = "prefills and decodes with servers"};
    if (served->context.kv_role != KV_ROLE_NONE)
        log_info("role       %s that have the same store, %s", does[served->context.kv_role],
                 served->context.kv_store_name);
}

static void log_only(struct served_model *served) {
    log_model(served);
    log_draft(served);
    log_memory(served);
    log_chat(served);
    log_sampling(served);
    log_role(served);
}

/* Which are loaded was logged as they were. */
static void log_several(const struct serve *serve) {
    const struct model_loader *loader = &serve->loader;
    for (int i = 0; i < loader->count; i++) {
        const struct http_model *model = &loader->models[i]->http;
        log_info("model      %s%s%s%s", model->names[0], i == 0 ? ", the default" : "",
                 model->is_pinned ? ", pinned" : "", http_model_is_loaded(model) ? ", loaded" : "");
    }
    log_info("memory     at most %.0f MiB for all models together (--memory)",
             mib(loader->memory_bytes));
}

void command_serve_log_start(struct serve *serve) {
    log_info("quire      %s (%s)", QUIRE_VERSION, build_facts_source());
    if (serve->has_several)
        log_several(serve);
    else
        log_only(&serve->only);
    log_access(serve);
}
