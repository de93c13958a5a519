/* Tokenises texts with a model's tokenizer, for scripts/compare/check_tokenizer.py and for
 * measuring.
 *
 *   tokenize_file MODEL.gguf|FOLDER [--special] [--around] [--decode]  < texts  > ids
 *
 * A folder needs its tokenizer.json only. Input: each text as its length (uint32, little-endian)
 * and its bytes. Output: a line of ids for each; with --decode a second line with what they decode
 * to, in hexadecimal. Stderr: processor time and memory it took. --special parses special tokens in
 * the texts, --around adds those around a prompt. */
#include "scripts/compare/open_tokenizer.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

struct settings {
    unsigned flags;
    bool decode;
};

struct totals {
    size_t num_texts;
    size_t bytes;
    double seconds;
};

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int print_decoded(const struct tokenizer *tokenizer, const int32_t *ids, int64_t count) {
    size_t length = tokenizer_decode(tokenizer, ids, (size_t)count, false, NULL, 0);
    char *text = malloc(length + 1);
    if (text == NULL)
        return -1;
    tokenizer_decode(tokenizer, ids, (size_t)count, false, text, length);
    for (size_t i = 0; i < length; i++)
        printf("%02x", (unsigned char)text[i]);
    printf("\n");
    free(text);
    return 0;
}

static int tokenize(const struct tokenizer *tokenizer, const char *text, size_t length,
                    const struct settings *settings, struct totals *totals) {
    double start = now();
    int64_t count = tokenizer_encode(tokenizer, text, length, settings->flags, NULL, 0);
    totals->seconds += now() - start;
    totals->num_texts++;
    totals->bytes += length;
    int32_t *ids = count < 0 ? NULL : malloc(((size_t)count + 1) * sizeof(*ids));
    if (ids == NULL)
        return -1;
    tokenizer_encode(tokenizer, text, length, settings->flags, ids, (size_t)count);
    for (int64_t i = 0; i < count; i++)
        printf(i == 0 ? "%d" : " %d", ids[i]);
    printf("\n");
    int status = settings->decode ? print_decoded(tokenizer, ids, count) : 0;
    free(ids);
    return status;
}

static int tokenize_all(const struct tokenizer *tokenizer, const struct settings *settings,
                        struct totals *totals) {
    uint32_t length;
    int status = 0;
    while (status == 0 && fread(&length, sizeof(length), 1, stdin) == 1) {
        char *text = malloc((size_t)length + 1);
        status = text == NULL || fread(text, 1, length, stdin) != length
                     ? -1
                     : tokenize(tokenizer, text, length, settings, totals);
        free(text);
    }
    return status;
}

/* The most memory this program had: unlike ru_maxrss, not that of the one that started it. */
static long peak_kib(void) {
    long kib = 0;
    char line[128];
    FILE *status = fopen("/proc/self/status", "r");
    while (status != NULL && fgets(line, sizeof(line), status) != NULL)
        sscanf(line, "VmHWM: %ld", &kib);
    if (status != NULL)
        fclose(status);
    return kib;
}

int main(int argc, char **argv) {
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    struct totals totals = {0};
    struct settings settings = {0};
    struct stat st;
    if (argc < 2 || stat(argv[1], &st) != 0) {
        fprintf(stderr, "usage: tokenize_file MODEL.gguf|FOLDER [--special] [--around] [--decode] "
                        "< texts\n");
        return 2;
    }
    for (int i = 2; i < argc; i++) {
        settings.flags |= strcmp(argv[i], "--special") == 0 ? TOKENIZER_PARSE_SPECIAL : 0;
        settings.flags |= strcmp(argv[i], "--around") == 0 ? TOKENIZER_ADD_SPECIAL : 0;
        settings.decode |= strcmp(argv[i], "--decode") == 0;
    }
    double start = now();
    int status = open_tokenizer(argv[1], &tokenizer, &err);
    if (status != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    double open_ms = (now() - start) * 1e3;
    struct mallinfo2 heap = mallinfo2();
    long open_kib = peak_kib();
    status = tokenize_all(tokenizer, &settings, &totals);
    fprintf(stderr,
            "%s: opened in %.1f ms, peak %ld KiB, keeps %zu KiB; %zu texts, %.2f MB in %.3f s, "
            "%.1f MB/s\n",
            tokenizer_description(tokenizer), open_ms, open_kib,
            (heap.uordblks + heap.hblkhd) / 1024, totals.num_texts, (double)totals.bytes / 1e6,
            totals.seconds, (double)totals.bytes / 1e6 / totals.seconds);
    tokenizer_close(tokenizer);
    return status == 0 ? 0 : 1;
}
