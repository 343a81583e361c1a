"""Passages of a knowledge base are whole sentences, or parts of one that is too long."""

import pytest

from realm_jax.corpus.documents import Document
from realm_jax.knowledge_base import passages


@pytest.mark.parametrize("letter", ["w", "ŵ"])
def test_only_a_sentence_that_is_too_long_is_cut_and_between_words(letter):
  long = "Words " + " ".join(f"{letter}{n}" for n in range(23)) + "."
  short = f"Tall moss gre{letter}."
  cut = passages.cutter(words=10)
  found = cut(Document(id="d", title="", text=f"{short} {short} {long}\n{short}"), "en")
  assert [len(passage.split()) for passage in found] == [6, 10, 10, 7]
  assert " ".join(found).split() == f"{short} {short} {long} {short}".split()
