"""Pairs beside the retrieved batches of a pre-training."""

import dataclasses

import numpy as np
import pytest

from realm_jax.jobs.preparation.prepare_pairs import prepare_pairs
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.pairs.found_pairs import PairSettings
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.runs.example_sources import MaskedQueryData
from realm_jax.runs.paired import Paired
from realm_jax.runs.pretraining import Pretraining

TRAINING = Pretraining(
  data=MaskedQueryData(query_length=16),
  retrieval=RetrievalConfig(passage_length=32, joint_length=48),
  objective=MarginalLikelihood() + Contrastive(),
)


class Counted:
  """A source of batches whose only state is how many there were."""

  def __init__(self, batch):
    self.count, self._batch = 0, batch

  def begin(self, params):
    self.count += 1

  def finish(self):
    return self._batch, {"count": self.count}

  def in_flight(self):
    return {"count": np.array(self.count)}

  def resume(self, in_flight):
    assert in_flight == {"count": self.count}
    return self._batch

  def position(self):
    return {"count": np.array(self.count)}

  def restore(self, position):
    self.count = int(position["count"])

  def place(self, rows):
    return rows


@pytest.fixture
def paired(people, tmp_path):
  pairs = str(tmp_path / "pairs")
  prepare_pairs(
    passages=people.directory, output=pairs, settings=PairSettings(query_length=16, num_wrong=1)
  )
  return Paired(pairs=pairs, passages=people.directory, num_pairs=2)


def test_a_restored_source_goes_on_with_the_pairs_in_flight(paired, make_retrieved_batch):
  batch = make_retrieved_batch(0, queries=2, passages=2, masks=1, vocab_size=9)
  source, restored = (paired.open(Counted(batch), TRAINING) for _ in range(2))

  def following(source):
    source.begin(None)
    return source.finish()[0].pairs

  def assert_same(found, expected):
    assert found.keys() == expected.keys()
    for name, rows in found.items():
      np.testing.assert_array_equal(rows, expected[name])

  drawn = [following(source) for _ in range(3)]
  assert len({rows["query"].tobytes() for rows in drawn}) > 1
  restored.restore(source.position())
  assert_same(restored.resume(source.in_flight()).pairs, drawn[-1])
  for _ in range(3):
    assert_same(following(restored), following(source))


def test_what_determines_the_pairs_is_known_by_name(paired):
  settings = paired.settings(TRAINING)
  others = dataclasses.replace(paired, hard_negatives=0).settings(TRAINING)
  assert {n for n, value in settings.items() if others[n] != value} == {"pairs.hard_negatives"}


def test_pairs_and_a_term_that_learns_from_them_need_each_other(paired):
  with pytest.raises(ValueError, match="without a Contrastive term"):
    paired.settings(dataclasses.replace(TRAINING, objective=MarginalLikelihood()))
  places = dict.fromkeys(("workdir", "corpus", "passages", "index"), "absent")
  with pytest.raises(ValueError, match="Contrastive term, but no pairs"):
    pretrain(**places, pretraining=TRAINING)
