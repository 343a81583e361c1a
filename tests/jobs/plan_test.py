"""A plan for CPU devices: the same check without libtpu."""

import dataclasses
import functools
import importlib.util
import re
import types

import numpy as np
import pytest

from realm_jax.corpus.passage_store import PassageStoreWriter
from realm_jax.index.searcher import SearcherConfig
from realm_jax.jobs.training import plan as plan_module
from realm_jax.jobs.training.plan import plan
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.planning import ahead_of_time, chips
from realm_jax.planning.roofline import Work
from realm_jax.publishing.builder_config import BuilderConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.runs.example_sources import MaskedQueryData
from realm_jax.runs.pretraining import ModelConfig, Pretraining
from realm_jax.runs.training_config import MeshConfig, RunConfig

BERT = BertConfig(
  dtype="float32",
  vocab_size=64,
  hidden_size=16,
  num_layers=1,
  num_heads=2,
  mlp_size=32,
  max_length=16,
)


needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")


def planned(*, batch_size=8, bert=BERT, passage_length=8, mesh=MeshConfig(), **settings):
  training = Pretraining(
    run=RunConfig(checkpoint_every=50),
    mesh=mesh,
    data=MaskedQueryData(batch_size=batch_size, query_length=8, max_masks=2),
    model=ModelConfig(
      dual_encoder=DualEncoderConfig(bert=bert, projection_size=8),
      knowledge_augmented_encoder=bert,
    ),
    retrieval=RetrievalConfig(num_passages=3, passage_length=passage_length, joint_length=16),
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


def write_store(directory):
  """Writes passages that are padded to 16 and 32 wordpieces, 26 on average."""
  tokenizer = types.SimpleNamespace(vocab_size=64, digest="", cls_id=2, sep_id=3)
  store = PassageStoreWriter(directory, tokenizer=tokenizer, max_passage_length=64)
  for length in [12] * 3 + [28] * 5:
    body = np.full(length, 6)
    store.append(title="", text="", title_ids=np.array([5]), body_ids=body, uid=length)
  store.finish(counts={})


def test_a_small_training_on_a_corpus_fits(capsys, tmp_path):
  write_store(tmp_path)
  long = dataclasses.replace(BERT, max_length=64)
  assert planned(passages=str(tmp_path), num_passages=None, bert=long, passage_length=64) == 0
  text = capsys.readouterr().out
  for part in (
    "8 queries x 3 passages per step on cpu:8: 8 devices, 1 hosts; index of 8 passages of 26 word",
    "parameters  ",
    "compiled: ",
    "all-reduce",
    "at 50% of the roofline",
    "encoders read ",
    "from step to swap ",
    "staleness ",
    "GiB a generation",
  ):
    assert part in text
  for program in ("train step", "query encoder", "evaluation", "exchange", "passage enc"):
    assert f"\n  {program}" in text
  assert "train_retriever" not in text and "search on the devices" not in text
  assert text.endswith("\nfits\n")


def test_a_step_has_the_work_of_all_its_parts(capsys, monkeypatch):
  """The compiler counts that of one, and the optimizer's, which happens once."""
  work = Work(flops=10**12, memory_bytes=chips.GIB, link_bytes=chips.GIB)

  def compile_all(compilations, *, preload):
    named = functools.partial(ahead_of_time.CompiledProgram, code_bytes=1, work=work)
    return {name: named(name=name) for name in compilations()}

  monkeypatch.setattr(plan_module.compiling_process, "compile_all", compile_all)
  assert planned(batch_size=32, mesh=MeshConfig(accumulate_steps=4)) == 0
  text = capsys.readouterr().out
  assert re.search(r"train step +[\d.]+ +4\.000 +4\.00 +4\.000", text)
  assert re.search(r"evaluation +1\.000 +1\.00 +1\.000", text)


def test_a_batch_beyond_memory_is_refused_before_it_is_compiled(capsys):
  assert planned(batch_size=2**27) == 2
  text = capsys.readouterr().out
  assert "compiled:" not in text
  assert "does not fit, because the train step needs " in text
  assert "GiB; lower batch_size, use more chips, accumulate_steps, remat" in text


def test_a_generation_beyond_host_memory_is_refused(capsys):
  assert planned(num_passages=2 * 10**9) == 2
  assert "two generations and the program take " in capsys.readouterr().out


def test_a_tpu_needs_libtpu(monkeypatch):
  monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
  with pytest.raises(ValueError, match=r"v3:2x2 needs libtpu: pip install -e '\.\[tpu\]'"):
    ahead_of_time.open_topology(chips.parse_topology("v3:2x2"))


def test_a_search_on_the_devices_and_the_inverse_cloze_task_are_compiled_if_they_run(capsys):
  searcher = SearcherConfig(kind="device")
  assert planned(builder=BuilderConfig(searcher=searcher), retriever_batch_size=16) == 0
  text = capsys.readouterr().out
  assert "\n  search on the devices" in text and "\n  step of train_retriever" in text


@pytest.mark.parametrize(("batch_size", "code"), [(64, 0), (2**19, 2)])
def test_a_plan_for_a_gpu_is_an_estimate(capsys, batch_size, code):
  assert planned(topology="gpu:1", batch_size=batch_size) == code
  text = capsys.readouterr().out
  assert "on gpu:1: 1 devices" in text and "compiled:" not in text
  assert ("bound by compute" in text) == (code == 0)
  assert ("of a gpu device's 15.75 GiB" in text) == (code == 2)


@needs_libtpu
@pytest.mark.parametrize("kind", ["v5e", "v6e"])
def test_a_search_on_the_devices_is_compiled_for_a_slice_of_several_hosts(capsys, kind):
  settings = {"batch_size": 64, "target_staleness": 10**6}
  builder = BuilderConfig(searcher=SearcherConfig(kind="device", target_recall=0.9))
  assert planned(topology=f"{kind}:8x8", builder=builder, **settings) == 0
  text = capsys.readouterr().out
  assert "\n  search on the devices" in text and "does not compile" not in text


@needs_libtpu
@pytest.mark.parametrize("kind", ["v2", "v3", "v4", "v5p", "v5e", "v6e", "v7x"])
def test_every_program_of_a_training_is_compiled_for_a_tpu(capsys, kind):
  shape = "4x4" if kind in ("v2", "v3", "v5e", "v6e") else "2x2x4"
  # On v5e:4x8, the first host cannot compile for just its own devices.
  builder = "v5e:4x8" if kind == "v5e" else f"{kind}:{shape}"
  settings = {"batch_size": 32, "retriever_batch_size": 32, "target_staleness": 10**6}
  assert planned(topology=f"{kind}:{shape}", builder_topology=builder, **settings) == 0
  text = capsys.readouterr().out
  assert f"{kind}:{shape} (" in text and ", 16 chips)" in text and "does not compile" not in text
  assert "4 chips is the smallest that stays within --target_staleness=1000000" in text


@needs_libtpu
@pytest.mark.parametrize(
  ("topology", "model_parallel"),
  [("v4:4x4x4", 2), ("v4:4x4x4", 4), ("v5e:8x8", 4), ("v6e:4x4", 2), ("v6e:4x4", 4)],
)
def test_a_model_divided_over_devices_is_compiled_for_a_tpu(capsys, topology, model_parallel):
  divisible = dataclasses.replace(BERT, num_heads=4)
  mesh = MeshConfig(model_parallel=model_parallel)
  settings = {"batch_size": 64, "bert": divisible, "target_staleness": 10**6}
  assert planned(topology=topology, mesh=mesh, **settings) == 0
  assert capsys.readouterr().out.endswith("\nfits\n")
