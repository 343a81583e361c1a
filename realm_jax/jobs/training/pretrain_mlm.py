"""Trains a masked language model on a corpus, to warm-start both encoders of REALM."""

from realm_jax.training.recipes.plain_training import MaskedLmTraining
from realm_jax.training.run.starts import Starts


def pretrain_mlm(
  *,
  workdir: str,
  passages: str,
  start: Starts = (),
  masked_lm: MaskedLmTraining = MaskedLmTraining(),
) -> None:
  """Trains BERT (Devlin et al. 2019) without next-sentence prediction and writes checkpoints.

  The paper starts from a published BERT. Where there is none for a language or a vocabulary, this
  makes one. A pre-training takes it with `start`.

  Args:
    workdir: Directory of the run; an existing run is resumed.
    passages: Directory of a prepared corpus.
    start: Checkpoints to take parameters from, see docs/checkpoints.md; all others start at random.
    masked_lm: The configuration of the training.
  """
  masked_lm.train(workdir, passages=passages, start=start)
