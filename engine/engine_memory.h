/* What the engine itself may take of the system's memory, apart from its executor: for the table of
 * memory printed at start. */
#ifndef QUIRE_ENGINE_ENGINE_MEMORY_H
#define QUIRE_ENGINE_ENGINE_MEMORY_H

#include "engine/engine.h"

/* Returns an upper bound: what is allocated at start, the queue and its prompts, the sequences that
 * run and the streams nobody has read yet, all at their largest. Grammars and stop strings count
 * with the requests that bring them, in the front end's share. */
size_t engine_memory_bytes(const struct engine_config *config, const struct tokenizer *tokenizer);

#endif
