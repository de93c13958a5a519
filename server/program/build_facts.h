/* The output of `quire --version`. The build generates its source from build_facts.c.in. */
#ifndef QUIRE_SERVER_PROGRAM_BUILD_FACTS_H
#define QUIRE_SERVER_PROGRAM_BUILD_FACTS_H

/* Returns lines of text: release and commit, compiler and options, backends, libraries it was built
 * with. Static storage. */
const char *build_facts(void);

#endif
