/* Says what a request must produce, computed from the request alone: no scheduler, no blocks, no
 * increments. Text is decoded from all bytes anew for every token, by a decoder of its own. */
#ifndef QUIRE_TESTS_SIM_ORACLE_H
#define QUIRE_TESTS_SIM_ORACLE_H

#include "engine/grammar/machine/grammar.h"
#include "engine/request/request.h"
#include "tests/sim/fake_model.h"

struct oracle_choice {
    int32_t *tokens;     /* [num_tokens] generated */
    uint64_t *histories; /* [num_tokens] hash each one was sampled from */
    int32_t num_tokens;
    enum finish_reason finish;
    int32_t stop_token;
    int32_t stop_string;
    char *text;
    size_t text_bytes;
    float embedding[FAKE_HIDDEN_SIZE]; /* of a pooled request */
};

/* Fills out[num_choices]. The vocabulary is for requests with a grammar, whose state is taken from
 * a sequence that nothing interrupts. */
void oracle_run(const struct request *request, int32_t max_model_len,
                const struct grammar_vocabulary *vocabulary, struct oracle_choice *out);
void oracle_finish(struct oracle_choice *choice);

/* bytes as UTF-8 with U+FFFD for what is none; unless `final`, an unfinished character at the end
 * is left out. out has room for 3 * length bytes. Returns the number written. */
size_t oracle_decode(const unsigned char *bytes, size_t length, bool final, char *out);

#endif
