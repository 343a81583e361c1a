import numpy as np
import pytest

from realm_jax.index.bm25 import Bm25Retriever
from realm_jax.pairs import corpus_sentences
from realm_jax.pairs.found_pairs import PairSettings
from realm_jax.pairs.lexical import Bm25Imitation, MaskedLexical

pytest.importorskip("bm25s", reason="the extra bm25 is not installed")


@pytest.fixture(scope="module")
def bm25(store):
  return Bm25Retriever(store.text(row) for row in range(len(store)))


def found(finder):
  """Yields each place with its pair."""
  for chunk in finder.chunks():
    for i in range(len(chunk)):
      for pair in finder.find(chunk[i : i + 1], np.random.default_rng(0)):
        yield chunk[i], pair


def raw(store, place, first, limit):
  return store.text(place[0]).encode()[place[first] : place[limit]].decode()


def test_right_passages_hold_the_masked_span_and_are_not_the_source(store, bm25):
  finder = MaskedLexical(store, bm25, PairSettings(num_wrong=2))
  seen = set()
  for place, pair in found(finder):
    span = raw(store, place, 3, 4)
    seen.add(span)
    assert place[0] not in [*pair.right, *pair.wrong]
    assert all(span in store.text(row) for row in pair.right)
    assert not any(span in store.text(row) for row in pair.wrong)
    sentence = raw(store, place, 1, 2)
    (whole,) = finder._tokenizer.encode_batch([sentence])
    hidden = pair.query == finder._tokenizer.mask_id
    np.testing.assert_array_equal(pair.query[~hidden], whole[~hidden])
    (answer,) = finder._tokenizer.encode_batch([span])
    np.testing.assert_array_equal(whole[hidden], answer)
  assert "London" in seen


def test_bm25s_first_passages_are_right_and_its_last_ones_wrong(store, bm25):
  settings = PairSettings(num_right=2, num_wrong=1)
  for place, pair in found(Bm25Imitation(store, bm25, settings)):
    ranked = bm25.retrieve([raw(store, place, 1, 2)], k=100).ids_BxK[0]
    ranked = ranked[ranked >= 0].tolist()
    assert pair.right == ranked[:2][: (len(ranked) + 1) // 2]
    assert set(pair.wrong[:1]) <= set(ranked) - set(pair.right)
    if len(ranked) > 1:
      assert pair.wrong[0] == ranked[-1]


def test_a_sentence_is_drawn_once_and_the_seed_decides_the_order(store):
  places_Fx5 = corpus_sentences.read(store, spans=True)
  first, same, other = (corpus_sentences.drawn(places_Fx5, 100, seed=seed) for seed in (0, 0, 1))
  np.testing.assert_array_equal(first, same)
  assert (first != other).any()
  assert len(np.unique(first[:, :3], axis=0)) == len(first) < len(places_Fx5)
  np.testing.assert_array_equal(corpus_sentences.drawn(places_Fx5, 3, seed=0), first[:3])


def test_a_span_that_the_query_length_cuts_off_gives_no_pair(store, bm25):
  cut = MaskedLexical(store, bm25, PairSettings(query_length=4))
  whole = MaskedLexical(store, bm25, PairSettings())
  assert 0 < len(list(found(cut))) < len(list(found(whole)))
