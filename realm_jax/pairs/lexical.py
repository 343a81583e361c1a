"""Pairs of sentences and the passages that BM25 ranks by shared words."""

import re
from collections.abc import Sequence

import numpy as np

from realm_jax import tokenization
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.pairs import corpus_sentences
from realm_jax.pairs.found_pairs import FoundPair, PairSettings

_SENTENCES_AT_ONCE = 512


class _SentenceFinder:
  """Searches for sentences drawn from a corpus."""

  spans: bool

  def __init__(self, store: PassageStore, retriever: Bm25Retriever, settings: PairSettings):
    self._store, self._retriever, self._settings = store, retriever, settings
    self._tokenizer = tokenization.load(f"{store.directory}/vocabulary")

  def chunks(self) -> Sequence[np.ndarray]:
    places_Fx5 = corpus_sentences.drawn(
      corpus_sentences.read(self._store, spans=self.spans),
      self._settings.num_queries,
      seed=self._settings.seed,
    )
    starts = range(0, len(places_Fx5), _SENTENCES_AT_ONCE)
    return [places_Fx5[i : i + _SENTENCES_AT_ONCE] for i in starts]

  def find(self, chunk: np.ndarray, random: np.random.Generator) -> list[FoundPair]:
    del random
    raws = [self._store.text(place[0]).encode()[place[1] : place[2]] for place in chunk]
    texts = [raw.decode() for raw in raws]
    found = self._retriever.retrieve(texts, k=self._settings.searched)
    encoded = self._tokenizer.encode_with_offsets(texts)
    pairs = []
    for place, raw, ids_K, tokens in zip(chunk, raws, found.ids_BxK, encoded, strict=True):
      pair = self._pair(raw, tokens, place, ids_K[ids_K >= 0].tolist())
      pairs += [pair] if pair is not None and pair.right else []
    return pairs

  def _pair(self, sentence: bytes, tokens, place: np.ndarray, rows: list[int]):
    raise NotImplementedError


class Bm25Imitation(_SentenceFinder):
  """Pairs a sentence with passages that BM25 ranks first, and some that it ranks low (SPAR).

  See Chen et al. 2022, "Salient Phrase Aware Dense Retrieval". The sentence's own passage counts as
  one of the first, because the ranking is what is imitated.
  """

  spans = False

  def _pair(self, sentence, tokens, place, rows):
    del sentence, place
    num_right = min(self._settings.num_right, (len(rows) + 1) // 2)
    low = rows[max(num_right, len(rows) // 2) :]
    step = max(1, len(low) // max(1, self._settings.num_wrong))
    return FoundPair(query=tokens[0], right=rows[:num_right], wrong=low[::-step])


class MaskedLexical(_SentenceFinder):
  """Pairs a sentence with a masked salient span with passages that contain the span.

  This is REALM's own task with a lexical teacher: BM25, which sees the span, retrieves the
  passages. Those that contain the span are positives, the others hard negatives. A passage that
  contains the sentence itself is neither.
  """

  spans = True

  def _pair(self, sentence, tokens, place, rows):
    ids, starts, limits = tokens
    _, begin, _, *span = place.tolist()
    start, limit = (border - begin for border in span)
    masked = (starts >= start) & (starts < limit) & (limits <= limit)
    kept = self._settings.query_length - 2
    if not masked.any() or masked[kept:].any():
      return None
    answer = re.escape(sentence[start:limit].decode())
    holds = re.compile(rf"(?<!\w){answer}(?!\w)").search
    whole = sentence.decode()
    texts = {row: self._store.text(row) for row in rows}
    rows = [row for row in rows if row != place[0] and whole not in texts[row]]
    right = [row for row in rows if holds(texts[row])]
    return FoundPair(
      query=np.where(masked, self._tokenizer.mask_id, ids),
      right=right,
      wrong=[row for row in rows if row not in set(right)],
    )
