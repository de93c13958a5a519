/* sample_lines DEVICE VOCAB: samples what its input asks for, for sample_reference.py. Each line is
 * a row: the settings in the order of models/config/sampling_fields.h up to mirostat_eta, then mu,
 * seed, position, and the logits, all as numbers; there are VOCAB logits. Each line of the output
 * is a token and the mu after it. */
#include "kernels/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_VOCAB = 512, NUM_SETTINGS = 16 };

static bool read_settings(struct sample_row *row) {
    struct sampling_settings *s = &row->settings;
    double v[NUM_SETTINGS];
    for (int i = 0; i < NUM_SETTINGS; i++)
        if (scanf("%lf", &v[i]) != 1)
            return false;
    *s = (struct sampling_settings)SAMPLING_SETTINGS_NEUTRAL;
    s->temperature = (float)v[0], s->top_p = (float)v[1], s->top_k = (int32_t)v[2];
    s->min_p = (float)v[3], s->presence_penalty = (float)v[4], s->frequency_penalty = (float)v[5];
    s->repetition_penalty = (float)v[6], s->typical_p = (float)v[7];
    s->xtc_probability = (float)v[8], s->xtc_threshold = (float)v[9];
    s->dynatemp_range = (float)v[10], s->dynatemp_exponent = (float)v[11];
    s->top_n_sigma = (float)v[12], s->mirostat = (int32_t)v[13];
    s->mirostat_tau = (float)v[14], s->mirostat_eta = (float)v[15];
    return scanf("%f %lu %lu", &row->mirostat_mu, &row->seed, &row->position) == 3;
}

static bool sample_line(struct backend *b, float *logits, int vocab_size) {
    struct sample_row row = {
        .target = SAMPLE_NO_TARGET, .num_logprobs = -1, .mask = SAMPLE_NO_MASK};
    struct sample_output out;
    float values[MAX_VOCAB];
    if (!read_settings(&row))
        return false;
    for (int i = 0; i < vocab_size; i++)
        if (scanf("%f", &values[i]) != 1)
            return false;
    b->ops->upload(b, logits, values, (size_t)vocab_size * sizeof(*values));
    b->ops->sample(b, &(struct sample_args){.logits = logits,
                                            .num_sample_rows = 1,
                                            .vocab_size = vocab_size,
                                            .rows = &row,
                                            .out = &out});
    struct error err;
    if (b->ops->synchronize(b, &err) != 0)
        return false;
    printf("%d %.9g\n", (int)out.token, (double)out.mirostat_mu);
    return true;
}

int main(int argc, char **argv) {
    struct error err = {0};
    struct buffer logits = {0};
    if (argc != 3)
        return 2;
    int vocab_size = atoi(argv[2]);
    bool is_cpu = strncmp(argv[1], "cpu", 3) == 0;
    const struct backend_config config = {.activation_dtype = is_cpu ? DTYPE_F32 : DTYPE_BF16,
                                          .limits.max_num_batched_tokens = 8,
                                          .limits.max_num_seqs = 8,
                                          .limits.max_model_len = 4,
                                          .limits.block_size = 1,
                                          .limits.max_logit_rows = 8,
                                          .limits.vocab_size = MAX_VOCAB,
                                          .head_dim = 64,
                                          .num_q_heads = 1,
                                          .num_kv_heads = 1,
                                          .num_threads = 1};
    struct backend *b = vocab_size <= MAX_VOCAB ? backend_open(argv[1], &config, &err) : NULL;
    if (b == NULL || b->ops->buffer_alloc(b, MAX_VOCAB * sizeof(float), &logits, &err) != 0) {
        fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    while (sample_line(b, logits.data, vocab_size))
        ;
    b->ops->buffer_free(b, &logits);
    backend_close(b);
    return 0;
}
