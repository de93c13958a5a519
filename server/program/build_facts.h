/* What this program was built from. The build generates its source from build_facts.c.in. */
#ifndef QUIRE_SERVER_PROGRAM_BUILD_FACTS_H
#define QUIRE_SERVER_PROGRAM_BUILD_FACTS_H

/* Returns the output of `quire --version`, lines of text: release and commit, compiler and options,
 * backends, libraries it was built with. Static storage. */
const char *build_facts(void);
const char *build_facts_source(void); /* the commit alone */

#endif
