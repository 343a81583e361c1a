"""Embedding and pre-training steps against transformers' REALM in PyTorch, in turns, in one run.

Each side of each measurement is a process of its own, with the same settings of malloc and as many
threads as there are cores. A round asks both sides for one repetition in one dtype, so that what
else the machine does falls on both alike. Ratios are of the best repetitions, ours over the better
of theirs.
transformers predicts words at all positions of the joint inputs, we at the masks alone. With real
lengths, it gets the queries sorted by length and pads those of a step to the longest of them; we
get them as they come.

  python benchmarks/against_transformers.py --output=against_transformers.json      # extra `parity`

Beside other work, compare CPU seconds on one core: `taskset -c 0 python ... --clock=cpu`.
"""

import argparse
import os
import subprocess
import sys
import time

import measuring
import numpy as np

VOCAB, QUERIES, PASSAGES, QUERY_LENGTH, PASSAGE_LENGTH, MASKS = 30_522, 4, 8, 64, 288, 8
JOINT_LENGTH, EMBEDDED = QUERY_LENGTH + PASSAGE_LENGTH, 32
# Layers, width and heads of what is embedded; the step is that of the last.
SIZES = {"L6 H384": (6, 384, 12), "L4 H256": (4, 256, 4)}
MALLOC = {
  "MALLOC_ARENA_MAX": "1",
  "MALLOC_MMAP_MAX_": "0",
  "MALLOC_TRIM_THRESHOLD_": "34359738368",
}
REAL = "step, real lengths"
WORK = (*(f"embed {size}" for size in SIZES), "step", "step, half padding", REAL)
# Deciles of the wordpieces of Simple English Wikipedia's passages, estimated, and sentences.
OF_PASSAGES = (4, 39, 53, 71, 92, 122, 161, 229, 288, 288, 288)
OF_QUERIES = (10, 11, 15, 17, 20, 22, 24, 28, 32, 41, 64)
TITLE = 4  # wordpieces that only the passage has
STEPS = 4  # of one repetition with real lengths
CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}
DTYPES = ("float32", "bfloat16")


def draw_ids(lengths: np.ndarray, longest: int) -> np.ndarray:
  """Returns ids `[..., longest]` of rows of so many wordpieces, 0 for padding."""
  ids = np.random.default_rng(0).integers(1000, VOCAB, (*lengths.shape, longest))
  return np.where(np.arange(longest) < lengths[..., None], ids, 0).astype(np.int32)


def steps_of(work: str) -> list[dict[str, np.ndarray]]:
  """Returns ids of queries, passages and joint inputs of each step; the first passage is null."""
  random, rows = np.random.default_rng(0), (QUERIES, PASSAGES)
  steps = []
  for _ in range(STEPS if work == REAL else 1):
    query = np.full(QUERIES, QUERY_LENGTH)
    passage, joint = np.full(rows, PASSAGE_LENGTH), np.full(rows, JOINT_LENGTH)
    if work == REAL:
      query, passage = drawn(random, OF_QUERIES, QUERIES), drawn(random, OF_PASSAGES, rows)
      joint = query[:, None] + np.maximum(passage - TITLE, 1)
    elif "padding" in work:
      passage, joint = (
        random.permutation(np.linspace(shortest, longest, QUERIES * PASSAGES).astype(int))
        for shortest, longest in ((12, PASSAGE_LENGTH), (QUERY_LENGTH, JOINT_LENGTH))
      )
      passage, joint = passage.reshape(rows), joint.reshape(rows)
    passage[:, 0], joint[:, 0] = 3, query + 1
    step = {
      "query": draw_ids(query, QUERY_LENGTH),
      "passage": draw_ids(passage, PASSAGE_LENGTH),
      "joint": draw_ids(joint, JOINT_LENGTH),
    }
    steps.append(step)
  return steps


def drawn(random: np.random.Generator, deciles, shape) -> np.ndarray:
  return np.interp(random.random(shape), np.linspace(0, 1, len(deciles)), deciles).astype(int)


def ours(work: str, dtype: str, layers: int, width: int, heads: int):
  """Returns a function that computes one repetition with realm_jax, and waits for it."""
  import flax.linen as nn
  import jax

  from realm_jax.checkpoints import saved_models
  from realm_jax.devices import datatypes, partitioning
  from realm_jax.models.bert import BertConfig
  from realm_jax.models.dual_encoder import DualEncoderConfig
  from realm_jax.models.encoder import passage_encoder_program
  from realm_jax.models.realm import RealmPretrainingModel
  from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
  from realm_jax.training.run.optimizer import OptimizerConfig, make_optimizer
  from realm_jax.training.run.train_program import TrainProgram

  def tokens(ids: np.ndarray) -> datatypes.Tokens:
    return datatypes.Tokens(ids=ids, mask=ids != 0, segments=np.zeros_like(ids))

  bert = BertConfig(
    vocab_size=VOCAB,
    hidden_size=width,
    num_layers=layers,
    num_heads=heads,
    mlp_size=4 * width,
    dtype=dtype,
  )
  if work.startswith("embed"):
    config = DualEncoderConfig(bert=bert)
    passages = tokens(draw_ids(np.full(EMBEDDED, PASSAGE_LENGTH), PASSAGE_LENGTH))
    init = jax.jit(
      lambda: nn.unbox(saved_models.init_dual_encoder(config.make(), jax.random.key(0)))
    )
    encode = passage_encoder_program(config, partitioning.make_mesh(devices=jax.devices()[:1]))
    params, passages = init(), jax.device_put(passages)
    return lambda: encode(params, passages).block_until_ready()

  steps = steps_of(work)
  of_passage_N = (steps[0]["passage"][:, 1:] != 0).sum(axis=-1)
  lengths = OF_PASSAGES if work == REAL else of_passage_N
  of_corpus = tuple(np.quantile(lengths, np.linspace(0, 1, 65)).astype(int).tolist())
  model = RealmPretrainingModel(DualEncoderConfig(bert=bert), bert)
  program = TrainProgram(
    mesh=partitioning.make_mesh(devices=jax.devices()[:1]),
    init_params=lambda key: saved_models.init_pretraining_model(model, key),
    objective=MarginalLikelihood().build(model).of_lengths(of_corpus),
    optimizer=make_optimizer(OptimizerConfig(), num_steps=1000),
    seed=0,
    accumulate_steps=1,
    layout="replicated",
  )

  def batch_of(of_step: dict[str, np.ndarray]) -> datatypes.RetrievedBatch:
    query, passage, joint = map(tokens, of_step.values())
    return datatypes.RetrievedBatch(
      queries=datatypes.MaskedQueries(
        query=query,
        mlm_positions_BxM=np.tile(np.arange(1, MASKS + 1, dtype=np.int32), (QUERIES, 1)),
        mlm_targets_BxM=np.full((QUERIES, MASKS), 2000, np.int32),
        mlm_weights_BxM=np.ones((QUERIES, MASKS), np.float32),
        source_uid_B=np.zeros(QUERIES, np.int32),
      ),
      passage=passage,
      joint=joint,
      valid_BxK=np.ones((QUERIES, PASSAGES), bool),
      passage_ids_BxK=np.zeros((QUERIES, PASSAGES), np.int32),
      stale_scores_BxK=np.zeros((QUERIES, PASSAGES), np.float32),
    )

  state, batches = program.new_state(), jax.device_put([*map(batch_of, steps)])

  def train():
    nonlocal state
    for batch in batches:
      state, _ = program.train_step(state, batch)
    jax.block_until_ready(state)

  return train


def theirs(work: str, dtype: str, layers: int, width: int, heads: int):
  """Returns a function that computes one repetition with transformers."""
  import tokenizers
  import torch
  import transformers

  torch.set_num_threads(len(os.sched_getaffinity(0)))
  narrow = torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == "bfloat16")
  config = transformers.RealmConfig(
    vocab_size=VOCAB,
    hidden_size=width,
    num_hidden_layers=layers,
    num_attention_heads=heads,
    intermediate_size=4 * width,
    num_candidates=PASSAGES,
  )

  def tensors(ids: np.ndarray) -> dict:
    ids = torch.from_numpy(ids.astype(np.int64))
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}

  if work.startswith("embed"):
    embedder = transformers.RealmEmbedder(config).eval()
    if dtype == "bfloat16":
      embedder = embedder.to(torch.bfloat16)
    passages = tensors(draw_ids(np.full(EMBEDDED, PASSAGE_LENGTH), PASSAGE_LENGTH))

    def embed():
      with torch.inference_mode():
        embedder(**passages)

    return embed

  scorer, encoder = transformers.RealmScorer(config), transformers.RealmKnowledgeAugEncoder(config)
  parameters = [*scorer.parameters(), *encoder.parameters()]
  optimizer = torch.optim.AdamW(parameters, lr=3e-5, fused=True)
  vocabulary = tokenizers.Tokenizer(tokenizers.models.WordLevel({"[PAD]": 0}, unk_token="[PAD]"))
  tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=vocabulary, pad_token="[PAD]")
  collate = transformers.DataCollatorWithPadding(tokenizer)

  def collated(ids: np.ndarray) -> dict:
    """Returns the rows `[..., L]` padded to the longest of them."""
    rows = ids.reshape(-1, ids.shape[-1])
    padded = collate([{"input_ids": row[row != 0].tolist()} for row in rows])
    return {name: value.reshape(*ids.shape[:-1], -1) for name, value in padded.items()}

  arrange, steps = collated if work == REAL else tensors, steps_of(work)
  given = [np.concatenate([step[name] for step in steps]) for name in ("query", "passage", "joint")]
  order = np.argsort((given[-1] != 0).sum(axis=-1).max(axis=-1), kind="stable")
  batches = [[arrange(ids[rows]) for ids in given] for rows in order.reshape(-1, QUERIES)]

  def step(query: dict, passages: dict, joints: dict) -> None:
    length = joints["input_ids"].shape[-1]
    labels = torch.full((QUERIES, length), 2000)
    mask = (torch.arange(length) < MASKS).long().expand(QUERIES, length)
    candidates = {f"candidate_{name}": value for name, value in passages.items()}
    optimizer.zero_grad(set_to_none=True)
    with narrow:
      scores = scorer(**query, **candidates).relevance_score
      loss = encoder(**joints, relevance_score=scores, labels=labels, mlm_mask=mask).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(parameters, 1.0)
    optimizer.step()

  def train():
    for batch in batches:
      step(*batch)

  return train


class Side:
  """A process that computes one repetition whenever it is asked, and says how long it took."""

  def __init__(self, side: str, work: str, dtype: str, clock: str, *, python: str):
    self._process = subprocess.Popen(
      [python, __file__, "--worker", side, work, dtype, clock],
      stdin=subprocess.PIPE,
      stdout=subprocess.PIPE,
      text=True,
      env={**os.environ, **MALLOC, "JAX_PLATFORMS": "cpu", "USE_TF": "0"},
    )

  def seconds(self) -> float:
    assert self._process.stdin and self._process.stdout
    self._process.stdin.write("\n")
    self._process.stdin.flush()
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError(f"{self._process.args} ended with exit code {self._process.wait()}")
    return float(line)

  def end(self) -> None:
    assert self._process.stdin
    self._process.stdin.close()
    self._process.wait()


def worker(side: str, work: str, dtype: str, clock: str) -> None:
  """Answers each line of the standard input with the seconds of one repetition."""
  size = SIZES[work.removeprefix("embed ")] if "embed" in work else SIZES["L4 H256"]
  compute = {"ours": ours, "theirs": theirs}[side](work, dtype, *size)
  compute()  # compiles
  for _ in sys.stdin:
    start = CLOCKS[clock]()
    compute()
    print(CLOCKS[clock]() - start, flush=True)


def main():
  parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
  parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
  parser.add_argument("--work", nargs="+", choices=WORK, default=WORK)
  parser.add_argument("--clock", choices=CLOCKS, default="wall")
  parser.add_argument("--rounds", type=int, default=8)
  parser.add_argument("--their_python", default=sys.executable, help="where transformers is")
  parser.add_argument("--output", help="JSON file to write")
  args = parser.parse_args()
  if args.worker:
    return worker(*args.worker)

  machine = {"cores": len(os.sched_getaffinity(0)), "load": os.getloadavg()[0]}
  result = {**machine, "clock": args.clock, "rounds": args.rounds, "rates": {}}
  print(f"{'per second':20} {'ours f32':>9} {'HF f32':>9} {'ours bf16':>9} {'HF bf16':>9}  ratio")
  for work in args.work:
    pythons = {"ours": sys.executable, "theirs": args.their_python}
    items = EMBEDDED if work.startswith("embed") else QUERIES * len(steps_of(work))
    rates = {}
    for dtype in DTYPES:  # all four at once need more than 23 GB
      sides = {
        name: Side(name, work, dtype, args.clock, python=python) for name, python in pythons.items()
      }
      best = dict.fromkeys(sides, float("inf"))
      for _ in range(args.rounds):
        for name, side in sides.items():
          time.sleep(0.5)  # until the other side's threads no longer spin
          best[name] = min(best[name], side.seconds())
      for name, side in sides.items():
        side.end()
        rates[f"{name} {dtype}"] = items / best[name]
    fastest = {name: max(rates[f"{name} {dtype}"] for dtype in DTYPES) for name in pythons}
    ratio = fastest["ours"] / fastest["theirs"]
    result["rates"][work] = {**rates, "ratio": ratio}
    print(f"{work:20} " + " ".join(f"{rate:9.2f}" for rate in rates.values()) + f"  {ratio:.2f}")
  return measuring.write(args.output, result)


if __name__ == "__main__":
  main()
