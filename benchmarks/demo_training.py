"""The demo's model and training step over a made-up corpus, for benchmarks that need a training."""

import dataclasses
import functools
import os
from collections.abc import Iterator

import flax.linen as nn
import jax
import numpy as np

from realm_jax.checkpoints import saved_models
from realm_jax.corpus.passage_store import PassageStore, PassageStoreWriter
from realm_jax.devices import partitioning
from realm_jax.devices.datatypes import MaskedQueries, Tokens
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder_programs import query_encoder
from realm_jax.models.realm import RealmPretrainingModel
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.retrieval.retriever import RetrievalConfig, Retriever
from realm_jax.training import train_state
from realm_jax.training.optimizer import OptimizerConfig, make_optimizer
from realm_jax.training.train_step import make_train_step

BERT = BertConfig(
  vocab_size=4096, hidden_size=128, num_layers=2, num_heads=2, mlp_size=512, max_length=64
)
DUAL_ENCODER = DualEncoderConfig(bert=BERT, pooling="mean")
RETRIEVAL = RetrievalConfig(num_passages=5, passage_length=24, joint_length=40)
BATCH_SIZE, QUERY_LENGTH, MAX_MASKS = 32, 24, 8
_FIRST_WORD = 5  # the ids before are special
_CLS, _SEP, _MASK = 2, 3, 4


@dataclasses.dataclass(frozen=True)
class _Vocabulary:
  """What a passage store asks of a tokenizer."""

  vocab_size: int = BERT.vocab_size
  digest: str = "benchmark"
  cls_id: int = _CLS
  sep_id: int = _SEP


def write_store(directory: str, lengths_N: np.ndarray, *, seed: int = 0) -> PassageStore:
  """Writes passages of random wordpieces; `lengths_N` counts specials and a title of 2."""
  rng = np.random.default_rng(seed)
  os.makedirs(directory)
  writer = PassageStoreWriter(
    directory, tokenizer=_Vocabulary(), max_passage_length=int(lengths_N.max())
  )
  for row, length in enumerate(lengths_N):
    words = rng.integers(_FIRST_WORD, BERT.vocab_size, length - 3)
    writer.append(title="", text="", title_ids=words[:2], body_ids=words[2:], uid=row + 1)
  writer.finish(counts={})
  return PassageStore(directory)


def random_queries(*, num_passages: int, seed: int = 0) -> Iterator[tuple[MaskedQueries, dict]]:
  """Yields batches of queries of few different words, each cut from one of the passages."""
  rng = np.random.default_rng(seed)
  columns = np.arange(QUERY_LENGTH)
  masks = np.arange(MAX_MASKS)
  while True:
    words = rng.integers(_FIRST_WORD, BERT.vocab_size, (BATCH_SIZE, 2))
    ids = np.take_along_axis(words, rng.integers(2, size=(BATCH_SIZE, QUERY_LENGTH)), axis=1)
    lengths = rng.integers(12, QUERY_LENGTH + 1, (BATCH_SIZE, 1))
    num_masks = rng.integers(1, 5, (BATCH_SIZE, 1))
    ids[:, 1:5] = np.where(masks[:4] < num_masks, _MASK, ids[:, 1:5])
    ids[:, 0] = _CLS
    ids = np.where(columns == lengths - 1, _SEP, np.where(columns < lengths, ids, 0))
    weights = masks < num_masks
    yield (
      MaskedQueries(
        query=Tokens(ids.astype(np.int32), columns < lengths, np.zeros(ids.shape, np.int32)),
        mlm_positions_BxM=np.where(weights, 1 + masks, 0).astype(np.int32),
        mlm_targets_BxM=rng.integers(_FIRST_WORD, BERT.vocab_size, weights.shape, np.int32),
        mlm_weights_BxM=weights.astype(np.float32),
        source_uid_B=rng.integers(1, num_passages + 1, BATCH_SIZE),
      ),
      {},
    )


class DemoTraining:
  """State, compiled step and query encoder of the demo's pre-training."""

  def __init__(self):
    model = RealmPretrainingModel(DUAL_ENCODER, BERT)
    optimizer = make_optimizer(
      OptimizerConfig(learning_rate=1e-4, warmup_steps=0, schedule="constant"), num_steps=1000
    )
    self._batch_sharding = partitioning.batch_sharding(partitioning.make_mesh())

    objective = MarginalLikelihood().build(model)
    init_params = functools.partial(saved_models.init_pretraining_model, model)
    self._create = jax.jit(lambda: nn.unbox(train_state.create(init_params, optimizer, seed=0)))
    self.train_step = jax.jit(make_train_step(objective, optimizer, seed=0), donate_argnums=0)
    self._encode_query = query_encoder(DUAL_ENCODER, self.place)

  def new_state(self) -> train_state.TrainState:
    return self._create()

  def place(self, batch):
    """Splits a batch of numpy arrays over the devices."""
    return jax.device_put(batch, self._batch_sharding)

  def retriever(self, *, searcher, store: PassageStore) -> Retriever:
    return Retriever(
      encode_query=self._encode_query, searcher=searcher, store=store, config=RETRIEVAL
    )
