/* `quire key`: makes keys for the YAML form of --api-key-file, and checks such a file. */
#include "server/program/command_line.h"

#include "config/base/help_text.h"
#include "server/keys/key_file.h"

#include <stdio.h>
#include <string.h>
#include <sysexits.h>
#include <time.h>

#define KEY_RANDOM_BYTES 32
#define KEY_PREFIX "sk-"

static const char usage[] =
    "usage: quire key new NAME [--FIELD VALUE ...]\n"
    "       quire key check FILE\n"
    "\n"
    "new makes a key. The key itself goes to stderr and is not stored; its entry for the file of "
    "--api-key-file goes to stdout. A server reads the file again on SIGHUP.\n"
    "\n"
    "check reads a file as the server does: status 0, or 78 and what is wrong with it.\n"
    "\n"
    "FIELD is one of\n"
    "  weight\t1 to 1000: share of the server relative to other keys; default 1\n"
    "  requests-per-minute\t1 or more; default: no limit\n"
    "  tokens-per-minute\tof prompts and outputs, 1 or more; default: no limit\n"
    "  max-concurrency\tAPI calls in flight, 1 or more; default: no limit\n"
    "  min-priority, max-priority\tbounds of the priority of a request; default: any\n"
    "  models\tnames of models it may use, separated by commas; default: all\n"
    "  expires\t2026-01-31 or 2026-01-31T12:00:00Z; default: never\n"
    "  admin\ttrue: it may use what is for administrators; default: false\n"
    "\n"
    "for example, to add a key to a file that begins with the line `keys:`:\n"
    "  quire key new team-a --weight 9 >> keys.yaml\n";

static int refuse_usage(const char *what, const char *word) {
    fprintf(stderr, "quire key: %s '%.64s'\n", what, word);
    help_text_print(usage, stderr);
    return EX_USAGE;
}

static int refuse(const char *what) {
    fprintf(stderr, "quire key: %s\n", what);
    return EX_USAGE;
}

static int set_field(struct key_entry *entry, const char *name, const char *value) {
    char what[KEY_WHAT_BYTES];
    int field = key_field_find(name, strlen(name));
    if (key_entry_set(entry, field, value, what) == 0)
        return 0;
    refuse(what);
    return -1;
}

/* Adds each name between two commas. */
static int set_list(struct key_entry *entry, const char *name, const char *value) {
    char item[KEY_MAX_MODEL_BYTES + 2];
    while (true) {
        size_t length = strcspn(value, ",");
        snprintf(item, sizeof(item), "%.*s", (int)length, value);
        if (set_field(entry, name, item) != 0)
            return -1;
        if (value[length] == '\0')
            return 0;
        value += length + 1;
    }
}

/* Reads one "--FIELD VALUE" or "--FIELD=VALUE" from argv; returns how many words it took, or -1. */
static int read_option(int argc, char *const *argv, struct key_entry *entry) {
    char name[32];
    const char *word = argv[0] + 2, *equals = strchr(argv[0], '=');
    size_t length = equals != NULL ? (size_t)(equals - word) : strlen(word);
    int field = strncmp(argv[0], "--", 2) == 0 ? key_field_find(word, length) : -1;
    if (field < 0 || field == key_field_find("name", 4) || field == key_field_find("hash", 4)) {
        refuse_usage("unknown option", argv[0]);
        return -1;
    }
    snprintf(name, sizeof(name), "%s", key_field_name(field));
    if (equals == NULL && argc < 2) {
        refuse_usage("no value for", argv[0]);
        return -1;
    }
    if ((entry->given >> field & 1) != 0) {
        refuse_usage("given twice:", argv[0]);
        return -1;
    }
    const char *value = equals != NULL ? equals + 1 : argv[1];
    int rc =
        key_field_is_list(field) ? set_list(entry, name, value) : set_field(entry, name, value);
    return rc != 0 ? -1 : equals != NULL ? 1 : 2;
}

static int make_key(struct key_entry *entry, char *out) {
    unsigned char bytes[KEY_RANDOM_BYTES];
    char hash[KEY_HASH_TEXT_BYTES];
    struct error err;
    if (auth_random(bytes, sizeof(bytes)) != 0)
        return -1;
    char *digit = out + sprintf(out, KEY_PREFIX);
    for (int i = 0; i < KEY_RANDOM_BYTES; i++)
        digit += sprintf(digit, "%02x", bytes[i]);
    if (auth_hash_key(out, &entry->hash, &err) != 0)
        return -1;
    key_hash_format(&entry->hash, hash);
    return set_field(entry, "hash", hash);
}

static void write_number(const char *name, int64_t value, int64_t nothing) {
    if (value != nothing)
        printf("    %s: %lld\n", name, (long long)value);
}

/* As YAML's double-quoted scalar, which has JSON's escapes for these. */
static void write_quoted(const char *text) {
    putchar('"');
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7f) {
            printf("\\x%02x", (unsigned char)*text);
            continue;
        }
        if (*text == '"' || *text == '\\')
            putchar('\\');
        putchar(*text);
    }
    putchar('"');
}

static void write_entry(const struct key_entry *entry) {
    char hash[KEY_HASH_TEXT_BYTES];
    key_hash_format(&entry->hash, hash);
    printf("  - name: \"%s\"\n    hash: %s\n", entry->name, hash);
    write_number("weight", entry->weight, 1);
    write_number("requests-per-minute", entry->requests_per_minute, 0);
    write_number("tokens-per-minute", entry->tokens_per_minute, 0);
    write_number("max-concurrency", entry->max_concurrency, 0);
    write_number("min-priority", entry->min_priority, INT32_MIN);
    write_number("max-priority", entry->max_priority, INT32_MAX);
    for (int i = 0; i < entry->num_models; i++) {
        printf(i == 0 ? "    models: [" : ", ");
        write_quoted(entry->models[i]);
    }
    if (entry->num_models > 0)
        printf("]\n");
    if (entry->expires != KEY_NEVER) {
        char moment[32];
        time_t expires = (time_t)entry->expires;
        struct tm time;
        strftime(moment, sizeof(moment), "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&expires, &time));
        printf("    expires: %s\n", moment);
    }
    if (entry->is_admin)
        printf("    admin: true\n");
}

static int write_key(struct key_entry *entry) {
    char key[sizeof(KEY_PREFIX) + 2 * (size_t)KEY_RANDOM_BYTES], what[KEY_WHAT_BYTES];
    if (make_key(entry, key) != 0) {
        refuse("the system has no random numbers");
        return EX_OSERR;
    }
    if (key_entry_check(entry, what) != 0)
        return refuse(what);
    write_entry(entry);
    if (fflush(stdout) != 0) {
        perror("quire key");
        return EX_OSERR;
    }
    fprintf(stderr, "%s\n", key);
    explicit_bzero(key, sizeof(key));
    return EX_OK;
}

static int run_new(int argc, char *const *argv) {
    struct key_entry entry;
    if (argc < 1)
        return refuse_usage("no name for", "new");
    key_entry_init(&entry);
    int status = set_field(&entry, "name", argv[0]) == 0 ? EX_OK : EX_USAGE;
    for (int i = 1; i < argc && status == EX_OK;) {
        int taken = read_option(argc - i, argv + i, &entry);
        if (taken < 0)
            status = EX_USAGE;
        else
            i += taken;
    }
    if (status == EX_OK)
        status = write_key(&entry);
    key_entry_finish(&entry);
    return status;
}

static int run_check(const char *path) {
    struct key_file file;
    struct error err = {0};
    if (key_file_read(path, &file, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return client_exit_status(&err);
    }
    int num_named = 0;
    for (int i = 0; i < file.num_keys; i++)
        num_named += file.keys[i].name[0] != '\0';
    printf("%d keys, %d of them with a name\n", file.num_keys, num_named);
    if (file.is_exposed)
        fprintf(stderr, "api-key-file %s: others may read or change it; chmod 640 or 600\n", path);
    key_file_finish(&file);
    return EX_OK;
}

int command_key(int argc, char *const *argv) {
    const char *verb = argc > 0 ? argv[0] : "";
    if (client_wants_help(argc, argv)) {
        help_text_print(usage, stdout);
        return EX_OK;
    }
    if (strcmp(verb, "new") == 0)
        return run_new(argc - 1, argv + 1);
    if (strcmp(verb, "check") == 0 && argc == 2)
        return run_check(argv[1]);
    if (strcmp(verb, "check") == 0)
        return refuse_usage("one file for", "check");
    return refuse_usage("unknown command", verb);
}
