"""A plan for devices of the processor: the same check, without libtpu."""

import functools
import importlib.util

import pytest

from realm_jax.index.searcher import SearcherConfig
from realm_jax.jobs.training.plan import plan
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.planning import ahead_of_time, chips
from realm_jax.retrieval.retriever import RetrievalConfig

BERT = BertConfig(
  vocab_size=64, hidden_size=16, num_layers=1, num_heads=2, mlp_size=32, max_length=16
)


def planned(*, batch_size=8, bert=BERT, **settings):
  training = functools.partial(
    pretrain,
    dual_encoder=DualEncoderConfig(bert=bert, projection_size=8),
    knowledge_augmented_encoder=bert,
    retrieval=RetrievalConfig(num_passages=3, passage_length=8, joint_length=16),
    batch_size=batch_size,
    query_length=8,
    max_masks=2,
    checkpoint_every=50,
  )
  return plan(
    **{
      "pretrain": training,
      "topology": "cpu:8",
      "num_passages": 1000,
      "tokens_per_batch": 256,
      "searcher": SearcherConfig(kind="scann", min_passages_for_tree=100),
      **settings,
    }
  )


def test_a_small_training_fits(capsys):
  assert planned() == 0
  text = capsys.readouterr().out
  for part in (
    "8 queries x 3 passages a step on cpu:8: 8 devices, 1 hosts; index of 1,000 passages by cpu:8",
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
