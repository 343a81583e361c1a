"""Trains the dual encoder on pairs of queries and passages, to warm-start REALM."""

from realm_jax.training.recipes.plain_training import ContrastiveTraining
from realm_jax.training.run.starts import Starts


def train_retriever(
  *,
  workdir: str,
  passages: str,
  examples: str | None = None,
  start: Starts = (),
  contrastive: ContrastiveTraining = ContrastiveTraining(),
) -> None:
  """Trains with the softmax over the passages of the whole batch and writes checkpoints.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    passages: Directory of a prepared corpus.
    examples: Directory of pairs from `realm prepare_examples`, which need no TensorFlow; None
      makes pairs while training.
    start: Checkpoints to take parameters from, see docs/checkpoints.md; all others start at random.
    contrastive: The configuration of the training.
  """
  contrastive.train(workdir, passages=passages, prepared=examples, start=start)
