"""Pairs of queries and passages, mined from a corpus before training."""
