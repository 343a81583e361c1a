import pytest

from benchmarks.ablation import add_training_sentences
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.jobs.demonstration.corpora import make_corpora


@pytest.fixture(scope="module")
def uids(tmp_path_factory):
  """The uids of every corpus of a small world, by the corpus's name."""
  world = str(tmp_path_factory.mktemp("world"))
  make_corpora(world, seed=0, vocab_size=1024, passage_length=32, num_invented_entities=200)
  add_training_sentences(world, name="both", passage_length=32)
  names = ("passages", "whole_documents", "training", "both")
  return {name: PassageStore(f"{world}/{name}").uids.tolist() for name in names}


def test_no_training_sentence_is_a_fact_s_passage(uids):
  assert len(uids["training"]) > 100
  assert not set(uids["training"]) & set(uids["passages"])


def test_training_sentences_put_inside_are_the_very_same_passages(uids):
  # Passages of the training corpus are longer: the few sentences that are cut here are others.
  found = set(uids["training"]) & set(uids["both"])
  assert len(found) > 0.97 * len(uids["training"])
  assert set(uids["passages"]) <= set(uids["both"])


def test_facts_of_one_subject_lie_together_in_whole_documents(uids):
  assert len(uids["whole_documents"]) < len(uids["passages"])
