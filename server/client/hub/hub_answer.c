#include "server/client/hub/hub_answer.h"

#include "config/base/text.h"
#include "server/client/hub/hub_listing.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

void hub_answer_clear(struct hub_answer *answer) {
    *answer = (struct hub_answer){.content_bytes = -1,
                                  .linked_bytes = -1,
                                  .range_begin = -1,
                                  .range_total = -1,
                                  .retry_after_s = -1};
}

static void copy_value(struct text value, char out[static HUB_FIELD_BYTES]) {
    if (value.length < HUB_FIELD_BYTES) {
        memcpy(out, value.data, value.length);
        out[value.length] = '\0';
    }
}

/* Reads digits up to HUB_MAX_FILE_BYTES; -1: something else. Returns what is behind them. */
static struct text take_number(struct text value, int64_t *out) {
    int64_t number = 0;
    size_t i = 0;
    for (; i < value.length && isdigit((unsigned char)value.data[i]); i++) {
        number = 10 * number + (value.data[i] - '0');
        if (number > HUB_MAX_FILE_BYTES)
            number = HUB_MAX_FILE_BYTES + 1;
    }
    *out = i > 0 && number <= HUB_MAX_FILE_BYTES ? number : -1;
    return (struct text){value.data + i, value.length - i};
}

static void read_number(struct text value, int64_t *out) {
    if (take_number(value, out).length > 0)
        *out = -1;
}

/* "bytes 100-199/200" (RFC 9110, section 14.4). */
static void read_range(struct text value, struct hub_answer *answer) {
    static const char unit[] = "bytes ";
    int64_t begin, last, total;
    size_t length = strlen(unit);
    if (value.length < length || strncasecmp(value.data, unit, length) != 0)
        return;
    struct text rest =
        take_number((struct text){value.data + length, value.length - length}, &begin);
    if (begin < 0 || rest.length == 0 || rest.data[0] != '-')
        return;
    rest = take_number((struct text){rest.data + 1, rest.length - 1}, &last);
    if (last < begin || rest.length == 0 || rest.data[0] != '/')
        return;
    read_number((struct text){rest.data + 1, rest.length - 1}, &total);
    answer->range_begin = begin;
    answer->range_total = total;
}

static void read_field(struct hub_answer *answer, struct text name, struct text value) {
    const struct {
        const char *name;
        char *text;
        int64_t *number;
    } fields[] = {
        {"ETag", answer->etag, NULL},
        {"X-Linked-Etag", answer->linked_etag, NULL},
        {"X-Repo-Commit", answer->commit, NULL},
        {"X-Error-Code", answer->error_code, NULL},
        {"X-Error-Message", answer->error_message, NULL},
        {"Content-Length", NULL, &answer->content_bytes},
        {"X-Linked-Size", NULL, &answer->linked_bytes},
        {"Retry-After", NULL, &answer->retry_after_s},
    };
    if (name.length == 13 && strncasecmp(name.data, "Content-Range", 13) == 0)
        read_range(value, answer);
    for (size_t i = 0; i < sizeof(fields) / sizeof(fields[0]); i++) {
        if (name.length != strlen(fields[i].name) ||
            strncasecmp(name.data, fields[i].name, name.length) != 0)
            continue;
        if (fields[i].text != NULL)
            copy_value(value, fields[i].text);
        else
            read_number(value, fields[i].number);
    }
}

static struct text trim(struct text value) {
    while (value.length > 0 && isspace((unsigned char)value.data[0]))
        value = (struct text){value.data + 1, value.length - 1};
    while (value.length > 0 && isspace((unsigned char)value.data[value.length - 1]))
        value.length--;
    return value;
}

void hub_answer_read_line(struct hub_answer *answer, const char *line, size_t length) {
    if (length >= 5 && strncasecmp(line, "HTTP/", 5) == 0) {
        const char *space = memchr(line, ' ', length);
        int64_t status = -1;
        hub_answer_clear(answer);
        if (space != NULL)
            take_number((struct text){space + 1, length - (size_t)(space + 1 - line)}, &status);
        answer->status = status >= 100 && status <= 999 ? (int)status : 0;
        return;
    }
    const char *colon = memchr(line, ':', length);
    if (colon == NULL)
        return;
    size_t name = (size_t)(colon - line);
    read_field(answer, (struct text){line, name},
               trim((struct text){colon + 1, length - name - 1}));
}

/* As huggingface_hub's _normalize_etag. */
void hub_answer_normalise_etag(const char *etag, char out[static HUB_FIELD_BYTES]) {
    etag += strspn(etag, "W/");
    etag += strspn(etag, "\"");
    snprintf(out, HUB_FIELD_BYTES, "%s", etag);
    size_t length = strlen(out);
    while (length > 0 && out[length - 1] == '"')
        out[--length] = '\0';
}

/* --- What an answer that is none means -------------------------------------------------------- */

bool hub_answer_may_retry(const struct hub_request *request) {
    int status = request->answer.status;
    if (request->is_refused || request->is_declined)
        return false;
    return request->failure[0] != '\0' || status == 408 || status == 429 || status / 100 == 5;
}

static int refuse_gated(const struct hub_subject *s, struct error *err) {
    if (s->has_token)
        return error_set(err, ERROR_CONFIG,
                         "%s: is gated, and the account of this token may not read it: ask for "
                         "access at %s/%s",
                         s->repository, s->endpoint, s->repository);
    return error_set(err, ERROR_CONFIG,
                     "%s: is gated: accept its conditions at %s/%s and give a token of that "
                     "account in HF_TOKEN",
                     s->repository, s->endpoint, s->repository);
}

/* The hub answers alike for what does not exist and what is private. */
static int refuse_repository(const struct hub_subject *s, struct error *err) {
    return error_set(
        err, ERROR_CONFIG, "%s: %s has no such model, or it is private%s: compare the name",
        s->repository, s->endpoint,
        s->has_token ? " and not this token's to read" : " and needs a token in HF_TOKEN");
}

static int refuse_access(const struct hub_answer *answer, const struct hub_subject *s,
                         struct error *err) {
    if (strcmp(answer->error_code, "GatedRepo") == 0)
        return refuse_gated(s, err);
    if (strcasestr(answer->error_message, "invalid credentials") != NULL ||
        (s->has_token && answer->status == 401 && answer->error_code[0] == '\0'))
        return error_set(err, ERROR_CONFIG,
                         "%s: %s does not take this token: make another one, or unset HF_TOKEN "
                         "(and remove the file of HF_TOKEN_PATH)",
                         s->repository, s->endpoint);
    if (answer->status == 401 || strcmp(answer->error_code, "RepoNotFound") == 0)
        return refuse_repository(s, err);
    return error_set(err, ERROR_CONFIG, "%s: %s refuses it%s%.150s", s->repository, s->endpoint,
                     answer->error_message[0] != '\0' ? ": " : "", answer->error_message);
}

static int refuse_missing(const struct hub_answer *answer, const struct hub_subject *s,
                          struct error *err) {
    if (strcmp(answer->error_code, "RepoNotFound") == 0)
        return refuse_repository(s, err);
    if (strcmp(answer->error_code, "RevisionNotFound") == 0)
        return error_set(err, ERROR_CONFIG,
                         "%s: has no revision '%.100s': no branch, tag or commit", s->repository,
                         s->revision);
    if (strcmp(answer->error_code, "EntryNotFound") == 0 && s->file != NULL)
        return error_set(err, ERROR_CONFIG, "%s: has no file '%.200s'", s->repository, s->file);
    return error_set(err, ERROR_CONFIG,
                     "%s: %s answers 404 without a reason: is HF_ENDPOINT a hub's?", s->repository,
                     s->endpoint);
}

int hub_answer_refuse(const struct hub_request *request, const struct hub_subject *s,
                      struct error *err) {
    const struct hub_answer *answer = &request->answer;
    const char *of = s->file != NULL ? s->file : "the list of files";
    if (request->failure[0] != '\0')
        return error_set(err, ERROR_UNAVAILABLE, "%s: %.200s from %s: %s", s->repository, of,
                         s->endpoint, request->failure);
    if (answer->status == 401 || answer->status == 403)
        return refuse_access(answer, s, err);
    if (answer->status == 404)
        return refuse_missing(answer, s, err);
    if (answer->status == 429)
        return error_set(err, ERROR_UNAVAILABLE,
                         "%s: %s has had too many requests: try again later%s", s->repository,
                         s->endpoint, s->has_token ? "" : ", or with a token in HF_TOKEN");
    return error_set(err, ERROR_UNAVAILABLE, "%s: %.200s from %s: status %d%s%.100s", s->repository,
                     of, s->endpoint, answer->status, answer->error_message[0] != '\0' ? ": " : "",
                     answer->error_message);
}
