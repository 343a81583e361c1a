"""Trains the dual encoder on pairs of queries and passages, to warm-start REALM."""

from collections.abc import Sequence

from realm_jax.training.plain_training import ContrastiveTraining
from realm_jax.training.training_run import WarmStart


def train_retriever(
  *,
  workdir: str,
  passages: str,
  examples: str | None = None,
  warm_starts: Sequence[WarmStart] = (),
  contrastive: ContrastiveTraining = ContrastiveTraining(),
) -> None:
  """Trains with the softmax over the passages of the whole batch and writes checkpoints.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    passages: Directory of a prepared corpus.
    examples: Directory of pairs from `realm prepare_examples`, which need no TensorFlow; None
      makes pairs while training.
    warm_starts: Checkpoints to take parameters from; all others start from random weights.
    contrastive: The configuration of the training.
  """
  contrastive.train(workdir, passages=passages, prepared=examples, warm_starts=warm_starts)
