"""The configuration of pre-training, and its model, loss and batch."""

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import jax
import jax.numpy as jnp
from absl import logging
from jax.sharding import Mesh

from realm_jax.checkpoints import saved_models
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.devices import datatypes, partitioning
from realm_jax.foundations import choices
from realm_jax.models.bert import BertConfig
from realm_jax.models.dual_encoder import DualEncoderConfig
from realm_jax.models.encoder import EncoderConfig
from realm_jax.models.realm import RealmPretrainingModel
from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.objectives.objective import LOSS, Minimised, Objective
from realm_jax.retrieval.index_refresher import RefreshConfig
from realm_jax.retrieval.retriever import RetrievalConfig
from realm_jax.training.recipes.examples import MaskedQueryData
from realm_jax.training.run import alarms
from realm_jax.training.run.starts import Start, configured
from realm_jax.training.run.train_program import TrainProgram
from realm_jax.training.run.training_config import RunConfig, TrainingConfig, changed

PARTS = _PART, _READER = "dual_encoder", "knowledge_augmented_encoder"  # of the parameters


@dataclasses.dataclass(frozen=True, kw_only=True)
class ModelConfig(choices.Checked):
  """The two encoders of a pre-training.

  Attributes:
    dual_encoder: The retrieval model.
    knowledge_augmented_encoder: The model that reads query and passage together.
  """

  dual_encoder: EncoderConfig = DualEncoderConfig(bert=BertConfig())
  knowledge_augmented_encoder: BertConfig = BertConfig()

  def make(self) -> RealmPretrainingModel:
    """Returns both encoders as one module."""
    return RealmPretrainingModel(self.dual_encoder, self.knowledge_augmented_encoder)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Pretraining(TrainingConfig):
  """The configuration of a pre-training run, except for its directories.

  Attributes:
    data: The masked queries and how they are batched.
    model: The two encoders.
    retrieval: Number and lengths of the passages read.
    refresh: How new generations of the index are followed.
    objective: What is minimised, on `RetrievedBatch`es.
    generation: Index generation to stay with; None follows the newest.
    spread_index: Whether each of several processes holds only a part of the index, for corpora
      beyond the memory of one host; queries are then gathered and answers merged.
    eval_every: Steps between two evaluations; the last step has one as well.
    eval_steps: Batches of an evaluation.
  """

  run: RunConfig = RunConfig(num_steps=200_000, checkpoint_every=500)
  data: MaskedQueryData = MaskedQueryData()
  model: ModelConfig = ModelConfig()
  retrieval: RetrievalConfig = RetrievalConfig()
  refresh: RefreshConfig = RefreshConfig()
  objective: Objective = MarginalLikelihood()
  generation: choices.CountOrZero | None = None
  spread_index: bool = False
  eval_every: choices.Count = 1000
  eval_steps: choices.Count = 20

  def __post_init__(self):
    super().__post_init__()
    (_, objective), *_ = self.objective.weighted_terms()
    try:
      hash(objective)
    except TypeError as error:
      raise ValueError(
        f"objective={objective!r} cannot be hashed ({error}); make {type(objective).__name__} a "
        "frozen dataclass, with tuples instead of lists"
      ) from None

  def begun(self, starts: Iterable[Start]) -> "Pretraining":
    """Returns the same training of a model as its starts have it."""
    encoders = {part: getattr(self.model, part) for part in PARTS}
    model = dataclasses.replace(self.model, **configured(starts, **encoders))
    return dataclasses.replace(self, model=model)

  def check(self) -> None:
    """Raises ValueError if the objective needs pairs, or no index can be recent enough.

    The latter is explained in `RefreshConfig`.
    """
    if any(isinstance(term, Contrastive) for _, term in self.objective.weighted_terms()):
      raise ValueError(
        "the objective has a Contrastive term, but a pre-training has no pairs; `realm "
        "train_retriever` learns from pairs, and a loop of your own from both"
      )
    if self.generation is None:
      self.refresh.check_reachable(checkpoint_every=self.run.checkpoint_every)

  def warn_of_what_cannot_learn(self, starts: Iterable[Start]) -> None:
    """Warns of starts and settings from which a new run can hardly learn."""
    if not self.dual_encoder_learns:
      return
    started = {here.partition("/")[0] for start in starts for here, _ in start.parts}
    if _PART not in started and self.retrieval.posterior is None and self.run.num_steps:
      logging.warning(
        "the dual encoder starts from random weights, so what it retrieves cannot help the reader; "
        "give --start=CHECKPOINTS of `realm train_retriever`"
      )
    encoder = self.model.dual_encoder
    if encoder.unit_length and encoder.temperature == 1.0:
      logging.warning(
        "temperature=1.0 with embeddings of unit length: scores lie between -1 and 1, so p(z|x) is "
        "almost the same for all passages; give --temperature, such as 0.05"
      )
    if _READER not in started:
      logging.warning(
        "the reader starts from random weights: a reader that cannot read makes the dual encoder "
        "unlearn what it starts with; give --start=CHECKPOINTS of a reader that was trained with "
        "--frozen_parts=dual_encoder first"
      )

  def describe(self, store: PassageStore) -> saved_models.ModelDescription:
    """Returns the description of the model and its training data for checkpoints."""
    return saved_models.ModelDescription(
      dual_encoder=self.model.dual_encoder,
      knowledge_augmented_encoder=self.model.knowledge_augmented_encoder,
      retrieval=self.retrieval.answering,
      query_length=self.data.query_length,
      max_masks=self.data.max_masks,
      passage_length=self.retrieval.passage_length,
      vocabulary_digest=store.metadata.vocabulary_digest,
      corpus_fingerprint=store.fingerprint,
    )

  def init_params(self, key: jax.Array) -> dict:
    """Returns the boxed parameters of both encoders."""
    return saved_models.init_pretraining_model(self.model.make(), key)

  @property
  def minimised(self) -> Minimised:
    """The objective of the model, without the backward pass of a part that does not learn."""
    still = [_READER] if _READER in self.optimizer.frozen_parts else []
    # The index has no scores of what the posterior proposes.
    embeds = self.dual_encoder_learns or self.retrieval.posterior is not None
    if embeds and not self.dual_encoder_learns:
      still.append(_PART)
    minimised = self.objective.build(self.model.make().clone(dual_encoder_learns=embeds))
    if not still:
      return minimised
    return minimised.of_params(
      lambda params: {**params, **{part: jax.lax.stop_gradient(params[part]) for part in still}}
    )

  def evaluation_program(
    self, mesh: Mesh | None = None, *, lengths: datatypes.Lengths = ()
  ) -> Callable[..., dict[str, Any]]:
    """Returns the jitted `(params, RetrievedBatch) -> metrics`, compiled once a process.

    There is no dropout, and a batch is computed in as many parts as a step has; see `program`.
    """
    (_, objective), *_ = self.objective.weighted_terms()
    mesh = partitioning.make_mesh(model=self.mesh.model_parallel) if mesh is None else mesh
    return _evaluation_program(objective, self.model, self.mesh.accumulate_steps, mesh, lengths)

  def program(self, mesh: Mesh | None = None, *, lengths: datatypes.Lengths = ()) -> TrainProgram:
    """Returns the train step and the layout of its state, on a mesh or on all devices.

    Args:
      lengths: Those of the corpus's passages, without which every sequence has full length.

    Raises:
      ValueError: If a term of the objective teaches a dual encoder that never learns.
    """
    return self.make_program(
      self.minimised,
      init_params=self.init_params,
      batch_size=self.data.batch_size,
      mesh=mesh,
      lengths=lengths,
    )

  @property
  def dual_encoder_learns(self) -> bool:
    """Whether the optimizer ever moves the dual encoder."""
    optimizer, parts = self.optimizer, set(self.optimizer.frozen_parts)
    steps = dict(optimizer.frozen_steps)
    frozen = _PART in steps and steps[_PART] >= self.run.num_steps
    stopped = dict(optimizer.learning_rate_factors).get(_PART, 1.0) == 0
    if frozen or stopped or _PART in parts:
      return False
    encoder = self.model.dual_encoder
    names = encoder.parts("query") | encoder.parts("passage") if parts else ()
    return not (names and {f"{_PART}/{name}" for name in names} <= parts)

  @property
  def stops_on_collapse(self) -> bool:
    # A dual encoder that stands still retrieves no worse than at the beginning.
    return super().stops_on_collapse and self.dual_encoder_learns

  @property
  def min_entropy(self) -> float:
    """The entropy of p(z|x) below which an alarm is raised."""
    # With one passage besides the null passage, an entropy of 0 is no alarm.
    return 0.0 if self.retrieval.num_passages == 2 else alarms.MIN_ENTROPY

  def with_steps(self, num_steps: int) -> "Pretraining":
    """Returns the same training with another number of steps."""
    return dataclasses.replace(self, run=dataclasses.replace(self.run, num_steps=num_steps))

  def on_accelerators(self) -> "Pretraining":
    """Returns the same training with the dtype that "auto" stands for there."""
    auto = ("dtype", "auto")
    resolved = changed(self.model, lambda *field: "bfloat16" if field == auto else field[1])
    return dataclasses.replace(self, model=resolved)

  def abstract_batch(self) -> datatypes.RetrievedBatch:
    """Returns the shapes of a batch."""
    retrieval = self.retrieval
    B, K, M = self.data.batch_size, retrieval.num_passages, self.data.max_masks
    return datatypes.RetrievedBatch(
      queries=datatypes.MaskedQueries(
        query=abstract_tokens(B, self.data.query_length),
        mlm_positions_BxM=jax.ShapeDtypeStruct((B, M), jnp.int32),
        mlm_targets_BxM=jax.ShapeDtypeStruct((B, M), jnp.int32),
        mlm_weights_BxM=jax.ShapeDtypeStruct((B, M), jnp.float32),
        source_uid_B=jax.ShapeDtypeStruct((B,), jnp.int32),
      ),
      passage=abstract_tokens(B, K, retrieval.passage_length),
      joint=abstract_tokens(B, K, retrieval.joint_length),
      valid_BxK=jax.ShapeDtypeStruct((B, K), jnp.bool_),
      passage_ids_BxK=jax.ShapeDtypeStruct((B, K), jnp.int32),
      stale_scores_BxK=jax.ShapeDtypeStruct((B, K), jnp.float32),
    )


@functools.lru_cache(maxsize=8)
def _evaluation_program(
  objective: Objective, model: ModelConfig, parts: int, mesh: Mesh, of_corpus: datatypes.Lengths
) -> Callable:
  loss = objective.build(model.make()).of_lengths(of_corpus)

  def evaluate(params: dict, batch: datatypes.RetrievedBatch) -> dict[str, datatypes.Mean]:
    metrics = loss.metrics(params, batch, parts=parts)
    return {"loss" if name == LOSS else name.split("/")[-1]: mean for name, mean in metrics.items()}

  return jax.jit(partitioning.on_mesh(mesh, evaluate))


def abstract_tokens(*shape: int) -> datatypes.Tokens:
  """Returns the shapes of `Tokens`."""
  return datatypes.Tokens(
    ids=jax.ShapeDtypeStruct(shape, jnp.int32),
    mask=jax.ShapeDtypeStruct(shape, jnp.bool_),
    segments=jax.ShapeDtypeStruct(shape, jnp.int32),
  )
