/* Tokenises texts with a model's tokenizer, for scripts/check_tokenizer.py and for measuring.
 *
 *   tokenize_file MODEL.gguf [--special]  < texts  > ids
 *
 * Input: each text as its length (uint32, little-endian) and its bytes. Output: a line of ids for
 * each. Stderr: processor time and heap it took. --special parses special tokens in the texts. */
#include "models/model.h"
#include "models/tensor_file.h"
#include "models/tokenizer.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

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

static int tokenize(const struct tokenizer *tokenizer, const char *text, size_t length,
                    unsigned flags, struct totals *totals) {
    int32_t *ids = malloc((length + 1) * sizeof(*ids));
    if (ids == NULL)
        return -1;
    double start = now();
    int64_t count = tokenizer_encode(tokenizer, text, length, flags, ids, length + 1);
    totals->seconds += now() - start;
    totals->num_texts++;
    totals->bytes += length;
    for (int64_t i = 0; i < count; i++)
        printf(i == 0 ? "%d" : " %d", ids[i]);
    printf("\n");
    free(ids);
    return count < 0 ? -1 : 0;
}

static int tokenize_all(const struct tokenizer *tokenizer, unsigned flags, struct totals *totals) {
    uint32_t length;
    int status = 0;
    while (status == 0 && fread(&length, sizeof(length), 1, stdin) == 1) {
        char *text = malloc((size_t)length + 1);
        status = text == NULL || fread(text, 1, length, stdin) != length
                     ? -1
                     : tokenize(tokenizer, text, length, flags, totals);
        free(text);
    }
    return status;
}

int main(int argc, char **argv) {
    struct tensor_file *file = NULL;
    struct tokenizer *tokenizer = NULL;
    struct error err = {0};
    struct totals totals = {0};
    if (argc < 2) {
        fprintf(stderr, "usage: tokenize_file MODEL.gguf [--special] < texts\n");
        return 2;
    }
    if (tensor_file_open(argv[1], &file, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    size_t heap = mallinfo2().uordblks;
    double start = now();
    const struct model model = {.file = file};
    int status = tokenizer_open(&model, &tokenizer, &err);
    double open_ms = (now() - start) * 1e3;
    if (status == 0) {
        heap = mallinfo2().uordblks + mallinfo2().hblkhd - heap;
        bool special = argc > 2 && strcmp(argv[2], "--special") == 0;
        status = tokenize_all(tokenizer, special ? TOKENIZER_PARSE_SPECIAL : 0, &totals);
        fprintf(stderr, "%s: opened in %.1f ms, %zu KiB; %zu texts, %.2f MB in %.3f s, %.1f MB/s\n",
                tokenizer_description(tokenizer), open_ms, heap / 1024, totals.num_texts,
                (double)totals.bytes / 1e6, totals.seconds,
                (double)totals.bytes / 1e6 / totals.seconds);
    } else {
        fprintf(stderr, "%s\n", err.message);
    }
    tokenizer_close(tokenizer);
    tensor_file_close(file);
    return status == 0 ? 0 : 1;
}
