"""A plan for CPU devices: the same check without libtpu."""

import dataclasses
import importlib.util
import re
import types

import pytest

from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.jobs.training import plan as plan_module
from realm_jax.jobs.training.plan import plan
from realm_jax.models import encoder
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.machines import accelerators, ahead_of_time, gpu_programs, pretraining_plan
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.recipes.pretraining import ModelConfig, Pretraining
from realm_jax.training.run.training_config import MeshConfig
from tests.configurations import tiny_bert

# Without dropout, of which programs would be larger.
BERT = tiny_bert(
  vocab_size=64, hidden_size=16, mlp_size=32, max_length=16, attention_dropout_rate=0.0
)


needs_libtpu = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="needs libtpu")


def planned(*, batch_size=8, bert=BERT, mesh=MeshConfig(), **settings):
  training = Pretraining(
    mesh=mesh,
    data=MaskedQueryData(batch_size=batch_size, query_length=8, max_masks=2),
    model=ModelConfig(
      dual_encoder=DualEncoderConfig(bert=bert, projection_size=8), knowledge_augmented_encoder=bert
    ),
    retrieval=RetrievalConfig(num_passages=3, passage_length=8, joint_length=16),
  )
  builder = BuilderConfig(searcher=SearcherConfig(kind="scann"), tokens_per_batch=256)
  given = {"pretraining": training, "builder": builder, "topology": "cpu:8"}
  return plan(**{**given, **settings})


def programs(text):
  """Returns the bytes that every program of a plan needs, in GiB."""
  rows = re.findall(r"^  (\S.*?)  +(?:[\d.]+ +){3}([\d.]+)$", text, re.MULTILINE)
  return {name: float(size) for name, size in rows}


@pytest.mark.slow
def test_every_program_that_runs_is_compiled(capsys):
  device = BuilderConfig(searcher=SearcherConfig(kind="device"))
  assert planned(builder=device, num_passages=10**7, retriever_batch_size=16) == 0
  text = capsys.readouterr().out
  assert text.startswith("8 queries x 3 passages per step on cpu:8: 8 devices")
  assert text.endswith("\nfits\n") and "accumulate_steps" not in text
  found = programs(text)
  encoders = {"query encoder", "passage encoder"}
  steps = {"train step", "evaluation", "search on the devices", "step of train_retriever"}
  assert found.keys() == encoders | steps
  # A train step leaves room for two generations of embeddings.
  index = 10**7 * 8 * 4 / 8 / accelerators.GIB
  assert found["train step"] == pytest.approx(2 * index, abs=0.01)
  assert re.search(r"^  \S+ s a step: .*\n  \S+ s to embed 10,000,000 passages", text, re.MULTILINE)
  with pytest.raises(ValueError, match="--num_passages"):
    planned(builder=device)


def test_the_accumulation_with_which_a_training_fits_is_named(capsys, monkeypatch):
  def compile_program(name, *program, repeats):
    parts, _, of = name.partition(" ")
    parts = int(parts) if of == "accumulate_steps" else name == "train step"
    # The whole batch at once needs 26 MiB.
    return ahead_of_time.CompiledProgram(temporary_bytes=parts and 26 * 2**20 // parts)

  small = ahead_of_time.open_topology("cpu:8")
  small = dataclasses.replace(small, usable_bytes=10 * 2**20)
  monkeypatch.setattr(plan_module, "open_topology", lambda _: small)
  monkeypatch.setattr(pretraining_plan, "compile_program", compile_program)
  assert planned(batch_size=4096) == 2
  *_, verdict = capsys.readouterr().out.splitlines()
  assert verdict.startswith("does not fit, because the train step needs ")
  assert verdict.endswith("it fits with --accumulate_steps=4")


def test_times_are_the_compilers_counts_at_a_share_of_the_peak(capsys, monkeypatch):
  counts = gpu_programs.Counts(0, 2e9, 1e9)

  def analysed(*_, repeats):
    return ahead_of_time.CompiledProgram(counts=counts * repeats)

  monkeypatch.setattr(pretraining_plan, "compile_program", analysed)
  monkeypatch.setattr(pretraining_plan, "peak_of", lambda *_, **__: accelerators.Peak(1e10, 2.5e9))

  def seconds(**settings):
    assert planned(**settings) == 0
    text = capsys.readouterr().out
    step, generation = re.search(r"  (\S+) s a step: .*\n  (\S+) s to embed", text).groups()
    return float(step), float(generation)

  # Moving 1e9 bytes takes 0.4 s at the peak; a device embeds 256 / 8 / 8 passages at once.
  assert seconds(share_of_peak=0.5) == (0.8, 0.8 * 10**6 / 4 / 8)
  assert seconds(share_of_peak=0.125) == (3.2, 3.2 * 10**6 / 4 / 8)
  assert seconds(share_of_peak=1, num_passages=32) == (0.4, 0.4)
  # The body of the loop over the parts of a batch is counted once by the compiler.
  assert seconds(mesh=MeshConfig(accumulate_steps=4), batch_size=32)[0] == pytest.approx(3.2)
  counts = dataclasses.replace(counts, flops=8e9)
  assert seconds(share_of_peak=0.5) == (1.6, 1.6 * 10**6 / 4 / 8)
  # So is that of the loop over groups of passages on a CPU, of 32 passages of 8 wordpieces at once.
  for cached, groups in ((256, 1), (128, 2), (8, 32)):
    monkeypatch.setattr(encoder, "_CACHED_WORDPIECES", cached)
    assert seconds(share_of_peak=0.5, topology="cpu:1")[1] == 1.6 * groups * 10**6 / 32


@pytest.mark.parametrize(
  ("kind", "name"),
  [
    ("TPU v5 lite", "v5e"),
    ("TPU v5p", "v5p"),
    ("TPU v5", "v5p"),
    ("TPU7x", "v7x"),
    ("TPU v4 lite", None),
    ("TPU v99", None),
    ("NVIDIA A100-SXM4-80GB", "a100"),
    ("NVIDIA H100 80GB HBM3", "h100"),
    ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
    ("NVIDIA L4", "l4"),
    ("NVIDIA L40S", None),
    ("NVIDIA GeForce RTX 4090", "rtx4090"),
    ("NVIDIA GeForce RTX 4090 D", None),
    ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
    ("NVIDIA RTX PRO 6000 Blackwell Workstation Edition", "rtx6000"),
    ("NVIDIA RTX PRO 6000 Blackwell Max-Q Workstation Edition", None),
    ("NVIDIA GB200", None),
    ("AMD Instinct MI300X", None),
  ],
)
def test_the_published_peak_is_that_of_the_whole_name(kind, name):
  device = types.SimpleNamespace(platform="gpu", device_kind=kind)
  peak = accelerators.peak_of(device, num_devices=4)
  known = {**accelerators.TPUS, **accelerators.GPUS}
  assert peak == (known[name].peak if name else None)


def test_devices_of_a_plan_have_a_published_peak():
  for of in accelerators.GPUS.values():
    [described] = re.findall(r'^device_description_str: "(.*)"', of.target_config, re.MULTILINE)
    device = types.SimpleNamespace(platform="cuda", device_kind=described)
    assert accelerators.peak_of(device, num_devices=1) == of.peak


@pytest.mark.parametrize(
  ("variables", "share"),
  [
    ({}, 0.75),
    ({"XLA_PYTHON_CLIENT_MEM_FRACTION": "0.5"}, 0.5),
    ({"XLA_CLIENT_MEM_FRACTION": "0.9"}, 0.9),
    ({"XLA_CLIENT_MEM_FRACTION": "4.0"}, 1.0),  # with memory of the host
  ],
)
def test_programs_for_a_gpu_may_use_the_share_of_its_memory_that_jax_takes(
  monkeypatch, variables, share
):
  for name in ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION"):
    monkeypatch.delenv(name, raising=False)
  for name, value in variables.items():
    monkeypatch.setenv(name, value)
  monkeypatch.setattr(ahead_of_time, "_gpu_devices", lambda *_, **__: ["absent"])
  before = ahead_of_time.jax.config.values["jax_enable_compilation_cache"]
  try:
    opened = ahead_of_time.open_topology("h100:1")
  finally:
    ahead_of_time.jax.config.update("jax_enable_compilation_cache", before)
  assert opened.usable_bytes == int(accelerators.GPUS["h100"].memory_gb * 1e9 * share)


@pytest.mark.parametrize("name", ["cpu:4294967297", "cpu:64x64", "h100:1025"])
def test_more_devices_than_a_process_can_have_are_refused(name):
  with pytest.raises(ValueError, match=rf"topology {name} has \d+ devices.* at most 1024"):
    ahead_of_time.open_topology(name)


@needs_libtpu
@pytest.mark.parametrize("kind", ["v5e", "v6e"])
def test_a_search_on_the_devices_is_compiled_for_a_slice_of_several_hosts(capsys, kind):
  builder = BuilderConfig(searcher=SearcherConfig(kind="device", target_recall=0.9))
  settings = {"batch_size": 64, "num_passages": 1000}
  assert planned(topology=f"{kind}:8x8", builder=builder, **settings) == 0
  assert "search on the devices" in programs(capsys.readouterr().out)


@needs_libtpu
@pytest.mark.parametrize("kind", ["v2", "v3", "v4", "v5p", "v5e", "v6e", "v7x"])
def test_every_program_of_a_training_is_compiled_for_a_tpu(capsys, kind):
  # On v5e:4x8, the first host cannot compile for just its own devices.
  shape = {"v2": "4x4", "v3": "4x4", "v5e": "4x8", "v6e": "4x4"}.get(kind, "2x2x4")
  assert planned(topology=f"{kind}:{shape}", batch_size=32, retriever_batch_size=32) == 0
  assert len(programs(capsys.readouterr().out)) == 5


@needs_libtpu
@pytest.mark.parametrize(
  ("topology", "model_parallel"),
  [("v4:4x4x4", 2), ("v4:4x4x4", 4), ("v5e:8x8", 4), ("v6e:4x4", 2), ("v6e:4x4", 4)],
)
def test_a_model_divided_over_devices_is_compiled_for_a_tpu(capsys, topology, model_parallel):
  divisible = dataclasses.replace(BERT, num_heads=4)
  mesh = MeshConfig(model_parallel=model_parallel)
  assert planned(topology=topology, mesh=mesh, batch_size=64, bert=divisible) == 0
  assert capsys.readouterr().out.endswith("\nfits\n")
