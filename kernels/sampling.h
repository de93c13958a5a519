/* The inputs and outputs of the `sample` op: one `struct sample_row` per row of logits.
 *
 * Order of operations on a sampled row (the same as vLLM's, so that parameters mean the same):
 *   1. logprobs, when requested, are the log-softmax of the raw logits;
 *   2. token_bias entries are added (-INFINITY bans a token, as min_tokens does with end tokens;
 *   -100 is an ordinary number that bans only in effect), and tokens that the row's mask does not
 *   allow are banned;
 *   3. repetition penalty on every token of prompt or output: logit > 0 ? logit / r : logit * r;
 *      frequency: logit -= f * output_count; presence: logit -= p * (output_count > 0);
 *   4. temperature 0: argmax, ties to the lowest id, and none of the following steps; otherwise
 *   top_n_sigma: drop tokens whose logit is below max - n * sigma, sigma the standard deviation of
 *   the logits that are not -INFINITY; one further than SAMPLE_MAX_DEVIATION below the largest
 *   counts as that far below; then logits / temperature;
 *   5. min_p: drop tokens with probability below min_p * max probability;
 *   6. top_k, then top_p on what is left (the smallest set of most probable tokens whose mass
 *      reaches top_p); equal values are kept or dropped together only by token id order;
 *   7. typical_p: of what is left, the tokens whose -log(probability) is nearest to the entropy,
 *      until their mass reaches typical_p; tokens equally near are kept together;
 *   8. XTC: if a second random number is below xtc_probability, of the tokens left whose
 * probability is xtc_threshold or more all but the last, in the order of falling logit and rising
 * id, are dropped;
 *   9. dynamic temperature: with dynatemp_range r > 0, probabilities up to here are of temperature
 *      1, and now the logits of what is left are divided by low + (high - low) * h^exponent, where
 *      low and high are temperature -+ r, low at least 0, and h is the entropy of what is left over
 *      the log of its number of tokens; those less than e^-SAMPLE_SPAN of the likeliest are
 *      dropped before, and the divisor is at least SAMPLE_MIN_DYNAMIC_TEMPERATURE;
 *  10. one token of the renormalised rest, by a counter-based random number on (seed, position).
 *      u in [0, 1) is the top 53 of the first 64 random bits; the token is the first in id order at
 *      which the sum of the kept weights exceeds u times their total. The second random number, of
 *      step 8, is the top 53 of the other 64 bits.
 * Mirostat takes the place of steps 4's sigma and 5 to 9, with a number mu that goes from token to
 * token: before the first it is 2 tau, and a token of surprise s = -log2(probability), among what
 * is kept, makes it mu - eta * (s - tau). Version 2 keeps tokens whose surprise is at most mu, the
 * likeliest in any case. Version 1 estimates Zipf's exponent from the SAMPLE_MIROSTAT_TOKENS
 * likeliest (those of e^-SAMPLE_SPAN at least), and from it and mu a top_k (Basu et al.,
 * "Mirostat", arXiv 2007.14966, equations 30 and 9). The steps before 7 have vLLM's order, where
 * the temperature comes first. Those of llama.cpp stand where they do not change that, and in their
 * own order: top_n_sigma, which a temperature does not change, before all; typical_p (Meister et
 * al., arXiv 2202.00666) and XTC on what the others leave; the dynamic temperature last, as its
 * entropy is that of what is left. (top_n_sigma: Tang et al., arXiv 2411.07641; XTC: pull request
 * 6335 of text-generation-webui.) DRY is not here: whoever makes the rows turns it into token_bias
 * entries. A NaN logit counts as -INFINITY, +INFINITY as the largest float; when every token is
 * banned the answer is token 0. The token depends on nothing else: not on the batch, the step, the
 * thread or the backend. Random numbers: Philox 4x32-10 (Salmon et al., "Parallel random numbers:
 * as easy as 1, 2, 3", SC'11), key = seed, counter = position. */
#ifndef QUIRE_KERNELS_SAMPLING_H
#define QUIRE_KERNELS_SAMPLING_H

#include <stdint.h>

#define SAMPLE_MAX_LOGPROBS 20
#define SAMPLE_NO_TARGET (-1)
#define SAMPLE_NO_MASK (-1)
#define SAMPLE_MAX_DEVIATION 256.0F
#define SAMPLE_SPAN 24.0F
#define SAMPLE_MIN_DYNAMIC_TEMPERATURE 0.01F
#define SAMPLE_MIROSTAT_TOKENS 100
#define DRY_MAX_WINDOW 32768 /* tokens */

/* A token that occurred in the row's sequence. */
struct token_count {
    int32_t token;
    int32_t output_count; /* times generated; 0: it occurs in the prompt only */
};

struct token_bias {
    int32_t token;
    float bias;
};

/* How tokens are chosen: the sampling parameters of a request, passed from where it is read to the
 * kernels. models/config/sampling_fields.h says how requests and model files name them. */
struct sampling_settings {
    float temperature;        /* >= 0; 0: greedy */
    float top_p;              /* (0, 1] */
    int32_t top_k;            /* <= 0: all */
    float min_p;              /* [0, 1] */
    float presence_penalty;   /* 0: none */
    float frequency_penalty;  /* 0: none */
    float repetition_penalty; /* > 0; 1: none */
    float typical_p;          /* (0, 1); 0 and 1: all */
    float xtc_probability;    /* [0, 1]; 0: none */
    float xtc_threshold;      /* [0, 1]; more than 0.5: none */
    float dynatemp_range;     /* >= 0; 0: none */
    float dynatemp_exponent;  /* >= 0 */
    float top_n_sigma;        /* > 0; else none */
    int32_t mirostat;         /* version: 1 or 2; 0: none */
    float mirostat_tau;       /* > 0, in bits */
    float mirostat_eta;       /* >= 0 */
    /* DRY, which the sample op ignores: engine/batch/dry_penalty.h. */
    float dry_multiplier; /* >= 0; 0: none */
    float dry_base;       /* >= 1 */
    int32_t dry_allowed_length;
    int32_t dry_penalty_last_n; /* up to DRY_MAX_WINDOW; -1: that many; 0: none */
};

/* llama.cpp's settings when a request does not give them: no effect. */
#define SAMPLING_SETTINGS_UNUSED                                                                   \
    .typical_p = 1, .xtc_threshold = 0.1F, .dynatemp_exponent = 1, .mirostat_tau = 5,              \
    .mirostat_eta = 0.1F, .dry_base = 1.75F, .dry_allowed_length = 2, .dry_penalty_last_n = -1

/* Samples from the model's own distribution: OpenAI's defaults, and vLLM's for its extensions. */
#define SAMPLING_SETTINGS_NEUTRAL                                                                  \
    { .temperature = 1, .top_p = 1, .top_k = -1, .repetition_penalty = 1, SAMPLING_SETTINGS_UNUSED }

/* Takes the likeliest token. */
#define SAMPLING_SETTINGS_GREEDY                                                                   \
    { .temperature = 0, .top_p = 1, .top_k = -1, .repetition_penalty = 1, SAMPLING_SETTINGS_UNUSED }

/* Uses every step above except Mirostat. */
#define SAMPLING_SETTINGS_ALL_STEPS                                                                \
    {                                                                                              \
        .temperature = 0.7F, .top_p = 0.9F, .top_k = 50, .min_p = 0.01F, .presence_penalty = 0.1F, \
        .frequency_penalty = 0.1F, .repetition_penalty = 1.1F, .typical_p = 0.9F,                  \
        .xtc_probability = 0.5F, .xtc_threshold = 0.1F, .dynatemp_range = 0.2F,                    \
        .dynatemp_exponent = 1, .top_n_sigma = 3, .mirostat_tau = 5, .mirostat_eta = 0.1F,         \
        .dry_multiplier = 0.8F, .dry_base = 1.75F, .dry_allowed_length = 2,                        \
        .dry_penalty_last_n = -1                                                                   \
    }

struct top_logprob {
    int32_t token;
    float logprob;
};

struct sample_row {
    int32_t target;       /* SAMPLE_NO_TARGET: sample; otherwise score this token instead */
    int32_t num_logprobs; /* -1: none; 0..SAMPLE_MAX_LOGPROBS: the chosen token and that many
                             likeliest ones */
    uint64_t seed;        /* already mixed with the choice index by the caller */
    uint64_t position;    /* index of the token to be sampled within the sequence */
    struct sampling_settings settings;
    float mirostat_mu;               /* with settings.mirostat */
    int32_t first_count, num_counts; /* range in sample_args.counts; distinct tokens */
    int32_t first_bias, num_biases;  /* range in sample_args.biases; distinct tokens */
    int32_t mask; /* index of a mask in sample_args.masks; SAMPLE_NO_MASK: none */
    /* With num_logprobs >= 0: further tokens, in any order, whose logprobs are reported. */
    int32_t first_listed, num_listed; /* range in sample_args.listed */
    int64_t first_listed_logprob;     /* place of the first one's in sample_args.listed_logprobs */
    /* For a row that lists the whole vocabulary in id order: only this many of the likeliest are
     * wanted, up to half of it. 0: all are wanted, in their order. */
    int32_t num_ranked;
};

/* Words of one mask of allowed tokens: token t is bit t % 32 of word t / 32. */
#define SAMPLE_MASK_WORDS(vocab_size) (((vocab_size) + 31) / 32)

/* Result of one row. Without num_logprobs >= 0 only the first two are meaningful. */
struct sample_output {
    int32_t token;     /* the sampled token, or the target */
    float mirostat_mu; /* for the next token: of a row sampled with settings.mirostat and a
                          temperature above 0 */
    float logprob;     /* of `token`, from the raw logits */
    int32_t rank;      /* of `token` among the raw logits, 1 = most probable */
    /* min(num_logprobs, vocab); or the row's num_ranked if the op has ranked the list: then that
     * many struct top_logprob, in the order of top_tokens, replace the listed logprobs, as
     * bytes. */
    int32_t num_top;
    int32_t top_tokens[SAMPLE_MAX_LOGPROBS]; /* by descending logprob, ties by ascending id */
    float top_logprobs[SAMPLE_MAX_LOGPROBS];
};

/* Both find the first `count` <= n items by descending logprob and ascending id, for a row that
 * reports more than SAMPLE_MAX_LOGPROBS: in the sample op, and for lists that an op leaves
 * unsorted. Select moves them to the front, with the last of them at its place and the others
 * unordered. Sort puts them in order; the remaining items are then undefined. */
void top_logprobs_select(struct top_logprob *items, int32_t n, int32_t count);
void top_logprobs_sort(struct top_logprob *items, int32_t n, int32_t count);

#endif
