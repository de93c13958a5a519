#include "server/telemetry/metrics/metrics_text.h"

#include "config/base/check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct metrics_text metrics_text_begin(const char *prefix, const char *model_name,
                                       struct metrics_text_families *families) {
    struct metrics_text text = {.prefix = prefix, .families = families};
    if (model_name != NULL) {
        byte_buffer_append_text(&text.labels, "model_name=\"");
        metrics_text_label_value(&text.labels, model_name);
        byte_buffer_append_text(&text.labels, "\",");
    }
    byte_buffer_append_text(&text.labels, "engine=\"0\"");
    return text;
}

void metrics_text_finish(struct metrics_text *text) {
    byte_buffer_finish(&text->labels);
}

void metrics_text_families_finish(struct metrics_text_families *families, struct byte_buffer *out) {
    for (int i = 0; i < families->count; i++) {
        struct byte_buffer *text = &families->items[i].text;
        byte_buffer_append(out, text->data, text->length);
        out->failed |= text->failed;
        byte_buffer_finish(text);
    }
}

void metrics_text_label_value(struct byte_buffer *out, const char *value) {
    for (; *value != '\0'; value++) {
        if (*value == '\n') {
            byte_buffer_append_text(out, "\\n");
            continue;
        }
        if (*value == '"' || *value == '\\')
            byte_buffer_append(out, "\\", 1);
        byte_buffer_append(out, value, 1);
    }
}

void metrics_text_number(double value, char out[METRICS_TEXT_NUMBER_CHARS]) {
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, METRICS_TEXT_NUMBER_CHARS - 2, "%.*g", digits, value);
        if (strtod(out, NULL) == value)
            break;
    }
    if (strpbrk(out, ".en") == NULL)
        strcat(out, ".0");
}

void metrics_text_header(const struct metrics_text *text, const char *name, const char *type,
                         const char *help) {
    struct metrics_text_families *families = text->families;
    int i = 0;
    while (i < families->count && strcmp(families->items[i].name, name) != 0)
        i++;
    families->out = &families->items[i].text;
    if (i < families->count)
        return;
    CHECK(families->count < METRICS_TEXT_MAX_FAMILIES);
    families->items[families->count++].name = name;
    byte_buffer_printf(families->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", text->prefix, name, help,
                       text->prefix, name, type);
}

void metrics_text_begin_sample(const struct metrics_text *text, const char *name,
                               const char *suffix) {
    byte_buffer_printf(text->families->out, "%s%s%s{", text->prefix, name, suffix);
    byte_buffer_append(text->families->out, text->labels.data, text->labels.length);
}

void metrics_text_sample(const struct metrics_text *text, const char *name, const char *suffix,
                         const char *label, const char *label_value, double value) {
    char number[METRICS_TEXT_NUMBER_CHARS];
    metrics_text_number(value, number);
    metrics_text_begin_sample(text, name, suffix);
    if (label != NULL)
        byte_buffer_printf(text->families->out, ",%s=\"%s\"", label, label_value);
    byte_buffer_printf(text->families->out, "} %s\n", number);
}

void metrics_text_single(const struct metrics_text *text, const char *name, const char *type,
                         const char *help, double value) {
    metrics_text_header(text, name, type, help);
    metrics_text_sample(text, name, "", NULL, NULL, value);
}

void metrics_text_pair(const struct metrics_text *text, const char *name, const char *type,
                       const char *help, const char *label, const char *const words[2],
                       const uint64_t values[2]) {
    metrics_text_header(text, name, type, help);
    for (int i = 0; i < 2; i++)
        metrics_text_sample(text, name, "", label, words[i], (double)values[i]);
}

void metrics_text_histogram(const struct metrics_text *text, const char *name,
                            const struct histogram *histogram) {
    uint64_t below = 0;
    for (int i = 0; i < histogram->num_bounds; i++) {
        char bound[METRICS_TEXT_NUMBER_CHARS];
        metrics_text_number(histogram->bounds[i], bound);
        below += histogram->counts[i];
        metrics_text_sample(text, name, "_bucket", "le", bound, (double)below);
    }
    metrics_text_sample(text, name, "_bucket", "le", "+Inf", (double)histogram->total);
    metrics_text_sample(text, name, "_sum", NULL, NULL, histogram->sum);
    metrics_text_sample(text, name, "_count", NULL, NULL, (double)histogram->total);
}
