/* Published chat templates against Jinja2: every template of chat_templates/ with every
 * conversation of its cases.json (scripts/golden/make_chat_template_cases.py explains the file),
 * whose texts are compared by their hash. `test_chat_templates FOLDER TEMPLATE CONVERSATION` prints
 * one rendering.
 *
 * Some conversations are of private-use characters, which no template has: each of them must come
 * out as a client's, and of those without tools and documents nothing else may. */
#include "tests/golden/chat_case.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_PRINTED 100

static const char *folder;
static cJSON *cases;
static struct counts {
    int renderings, texts, refusals, errors, differences;
    int private_characters, other_bytes;
} counts;

static const cJSON *field(const cJSON *item, const char *name) {
    const cJSON *found = cJSON_GetObjectItemCaseSensitive(item, name);
    if (found == NULL)
        fail_msg("%s is missing", name);
    return found;
}

static int64_t now(void) {
    return (int64_t)field(cases, "now")->valuedouble;
}

static struct chat_template *open_template(const char *name, struct error *err) {
    char file[256];
    size_t length;
    snprintf(file, sizeof(file), "%s.jinja", name);
    char *source = chat_case_read(folder, file, &length);
    struct chat_template *chat = chat_case_compile(source, length, err);
    free(source);
    return chat;
}

/* The lowest 40 bits of FNV-1a's 64, as digits. */
static void hash_text(const char *data, size_t length, char out[11]) {
    uint64_t hash = 0xcbf29ce484222325;
    for (size_t i = 0; i < length; i++)
        hash = (hash ^ (unsigned char)data[i]) * 0x100000001b3;
    snprintf(out, 11, "%010llx", (unsigned long long)(hash & 0xffffffffff));
}

static void report(const char *name, const cJSON *conversation, const char *what,
                   const char *detail) {
    if (counts.differences++ < MAX_PRINTED)
        fprintf(stderr, "# %s %s: %s %s\n", name, conversation->string, what, detail);
}

/* Messages may be cut short, and lines are joined: the first line's beginning is compared. */
static bool contains(const struct error *err, const char *message) {
    char start[64];
    snprintf(start, sizeof(start), "%.*s", (int)strcspn(message, "\n"), message);
    return strstr(err->message, start) != NULL;
}

static void compare(const char *name, const cJSON *conversation, const char *word,
                    const struct chat_case *got) {
    char hash[11];
    counts.renderings++;
    if (word[0] == '!') {
        const char *message =
            cJSON_GetArrayItem(field(cases, "errors"), atoi(word + 1))->valuestring;
        counts.refusals++;
        if (got->status == 0)
            report(name, conversation, "rendered, to be refused:", message);
        else if (!contains(&got->err, message))
            report(name, conversation, "refused otherwise:", got->err.message);
    } else if (word[0] == '?') {
        counts.errors++;
        if (got->status == 0)
            report(name, conversation, "rendered,", "an error in Jinja2");
    } else if (got->status != 0) {
        report(name, conversation, "failed:", got->err.message);
    } else {
        counts.texts++;
        hash_text(got->text.data, got->text.length, hash);
        if (strncmp(hash, word, 10) != 0)
            report(name, conversation, "another text", "");
    }
}

static bool is_private(const char *at) {
    unsigned char lead = (unsigned char)at[0];
    return lead == 0xee || (lead == 0xef && (unsigned char)at[1] < 0xa4);
}

/* Of names and arguments of tools and documents, keys and values are the client's too. */
static bool is_private_throughout(const cJSON *conversation) {
    return strcmp(conversation->string, "private_user") == 0 ||
           strcmp(conversation->string, "private_turns") == 0;
}

static void check_origin(const char *name, const cJSON *conversation,
                         const struct chat_text *text) {
    size_t span = 0;
    int private_characters = 0, other_bytes = 0;
    for (size_t i = 0; i < text->length; i++) {
        bool begins = i + 2 < text->length && is_private(text->data + i);
        while (span < text->num_client_spans && text->client_spans[span].end <= i)
            span++;
        bool is_client = span < text->num_client_spans && text->client_spans[span].begin <= i &&
                         (!begins || i + 3 <= text->client_spans[span].end);
        if (begins && !is_client)
            report(name, conversation, "a client's character is", "the server's");
        private_characters += begins;
        other_bytes += is_client && !begins;
        i += begins ? 2 : 0;
    }
    if (other_bytes > 0 && is_private_throughout(conversation))
        report(name, conversation, "the server's text is", "a client's");
    counts.private_characters += private_characters;
    counts.other_bytes += other_bytes;
}

static void run_conversation(const char *name, const struct chat_template *chat,
                             const cJSON *conversation, const char *word) {
    struct chat_case got = chat_case_render(chat, conversation, now());
    compare(name, conversation, word, &got);
    if (got.status == 0 && !chat_case_spans_are_sound(&got.text))
        report(name, conversation, "the client's spans are", "not in order");
    if (got.status == 0 && strncmp(conversation->string, "private", 7) == 0)
        check_origin(name, conversation, &got.text);
    template_arena_destroy(got.arena);
}

static void run_template(const cJSON *template) {
    struct error err = {0};
    struct chat_template *chat = open_template(template->string, &err);
    const cJSON *conversation = field(cases, "conversations")->child;
    if ((chat == NULL) != (template->valuestring[0] == '~'))
        report(template->string, template, chat == NULL ? err.message : "is accepted", "");
    for (const char *word = template->valuestring; chat != NULL && conversation != NULL;
         conversation = conversation->next) {
        run_conversation(template->string, chat, conversation, word);
        word += strcspn(word, " ");
        word += word[0] == ' ';
    }
    chat_template_destroy(chat);
}

static void test_every_template_and_conversation(void **state) {
    const cJSON *template;
    cJSON_ArrayForEach(template, field(cases, "templates")) run_template(template);
    print_message("# %d templates, %d renderings: %d texts, %d refusals, %d errors; %d private "
                  "characters, %d other bytes in a client's spans; %d differences\n",
                  cJSON_GetArraySize(field(cases, "templates")), counts.renderings, counts.texts,
                  counts.refusals, counts.errors, counts.private_characters, counts.other_bytes,
                  counts.differences);
    assert_int_equal(counts.differences, 0);
    assert_true(counts.texts > 6000 && counts.refusals > 300 && counts.private_characters > 3000);
}

static int show(const char *name, const char *conversation) {
    struct error err = {0};
    struct chat_template *chat = open_template(name, &err);
    if (chat == NULL) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    struct chat_case got = chat_case_render(
        chat, cJSON_GetObjectItem(cJSON_GetObjectItem(cases, "conversations"), conversation),
        (int64_t)cJSON_GetObjectItem(cases, "now")->valuedouble);
    if (got.status == 0)
        printf("%.*s\n", (int)got.text.length, got.text.data);
    else
        fprintf(stderr, "%s\n", got.err.message);
    template_arena_destroy(got.arena);
    chat_template_destroy(chat);
    return got.status == 0 ? 0 : 1;
}

static void read_cases(void) {
    size_t length;
    char *text = chat_case_read(folder, "cases.json", &length);
    cases = cJSON_Parse(text);
    free(text);
    if (cases == NULL) {
        fprintf(stderr, "cases.json is not JSON\n");
        exit(1);
    }
}

int main(int argc, char **argv) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_every_template_and_conversation)};
    if (argc != 2 && argc != 4)
        return fprintf(stderr, "usage: %s FOLDER [TEMPLATE CONVERSATION]\n", argv[0]), 2;
    folder = argv[1];
    setenv("TZ", "UTC", 1);
    read_cases();
    int status = argc == 4 ? show(argv[2], argv[3]) : cmocka_run_group_tests(tests, NULL, NULL);
    cJSON_Delete(cases);
    return status;
}
