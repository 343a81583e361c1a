"""The built-in world: real almanac facts and an invented gazetteer, written out as corpora.

A small fixed set of facts would be memorised, so most of the world is invented from a seed. Each
fact is stated once in the knowledge corpus and, unless held out, again in other words in the
training corpus. Held-out facts can be answered only from the knowledge corpus.
"""
