/* The inputs and outputs of the `sample` op: one `struct sample_row` per row of logits.
 *
 * Order of operations on a sampled row (the same as vLLM's, so that parameters mean the same):
 *   1. logprobs, when requested, are the log-softmax of the raw logits;
 *   2. token_bias entries are added (-INFINITY bans a token, as min_tokens does with the ends;
 *      -100 is a number like any other and bans only in effect), and tokens that the row's mask
 *      does not allow are banned;
 *   3. repetition penalty on every token of prompt or output: logit > 0 ? logit / r : logit * r;
 *      frequency: logit -= f * output_count; presence: logit -= p * (output_count > 0);
 *   4. temperature 0: argmax, ties to the lowest id; otherwise logits / temperature;
 *   5. min_p: drop tokens with probability below min_p * max probability;
 *   6. top_k, then top_p on what is left (the smallest set of most probable tokens whose mass
 *      reaches top_p); equal values are kept or dropped together only by token id order;
 *   7. one token of the renormalised rest, by a counter-based random number on (seed, position).
 *      u in [0, 1) is the top 53 of the first 64 random bits; the token is the first in id order at
 *      which the sum of the kept weights exceeds u times their total.
 * A NaN logit counts as -INFINITY, +INFINITY as the largest float; when every token is banned the
 * answer is token 0.
 * The token depends on nothing else: not on the batch, the step, the thread or the backend.
 * Random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
 * SC'11), key = seed, counter = position. */
#ifndef QUIRE_KERNELS_SAMPLING_H
#define QUIRE_KERNELS_SAMPLING_H

#include <stdint.h>

#define SAMPLE_MAX_LOGPROBS 20
#define SAMPLE_NO_TARGET (-1)
#define SAMPLE_NO_MASK (-1)

/* A token that occurred in the row's sequence. */
struct token_count {
    int32_t token;
    int32_t output_count; /* times generated; 0: it occurs in the prompt only */
};

struct token_bias {
    int32_t token;
    float bias;
};

/* Says how tokens are chosen: the numbers of a request, from where it is read to the kernels.
 * models/sampling_fields.h says how requests and model files give them. */
struct sampling_settings {
    float temperature;        /* >= 0; 0: greedy */
    float top_p;              /* (0, 1] */
    int32_t top_k;            /* <= 0: all */
    float min_p;              /* [0, 1] */
    float presence_penalty;   /* 0: none */
    float frequency_penalty;  /* 0: none */
    float repetition_penalty; /* > 0; 1: none */
};

/* Samples from the model's own distribution: OpenAI's defaults, and vLLM's for its extensions. */
#define SAMPLING_SETTINGS_NEUTRAL                                                                  \
    { .temperature = 1, .top_p = 1, .top_k = -1, .repetition_penalty = 1 }

/* Takes the likeliest token. */
#define SAMPLING_SETTINGS_GREEDY                                                                   \
    { .temperature = 0, .top_p = 1, .top_k = -1, .repetition_penalty = 1 }

/* Takes every step above. */
#define SAMPLING_SETTINGS_ALL_STEPS                                                                \
    {                                                                                              \
        .temperature = 0.7F, .top_p = 0.9F, .top_k = 50, .min_p = 0.01F, .presence_penalty = 0.1F, \
        .frequency_penalty = 0.1F, .repetition_penalty = 1.1F                                      \
    }

struct sample_row {
    int32_t target;       /* SAMPLE_NO_TARGET: sample; else score this token, no sampling */
    int32_t num_logprobs; /* -1: none; 0..SAMPLE_MAX_LOGPROBS: the chosen token and that many top */
    uint64_t seed;        /* already mixed with the choice index by the caller */
    uint64_t position;    /* index of the token to be sampled within the sequence */
    struct sampling_settings settings;
    int32_t first_count, num_counts; /* range in sample_args.counts; distinct tokens */
    int32_t first_bias, num_biases;  /* range in sample_args.biases; distinct tokens */
    int32_t mask; /* number of a mask in sample_args.masks; SAMPLE_NO_MASK: none */
    /* With num_logprobs >= 0: tokens, any of them in any order, whose logprobs are reported
     * besides. */
    int32_t first_listed, num_listed; /* range in sample_args.listed */
    int64_t first_listed_logprob;     /* place of the first one's in sample_args.listed_logprobs */
};

/* Words of one mask of allowed tokens: token t is bit t % 32 of word t / 32. */
#define SAMPLE_MASK_WORDS(vocab_size) (((vocab_size) + 31) / 32)

/* Result of one row. Without num_logprobs >= 0 only `token` is meaningful. */
struct sample_output {
    int32_t token;   /* the sampled token, or the target */
    float logprob;   /* of `token`, from the raw logits */
    int32_t rank;    /* of `token` among the raw logits, 1 = most probable */
    int32_t num_top; /* min(num_logprobs, vocab) */
    int32_t top_tokens[SAMPLE_MAX_LOGPROBS]; /* by falling logprob, ties by rising id */
    float top_logprobs[SAMPLE_MAX_LOGPROBS];
};

#endif
