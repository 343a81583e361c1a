"""A plan for CPU devices: the same check without libtpu."""

import importlib.util

import pytest

from realm_jax.index.searcher import SearcherConfig
from realm_jax.indexing.builder_config import BuilderConfig
from realm_jax.jobs.training.plan import plan
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.planning import ahead_of_time, chips
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.runs.example_sources import MaskedQueryData
from realm_jax.runs.pretraining import ModelConfig, Pretraining
from realm_jax.runs.training_config import RunConfig

BERT = BertConfig(
  dtype="float32",
  vocab_size=64,
  hidden_size=16,
  num_layers=1,
  num_heads=2,
  mlp_size=32,
  max_length=16,
)


def planned(*, batch_size=8, **settings):
  training = Pretraining(
    run=RunConfig(checkpoint_every=50),
    data=MaskedQueryData(batch_size=batch_size, query_length=8, max_masks=2),
    model=ModelConfig(
      dual_encoder=DualEncoderConfig(bert=BERT, projection_size=8),
      knowledge_augmented_encoder=BERT,
    ),
    retrieval=RetrievalConfig(num_passages=3, passage_length=8, joint_length=16),
  )
  searcher = SearcherConfig(kind="scann", min_passages_for_tree=100)
  return plan(
    **{
      "pretraining": training,
      "builder": BuilderConfig(searcher=searcher, tokens_per_batch=256),
      "topology": "cpu:8",
      "num_passages": 1000,
      **settings,
    }
  )


def test_a_small_training_fits(capsys):
  assert planned() == 0
  text = capsys.readouterr().out
  for part in (
    "8 queries x 3 passages per step on cpu:8: 8 devices, 1 hosts; index of 1,000 passages by",
    "parameters  ",
    "compiled: ",
    "all-reduce",
    "at 50% of the roofline",
    "staleness ",
    "GiB a generation",
  ):
    assert part in text
  assert text.endswith("\nfits\n")


def test_a_batch_beyond_memory_is_refused_before_it_is_compiled(capsys):
  assert planned(batch_size=2**27) == 2
  text = capsys.readouterr().out
  assert "compiled:" not in text
  assert "does not fit, because the train step needs " in text
  assert "GiB; lower batch_size, use more chips, accumulate_steps, remat" in text


def test_a_generation_beyond_host_memory_is_refused(capsys):
  assert planned(num_passages=2 * 10**9) == 2
  assert "two generations and the program take " in capsys.readouterr().out


@pytest.mark.parametrize(
  ("settings", "message"),
  [
    ({"batch_size": 12}, "batch_size=12 cannot be split over 8 parts of the mesh and 1 accum"),
    ({"topology": "v9:2x2"}, "topology 'v9:2x2'; write KIND:SIZES"),
    ({"topology": "cpu:64"}, "JAX has already started with 8 CPU devices"),
    ({"efficiency": 0.0}, r"efficiency=0.0; it must lie in \(0, 1\]"),
  ],
)
def test_a_wrong_setting_is_refused(settings, message):
  with pytest.raises(ValueError, match=message):
    planned(**settings)


def test_a_tpu_needs_libtpu(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match=r"v3:2x2 needs libtpu: pip install -e '\.\[tpu\]'"):
    ahead_of_time.open_topology(chips.parse_topology("v3:2x2"))


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")
def test_a_training_is_compiled_for_a_tpu(capsys):
  assert planned(topology="v3:2x2", builder_topology="v5e:2x2") == 0
  assert "on v3:2x2: 8 devices, 1 hosts" in capsys.readouterr().out
