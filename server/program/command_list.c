/* `quire list`: the models that are here, in the hub's cache and where the arguments say, what they
 * are and whether this machine has the memory to serve them. */
#include "server/program/command_line.h"

#include "config/base/help_text.h"
#include "config/base/array.h"
#include "config/base/numbers.h"
#include "config/base/utf8.h"
#include "kernels/cpu/memory/cpu_memory.h"
#include "models/files/tensor_file.h"
#include "server/program/command_plan.h"
#include "server/client/hub/hub.h"
#include "server/client/hub/hub_progress.h"
#include "server/client/hub/hub_listing.h"
#include "server/client/hub/hub_settings.h"
#include "config/json/json_write.h"

#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sysexits.h>
#include <unistd.h>

static const char usage[] =
    "usage: quire list [PATH ...] [--json]\n"
    "  PATH\ta GGUF file, a model's folder, or a folder with GGUF files, in addition to the models "
    "that `quire pull` and Python's tools have fetched ($HF_HUB_CACHE)\n"
    "  --json\tfor programs: {\"models\": [{\"name\", \"path\", \"family\", \"weights\", "
    "\"bytes\", \"memory_bytes\", \"fits\", \"problem\"}]}\n"
    "\n"
    "`quire serve` and `quire run` take the names. Whether a model fits is what `quire inspect "
    "--plan` finds with the default options, against the memory of this machine.\n"
    "\n"
    "for example: quire list ~/models\n";

struct row {
    char *name, *path;
    char family[64], weights[16];
    int64_t bytes, memory_bytes; /* 0: not known */
    bool fits;
    char problem[sizeof(((struct error *)0)->message)]; /* "": none */
};

struct list {
    struct row *rows;
    size_t num_rows, capacity;
    size_t machine_bytes;
};

/* --- One model --- */

static void say_missing_memory(struct row *row, size_t machine_bytes) {
    char needed[HUB_SIZE_BYTES], there[HUB_SIZE_BYTES];
    hub_progress_print_size(row->memory_bytes, needed);
    hub_progress_print_size((int64_t)machine_bytes, there);
    snprintf(row->problem, sizeof(row->problem), "needs %s of this machine's %s", needed, there);
}

static int plan(const struct model *model, const struct tokenizer *tokenizer, struct row *row,
                size_t machine_bytes, struct error *err) {
    struct command_plan made;
    struct options options;
    if (command_plan_options(row->path, 0, NULL, &options, err) != 0)
        return -1;
    free(options.speculative_config); /* its draft model is that of one model, not of all */
    options.speculative_config = NULL;
    int status = command_plan_make(model, tokenizer, &options, &made, err);
    options_finish(&options);
    if (status != 0)
        return -1;
    row->memory_bytes = (int64_t)memory_table_total(&made.memory);
    row->fits = (size_t)row->memory_bytes <= machine_bytes;
    if (!row->fits)
        say_missing_memory(row, machine_bytes);
    return 0;
}

static int describe(struct row *row, size_t machine_bytes, struct error *err) {
    struct model *model;
    struct tokenizer *tokenizer;
    if (model_open(row->path, &model, err) != 0)
        return -1;
    snprintf(row->family, sizeof(row->family), "%s", model->config.architecture);
    snprintf(row->weights, sizeof(row->weights), "%s", model_quantisation(model));
    row->bytes = (int64_t)tensor_file_bytes(model->file);
    int status = tokenizer_open(model, &tokenizer, err);
    if (status == 0) {
        status = plan(model, tokenizer, row, machine_bytes, err);
        tokenizer_close(tokenizer);
    }
    model_close(model);
    return status;
}

/* A model that cannot be served is a row with the reason; memory that is short is an error. */
static int add(struct list *list, const char *name, const char *path, const char *problem,
               struct error *err) {
    struct error why = {0};
    if (!array_reserve(&list->rows, &list->capacity, list->num_rows + 1, sizeof(*list->rows)))
        return error_set(err, ERROR_MEMORY, "no memory for a list of models");
    struct row *row = &list->rows[list->num_rows++];
    *row = (struct row){.name = strdup(name), .path = strdup(path)};
    if (row->name == NULL || row->path == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a list of models");
    if (problem[0] == '\0' && describe(row, list->machine_bytes, &why) != 0)
        problem = why.message;
    if (problem[0] != '\0')
        snprintf(row->problem, sizeof(row->problem), "%s", problem);
    return 0;
}

/* --- Where models are looked for --- */

static int add_cached(void *context, const struct hub_inventory_item *item, struct error *err) {
    return add(context, item->name, item->path, item->problem, err);
}

static int add_cache(struct list *list, struct error *err) {
    struct hub_settings *settings = calloc(1, sizeof(*settings));
    if (settings == NULL)
        return error_set(err, ERROR_MEMORY, "no memory for a list of models");
    int status = hub_settings_read(settings, err);
    if (status == 0)
        status = hub_inventory_read(settings->cache, add_cached, list, err);
    explicit_bzero(settings->token, sizeof(settings->token));
    free(settings);
    return status;
}

static int is_gguf(const struct dirent *entry) {
    return hub_selection_is_gguf(entry->d_name);
}

/* Adds the GGUF files of a folder; returns how many, or -1. */
static int add_files(struct list *list, const char *folder, struct error *err) {
    struct dirent **entries;
    int count = scandir(folder, &entries, is_gguf, alphasort), status = 0;
    if (count < 0)
        return error_set(err, ERROR_CONFIG, "%.400s: %s", folder, strerror(errno));
    for (int i = 0; i < count; i++) {
        char path[PATH_MAX];
        if (status == 0 &&
            snprintf(path, sizeof(path), "%s/%s", folder, entries[i]->d_name) < PATH_MAX)
            status = add(list, path, path, "", err);
        free(entries[i]);
    }
    free(entries);
    return status == 0 ? count : -1;
}

static int add_path(struct list *list, const char *path, struct error *err) {
    struct stat status;
    if (stat(path, &status) != 0)
        return error_set(err, ERROR_CONFIG, "%.400s: %s", path, strerror(errno));
    int count = S_ISDIR(status.st_mode) ? add_files(list, path, err) : 0;
    return count != 0 ? (count < 0 ? -1 : 0) : add(list, path, path, "", err);
}

/* --- What is printed --- */

static void print_row(const struct row *row, int width) {
    char size[HUB_SIZE_BYTES] = "-", line[PATH_MAX + sizeof(row->problem) + 256];
    if (row->bytes > 0)
        hub_progress_print_size(row->bytes, size);
    snprintf(line, sizeof(line), "%-*s  %-12s  %-8s  %10s  %s%s%s", width, row->name,
             row->family[0] != '\0' ? row->family : "-",
             row->weights[0] != '\0' ? row->weights : "-", size, row->fits ? "yes" : "no",
             row->problem[0] != '\0' ? ": " : "", row->problem);
    utf8_hide_controls(line, strlen(line)); /* of names of files */
    puts(line);
}

static void print_table(const struct list *list) {
    size_t width = strlen("NAME");
    for (size_t i = 0; i < list->num_rows; i++)
        if (strlen(list->rows[i].name) > width)
            width = strlen(list->rows[i].name);
    width = min_size(width, 80);
    printf("%-*s  %-12s  %-8s  %10s  %s\n", (int)width, "NAME", "FAMILY", "WEIGHTS", "SIZE",
           "FITS");
    for (size_t i = 0; i < list->num_rows; i++)
        print_row(&list->rows[i], (int)width);
}

static void write_known(struct byte_buffer *out, const char *name, const char *text) {
    json_write_text_member(out, name, text[0] != '\0' ? text : NULL);
}

static void write_row(struct byte_buffer *out, const struct row *row) {
    json_write_begin_object(out);
    json_write_text_member(out, "name", row->name);
    json_write_text_member(out, "path", row->path);
    write_known(out, "family", row->family);
    write_known(out, "weights", row->weights);
    json_write_int_member(out, "bytes", row->bytes);
    json_write_int_member(out, "memory_bytes", row->memory_bytes);
    json_write_key(out, "fits");
    json_write_bool(out, row->fits);
    write_known(out, "problem", row->problem);
    json_write_end_object(out);
}

static int print_json(const struct list *list, struct error *err) {
    struct byte_buffer out = {0};
    json_write_begin_object(&out);
    json_write_key(&out, "models");
    json_write_begin_array(&out);
    for (size_t i = 0; i < list->num_rows; i++)
        write_row(&out, &list->rows[i]);
    json_write_end_array(&out);
    json_write_end_object(&out);
    bool is_whole = !out.failed;
    if (is_whole)
        printf("%.*s\n", (int)out.length, out.data);
    byte_buffer_finish(&out);
    return is_whole ? 0 : error_set(err, ERROR_MEMORY, "no memory for a list of models");
}

/* --- The command --- */

static int list_all(int argc, char *const *argv, struct list *list, struct error *err) {
    bool as_json = false;
    size_t free_bytes;
    cpu_memory_info("", &free_bytes, &list->machine_bytes);
    if (add_cache(list, err) != 0)
        return -1;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            as_json = true;
        else if (add_path(list, argv[i], err) != 0)
            return -1;
    }
    if (as_json)
        return print_json(list, err);
    print_table(list);
    return 0;
}

static void finish(struct list *list) {
    for (size_t i = 0; i < list->num_rows; i++) {
        free(list->rows[i].name);
        free(list->rows[i].path);
    }
    free(list->rows);
}

int command_list(int argc, char *const *argv) {
    struct list list = {0};
    struct error err = {0};
    if (client_wants_help(argc, argv)) {
        help_text_print(usage, stdout);
        return EX_OK;
    }
    for (int i = 0; i < argc; i++) {
        if (argv[i][0] == '-' && strcmp(argv[i], "--json") != 0) {
            fprintf(stderr, "quire list: unknown option '%.64s'\n", argv[i]);
            help_text_print(usage, stderr);
            return EX_USAGE;
        }
    }
    int status = list_all(argc, argv, &list, &err);
    finish(&list);
    if (status == 0 && fflush(stdout) == 0)
        return EX_OK;
    fprintf(stderr, "quire: %s\n", status == 0 ? strerror(errno) : err.message);
    return status == 0 ? EX_OSERR : client_exit_status(&err);
}
