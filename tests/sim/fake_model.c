#include "tests/sim/fake_model.h"

#include "config/base/check.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

/* The finaliser of splitmix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number
 * generators", OOPSLA 2014). */
static uint64_t mix(uint64_t x) {
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

uint64_t fake_model_hash(uint64_t hash, int32_t token) {
    return mix(hash * 31 + (uint64_t)token + 1);
}

static bool is_banned(const struct fake_sample *sample, int32_t token) {
    if (sample->mask != NULL && (sample->mask[token / 32] >> (token % 32) & 1) == 0)
        return true;
    for (int32_t i = 0; i < sample->num_biases; i++)
        if (sample->biases[i].token == token && isinf(sample->biases[i].bias))
            return true;
    return false;
}

int32_t fake_model_sample(uint64_t history, const struct fake_sample *sample) {
    uint64_t hash = mix(history ^ mix(sample->seed) ^ mix(mix(sample->position)));
    hash += mix((uint64_t)lrintf(sample->mirostat_mu * 1024));
    for (int32_t i = 0; i < sample->num_counts; i++)
        hash += mix(((uint64_t)sample->counts[i].token << 32) +
                    (uint64_t)sample->counts[i].output_count);
    for (int32_t i = 0; i < sample->num_biases; i++)
        if (!isinf(sample->biases[i].bias))
            hash += mix((uint64_t)sample->biases[i].token) *
                    (uint64_t)lrintf(sample->biases[i].bias * 8);
    for (uint64_t k = 0;; k++) {
        int32_t token = (int32_t)(mix(hash + k) % FAKE_VOCAB_SIZE);
        if (!is_banned(sample, token) || k > 1000)
            return token;
    }
}

float fake_model_next_mu(float mu, int32_t token) {
    return mu / 2 + (float)(token + 1) / 4;
}

float fake_model_logprob(uint64_t history, int32_t token) {
    return -(float)(mix(mix(history) + (uint64_t)token) >> 40) / 2097152;
}

void fake_model_distribution(uint64_t history, struct fake_distribution *out) {
    for (int32_t token = 0; token < FAKE_VOCAB_SIZE; token++) {
        float logprob = fake_model_logprob(history, token);
        int32_t at = token;
        for (; at > 0 && out->logprobs[at - 1] < logprob; at--) {
            out->tokens[at] = out->tokens[at - 1];
            out->logprobs[at] = out->logprobs[at - 1];
        }
        out->tokens[at] = token;
        out->logprobs[at] = logprob;
    }
}

int32_t fake_model_rank(const struct fake_distribution *distribution, int32_t token) {
    for (int32_t i = 0; i < FAKE_VOCAB_SIZE; i++)
        if (distribution->tokens[i] == token)
            return i + 1;
    CHECK(false);
    return 0;
}

float fake_model_state(uint64_t history, int dimension) {
    return (float)(mix(history ^ (uint64_t)(dimension + 1)) % 1000) - 500;
}
