"""BM25 as it is defined: the scores of all texts, to which searches are compared."""

import collections
import functools
import math

import numpy as np

from realm_jax.text.analysis import Analyzer
from realm_jax.text.languages import language_of


def word_scores(texts, question, *, languages, k1=1.2, b=0.5, pair_weight=0.15):
  """Returns BM25's scores of texts with pairs of words, added in the order of the question."""
  analyzed = [_analyzed(str(text), languages) for text in texts]
  of_texts = collections.Counter(sorted(found for found, _, _ in analyzed))
  analyzer = Analyzer([*of_texts])
  main = max(of_texts, key=of_texts.__getitem__)
  language = language_of(question, among=analyzer.languages, main=main)
  counts, pairs = collections.Counter(), collections.Counter()
  for terms in analyzer.in_each_language(question):
    terms = [t for t in terms if t not in analyzer.idle(language)] or terms
    counts |= collections.Counter(terms)
    pairs |= collections.Counter(zip(terms, terms[1:], strict=False))
  num_texts = of_texts[language]
  lengths = np.array([length for _, length, _ in analyzed], np.int64)
  relative = (lengths / max(1.0, lengths.sum() / max(1, len(texts)))).astype(np.float32)
  saturation = k1 * (1 - b + b * relative)
  scores = np.zeros(len(texts), np.float32)
  weights = {(t,): n for t, n in counts.items()}
  weights |= {pair: n * pair_weight for pair, n in pairs.items()}
  for key, weight in weights.items():
    counts = np.array([grams[key] for _, _, grams in analyzed], np.float32)
    frequency = np.count_nonzero(counts)
    if frequency:
      idf = math.log(1 + (max(num_texts - frequency, 0) + 0.5) / (frequency + 0.5))
      shares = np.divide(counts, counts + saturation, out=np.zeros_like(counts), where=counts > 0)
      scores += np.float32(weight * idf) * shares
  return scores


@functools.lru_cache(maxsize=100_000)
def _analyzed(text, languages):
  """Returns the language of a text, how many terms it has, and each term and pair of terms."""
  language, terms = Analyzer(languages).analyze(text)
  grams = [*((term,) for term in terms), *zip(terms, terms[1:], strict=False)]
  return language, len(terms), collections.Counter(grams)
