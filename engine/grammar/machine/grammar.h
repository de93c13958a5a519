/* Constrained decoding: a context-free grammar over bytes that the output of a sequence must match,
 * and the set of tokens that may come next.
 *
 * A grammar is built from rules, then frozen: immutable, reference-counted, shared by the choices
 * of a request and safe on all threads. What a sequence has matched so far is in its grammar_state
 * (engine thread). Neither knows JSON or any notation: front ends (JSON schema, tool call formats,
 * grammar_text.h) call the builder. */
#ifndef QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_H
#define QUIRE_ENGINE_GRAMMAR_MACHINE_GRAMMAR_H

#include "config/base/byte_buffer.h"
#include "config/base/text.h"
#include "config/base/error.h"
#include "engine/grammar/build/grammar_builder.h"
#include "models/tokenizer/tokenizer.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Maximum nesting of rules (and of counted repetitions, and of parts that are used in several
 * places) at a byte of the text. Deeper nesting is never begun, so that everything begun can be
 * completed. */
#define GRAMMAR_MAX_DEPTH 256
/* Maximum number of parse states (ways to read the text so far) that are followed at once. If there
 * are more, those of the first alternatives are followed. */
#define GRAMMAR_MAX_PARSE_STATES 512

#define GRAMMAR_WORK_COST 8 /* cost of following a parse state, see grammar_state_try_mask */

/* --- A grammar --- */

struct grammar;

/* Freezes the builder's nodes below root. Left-recursive rules and repetitions of items that may be
 * empty are rewritten, so the builder can only be destroyed afterwards. Fails with ERROR_SYNTAX
 * when the grammar has an undefined rule, matches no text, or exceeds a bound: its size, or the
 * number of rules that are left-recursive through each other (32). */
int grammar_build(struct grammar_builder *builder, grammar_node root, struct grammar **out,
                  struct error *err);
struct grammar *grammar_ref(struct grammar *grammar);
void grammar_unref(struct grammar *grammar); /* accepts NULL */

/* Appends the grammar as bytes. Any thread. */
void grammar_write(const struct grammar *grammar, struct byte_buffer *out);
/* Restores a written grammar. Fails with ERROR_SYNTAX when grammar_build cannot have made these
 * bytes for a vocabulary of that size. */
int grammar_read(struct text bytes, int32_t vocab_size, struct grammar **out, struct error *err);

/* --- The vocabulary, prepared once per server: a prefix tree of the tokens' bytes --- */

struct grammar_vocabulary;

int grammar_vocabulary_create(const struct tokenizer *tokenizer, struct grammar_vocabulary **out,
                              struct error *err);
void grammar_vocabulary_destroy(struct grammar_vocabulary *vocabulary); /* accepts NULL */

/* --- The state of a sequence --- */

struct grammar_state;

/* Returns a state at the start of the text. Takes a reference. NULL when memory is short. */
struct grammar_state *grammar_state_create(struct grammar *grammar,
                                           const struct grammar_vocabulary *vocabulary);
void grammar_state_destroy(struct grammar_state *state); /* accepts NULL */
struct grammar_state *grammar_state_clone(const struct grammar_state *state);
/* Writes the bits of the tokens that may come next: bit t % 32 of mask[t / 32], set when allowed;
 * [(vocab_size + 31) / 32] words. End tokens are allowed exactly where the text is complete; other
 * control tokens only where grammar_token names them. At least one token is always allowed. Returns
 * -1 when memory is short.
 *
 * Within an object that grammar_open_object began, tokens that would complete a name that the
 * object already has are not allowed. This holds for all nested objects, unless no token would be
 * left. Not detected: cases where the '{' may also be read as one of several characters (prose),
 * names beyond the bounds of object_names.h, and two names in the same token as the '{'. */
int grammar_state_mask(struct grammar_state *state, uint32_t *mask);
/* Does the same if it costs no more than *budget, from which the cost is subtracted: 1 for each
 * node of the vocabulary's tree (less where whole subtrees are allowed), GRAMMAR_WORK_COST for each
 * parse state followed, and nothing for a known mask. Otherwise returns 1, and a job must find the
 * mask (grammar_job.h). If the grammar's last mask cost more than the budget, it does not try at
 * all. */
int grammar_state_try_mask(struct grammar_state *state, int64_t *budget, uint32_t *mask);
/* Advances by a token that the mask allowed, or would allow if it did not repeat a name (an end
 * token changes nothing). Returns -1 and leaves the state unchanged when the token was not allowed
 * or memory is short. An end token that is allowed only because no other is left is accepted only
 * after the mask was requested. */
int grammar_state_accept(struct grammar_state *state, int32_t token);
/* Fills out[0..most) with the next tokens if only one text may follow. They are split as the
 * tokenizer splits that text within a longer one, without its last token unless the text ends
 * there. Returns their number; 0 if several texts may follow, the tokenizer has no tokens for the
 * text, or memory is short. The mask would allow these tokens. */
int32_t grammar_state_forced(struct grammar_state *state, int32_t *out, int32_t most);
/* Returns whether only an end can follow: the sequence is finished. */
bool grammar_state_is_final(const struct grammar_state *state);

#endif
