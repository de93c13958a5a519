/* Constrained decoding: a context-free grammar over bytes that what a sequence generates must
 * match, and the set of tokens that may come next.
 *
 * A grammar is built from rules, then frozen: immutable, reference-counted, shared by the choices
 * of a request and safe on all threads. What a sequence has matched so far is a grammar_state of
 * its own (engine thread). Neither knows JSON or any notation: front ends (JSON schema, forms of
 * tool calls, grammar_text.h) call the builder. */
#ifndef QUIRE_ENGINE_GRAMMAR_GRAMMAR_H
#define QUIRE_ENGINE_GRAMMAR_GRAMMAR_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"
#include "config/base/error.h"
#include "engine/grammar/build/grammar_builder.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Nested rules (and repetitions with a count, and parts that are used in several places) at a byte
 * of the text. Deeper nesting is never begun, so that what is begun can always be ended. */
#define GRAMMAR_MAX_DEPTH 256
/* Parse states (ways to read the text so far) that are followed at once; of more, those of the
 * alternatives that come first are. */
#define GRAMMAR_MAX_PARSE_STATES 512

#define GRAMMAR_WORK_COST 8 /* of a parse state that is followed: see grammar_state_try_mask */

/* --- A grammar --- */

struct grammar;

/* Freezes the builder's nodes below root, of which rules that are left-recursive, and repetitions
 * of what may be empty, are rewritten: the builder is of no use any more but to be destroyed.
 * ERROR_SYNTAX when the grammar has an undefined rule or no text, or met a bound: of its size, or
 * of how many rules are left-recursive by each other (32). */
int grammar_build(struct grammar_builder *builder, grammar_node root, struct grammar **out,
                  struct error *err);
struct grammar *grammar_ref(struct grammar *grammar);
void grammar_unref(struct grammar *grammar); /* accepts NULL */

/* Appends the grammar as bytes. Any thread. */
void grammar_write(const struct grammar *grammar, struct byte_buffer *out);
/* Makes the grammar that was written. ERROR_SYNTAX when the bytes are none that grammar_build could
 * have made for a vocabulary of so many tokens. */
int grammar_read(struct text bytes, int32_t vocab_size, struct grammar **out, struct error *err);

/* --- The vocabulary, prepared once per server: a prefix tree of the tokens' bytes --- */

struct grammar_vocabulary;

int grammar_vocabulary_create(const struct tokenizer *tokenizer, struct grammar_vocabulary **out,
                              struct error *err);
void grammar_vocabulary_destroy(struct grammar_vocabulary *vocabulary); /* accepts NULL */

/* --- Where a sequence stands --- */

struct grammar_state;

/* At the start of the text. Takes a reference. NULL when memory is short. */
struct grammar_state *grammar_state_create(struct grammar *grammar,
                                           const struct grammar_vocabulary *vocabulary);
void grammar_state_destroy(struct grammar_state *state); /* accepts NULL */
struct grammar_state *grammar_state_clone(const struct grammar_state *state);
/* Writes the bits of the tokens that may come next: bit t % 32 of mask[t / 32], set when allowed;
 * [(vocab_size + 31) / 32] words. End tokens are allowed exactly where the text is complete; other
 * control tokens only where grammar_token names them. At least one token is always allowed. Returns
 * -1 when memory is short.
 *
 * Within an object that grammar_open_object began, tokens that would end a name which its object
 * already has are not allowed, of all objects down to the innermost; unless none is left then. Not
 * seen: where the '{' may also be read as one of several characters (prose), names beyond the
 * bounds of object_names.h, and two names in the very token that has the '{'. */
int grammar_state_mask(struct grammar_state *state, uint32_t *mask);
/* Does so if it costs no more than *budget, from which it takes what it cost: 1 for each node of
 * the vocabulary's tree (less where whole subtrees are allowed), GRAMMAR_WORK_COST for each parse
 * state followed, and nothing for a mask that is known. Otherwise returns 1, and a job is to find
 * the mask (grammar_job.h): not tried at all where the grammar's last mask cost more. */
int grammar_state_try_mask(struct grammar_state *state, int64_t *budget, uint32_t *mask);
/* Moves on by a token that the mask allowed, or would if it did not repeat a name (an end token
 * changes nothing). -1: it was not allowed, or memory was short; the state is unchanged. An end
 * token that is allowed for want of others is taken only after the mask was requested. */
int grammar_state_accept(struct grammar_state *state, int32_t token);
/* Fills out[0..most) with the next tokens where only one text may follow: as the tokenizer splits
 * that text within a longer one, but for its last token, unless the text ends there. Returns how
 * many; 0 where several texts may follow, the tokenizer has no tokens for it, or memory is short.
 * They are tokens that the mask would allow. */
int32_t grammar_state_forced(struct grammar_state *state, int32_t *out, int32_t most);
/* Nothing but an end can follow: the sequence is finished. */
bool grammar_state_is_final(const struct grammar_state *state);

#endif
