"""Prompts for the benchmarks: the same for every server, no two alike within a run."""

import random

# Each is one token with its leading space in the vocabularies of the common small models, so that a
# prompt of N words has about N tokens.
WORDS = (
    "time people water world house day night work life place school year hand part child eye "
    "woman man week case point company number group problem fact money story month book side "
    "head friend power game line end law car city name team idea body back parent face level "
    "office door art war history party result change morning reason girl guy moment air "
    "teacher force education"
).split()


def make_prompts(count, num_tokens, *seeds):
    """`count` prompts of about num_tokens tokens; equal seeds give equal prompts."""
    generator = random.Random(repr(seeds))
    return [" ".join(generator.choice(WORDS) for _ in range(num_tokens)) for _ in range(count)]
