/* `quire pull`: fetches a model from the hub into the cache that Python's tools use too, and prints
 * where it lies. */
#include "server/client/client.h"

#include "config/base/help_text.h"
#include "config/base/log.h"
#include "server/process/service.h"
#include "server/process/signals.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sysexits.h>
#include <unistd.h>

#define FETCH_TIMEOUT_S 600

static const char usage[] =
    "usage: quire pull ORG/NAME[@REVISION][:FILE or quantisation] ...\n"
    "\n"
    "Downloads the files of a model that Quire reads: a GGUF file, or config.json, tokenizer and "
    "safetensors. "
    "Asks the hub which commit is the newest, and fetches what the cache does not have of it. "
    "Prints the path to serve. An interrupted run is continued by the next one.\n"
    "\n"
    "The model:\n"
    "  ORG/NAME\tsafetensors if there are any, else the GGUF file; of several the first of "
    "Q4_K_M, Q8_0, Q4_0, BF16, F16 that one of them has\n"
    "  @REVISION\tbranch, tag or commit; default main\n"
    "  :FILE\ta GGUF file of that name; of a split one the first part\n"
    "  :QUANTISATION\tthe GGUF file with that in its name, as Q4_K_M, in either case\n"
    "  hf.co/ORG/NAME[:Q4_K_M], https://huggingface.co/ORG/NAME\tthe same model, or the file that "
    "the address names\n"
    "\n"
    "Environment, as Python's huggingface_hub has it:\n"
    "  HF_ENDPOINT\tthe hub; default https://huggingface.co\n"
    "  HF_TOKEN\ttoken for gated and private models; else the file HF_TOKEN_PATH, default "
    "$HF_HOME/token\n"
    "  HF_HUB_CACHE\tthe cache; default $HF_HOME/hub\n"
    "  HF_HOME\tdefault ${XDG_CACHE_HOME:-~/.cache}/huggingface\n"
    "  HF_HUB_OFFLINE\t1: use only the cache\n"
    "  HF_HUB_ETAG_TIMEOUT, HF_HUB_DOWNLOAD_TIMEOUT\tseconds to connect, and without a byte; "
    "default 10\n"
    "  SSL_CERT_FILE\tPEM file of certificate authorities; default: the system's\n"
    "  https_proxy, http_proxy, no_proxy\tproxies\n"
    "\n"
    "Status 69: the hub or the network failed; 75: interrupted, run it again to continue; 78: no "
    "such model, or no access to it.\n"
    "\n"
    "for example: quire pull Qwen/Qwen3-1.7B-GGUF:Q8_0\n";

bool command_pull_is_reference(const char *model) {
    return access(model, F_OK) != 0 && errno == ENOENT && !hub_reference_is_path(model);
}

/* Tells a service manager that waits for the start that it makes progress. */
static void say(void *context, enum hub_message kind, const char *line) {
    service_extend_timeout(FETCH_TIMEOUT_S);
    if (kind == HUB_STATUS)
        log_status("%s", line);
    else if (kind != HUB_NONE)
        log_write(kind == HUB_WARNING ? LOG_WARNING : LOG_INFO, "%s", line);
}

static bool stops(void *context) {
    return signals_take_stop();
}

int command_pull_model(const struct hub_reference *reference, enum hub_policy policy,
                       struct hub_model *out, struct error *err) {
    const struct hub_watcher watcher = {
        .say = say, .stops = stops, .is_terminal = log_is_terminal()};
    struct hub_settings *settings = calloc(1, sizeof(*settings));
    if (settings == NULL)
        return error_set(err, ERROR_MEMORY, "no memory to fetch a model");
    int status = hub_settings_read(settings, err);
    if (status == 0)
        status = hub_resolve(reference, settings, policy, &watcher, out, err);
    explicit_bzero(settings->token, sizeof(settings->token));
    free(settings);
    return status;
}

static int pull(const char *text) {
    struct hub_reference reference;
    struct hub_model model;
    struct error err = {0};
    if (hub_reference_parse(text, &reference, &err) == 0 &&
        command_pull_model(&reference, HUB_NEWEST, &model, &err) == 0) {
        printf("%s\n", model.path);
        return fflush(stdout) == 0 ? EX_OK : EX_OSERR;
    }
    log_error("%s", err.message);
    return client_exit_status(&err);
}

int command_pull(int argc, char *const *argv) {
    int status = EX_OK;
    if (client_wants_help(argc, argv)) {
        help_text_print(usage, stdout);
        return EX_OK;
    }
    if (argc < 1 || argv[0][0] == '-') {
        help_text_print(usage, stderr);
        return EX_USAGE;
    }
    signals_block();
    for (int i = 0; i < argc && status == EX_OK; i++)
        status = pull(argv[i]);
    return status;
}
