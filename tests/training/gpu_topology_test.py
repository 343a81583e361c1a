"""Programs for GPUs that are not there, where jax[cuda12] is installed."""

import importlib.util
import json
import re
import subprocess
import sys

import pytest

from realm_jax.training.machines.accelerators import GPUS

pytestmark = pytest.mark.skipif(
  importlib.util.find_spec("jax_cuda12_plugin") is None, reason="needs jax[cuda12]"
)
# In a process of its own, because JAX has to start without looking for a GPU.
COMPILE = """
import functools, json, sys
import jax, jax.numpy as jnp
from flax import linen as nn
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Tokens
from realm_jax.models import bert
from realm_jax.training.machines import ahead_of_time

[name], texts = sys.argv[1:], {}
[device] = ahead_of_time.open_topology(name).devices
mesh = partitioning.make_mesh(devices=[device])
placed = functools.partial(jax.ShapeDtypeStruct, sharding=partitioning.sharding(mesh))
tokens = Tokens(*(placed((8, 127), dtype) for dtype in (jnp.int32, jnp.bool_, jnp.int32)))
for rate in (0.0, 0.1):
  config = bert.BertConfig(
    vocab_size=512, hidden_size=128, num_layers=1, num_heads=2, mlp_size=256, max_length=128,
    dtype="bfloat16", attention_dropout_rate=rate,
  )
  encoder = bert.BertEncoder(config)

  def loss(params, tokens):
    rngs = {"dropout": jax.random.key(0)}
    return encoder.apply(params, tokens, deterministic=False, rngs=rngs).astype(jnp.float32).sum()

  init = functools.partial(encoder.init, deterministic=True)
  boxed = jax.eval_shape(init, jax.random.key(0), tokens)
  params = jax.tree.map(lambda leaf: placed(leaf.shape, leaf.dtype), nn.unbox(boxed))
  step = jax.jit(partitioning.on_mesh(mesh, jax.grad(loss)))
  texts[rate] = step.lower(params, tokens).compile(ahead_of_time.GPU_OPTIONS).as_text()
json.dump(texts, sys.stdout)
"""

STEP = """
import functools, jax, jax.numpy as jnp, numpy as np
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import Mean
from realm_jax.objectives.objective import LOSS, Loss
from realm_jax.training.machines import ahead_of_time
from realm_jax.training.run import optimizer
from realm_jax.training.run.train_program import TrainProgram

def outputs(params, batch, key):
  return [rows @ params["kernel"] for rows in batch]

def score(outputs, batch):
  return {LOSS: Mean(sum(jnp.sum(jnp.sin(rows)) for rows in outputs), jnp.float32(1))}

[device] = ahead_of_time.open_topology("h100:1").devices
program = TrainProgram(
  mesh=partitioning.make_mesh(devices=[device]),
  init_params=lambda key: {"kernel": jnp.zeros((256, 512))},
  objective=Loss(outputs, score),
  optimizer=optimizer.make_optimizer(optimizer.OptimizerConfig(), num_steps=100),
  seed=0,
  accumulate_steps=1,
  layout="replicated",
)
placed = functools.partial(jax.ShapeDtypeStruct, sharding=program.batch_sharding)
batch = [placed((rows, 256), jnp.float32) for rows in (128, 64)]
lowered = program.jitted_step.lower(program.abstract_state, batch, np.int32(0))
print(lowered.compile(ahead_of_time.GPU_OPTIONS).as_text())
"""


def output_of(*command):
  return subprocess.run(
    [sys.executable, *command], check=True, capture_output=True, text=True, timeout=900
  ).stdout


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", GPUS)
def test_attention_without_dropout_is_one_kernel_forwards_and_one_backwards(kind):
  without, dropped = json.loads(output_of("-c", COMPILE, f"{kind}:1")).values()
  assert [without.count(f'"__cudnn$fmhaSoftmax{name}"') for name in ("", "Backward")] == [1, 1]
  assert "__cudnn" not in dropped
  # No product of a norm's gradient is written in float32 for a sum alone.
  assert not re.search(
    r"= f32\[8,127,128\]\S* fusion\(.*layers_0/(mlp|attention)_norm/mul", without
  )
  # Gradients of parameters, sums over all wordpieces, are float32.
  for text in (without, dropped):
    entry = text[text.index("entry_computation_layout") :].partition("->")[2].partition("\n")[0]
    assert "f32[512,128]" in entry and "bf16" not in entry


@pytest.mark.timeout(900)
def test_a_step_multiplies_sequences_of_each_length_alone():
  text = output_of("-c", STEP)
  assert "[128,512]" in text and "[192,512]" not in text


@pytest.mark.timeout(900)
def test_a_plan_for_a_gpu_tells_memory_time_and_kernels():
  flags = "--topology=h100:1", "--batch_size=8", "--gin_file=gin/experiments/tiny.gin"
  *_, estimated, step, generation, verdict = output_of(
    "-m", "realm_jax.main", "plan", *flags
  ).splitlines()
  assert estimated.startswith("estimated at 50% of 989 TFLOP/s and 3350 GB/s")
  assert " s a step: " in step and step.endswith(" kernels") and " in 0 kernels" not in step
  assert " s to embed " in generation and verdict == "fits"
