"""Pairs of queries and passages that are looked for in a corpus before training."""
