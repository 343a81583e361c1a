"""A pre-training whose retriever goes on learning from pairs."""

import pytest

from realm_jax.objectives.contrastive import Contrastive
from realm_jax.objectives.marginal_likelihood import MarginalLikelihood
from realm_jax.runs.paired import Paired

pytestmark = pytest.mark.timeout(600)
BOTH = MarginalLikelihood() + Contrastive()


def test_a_resumed_run_rehearses_what_one_never_stopped_does(start, losses, rows, mined_pairs):
  rehearsal = {"source": Paired(**mined_pairs), "objective": BOTH}
  start("rehearsed", num_steps=5, checkpoint_every=100, **rehearsal)
  for num_steps in (2, 5):
    start("rehearsed_halves", num_steps=num_steps, checkpoint_every=2, **rehearsal)
  whole = losses("rehearsed")
  assert len(whole) == 5 and losses("rehearsed_halves") == whole
  of_pairs, halves = (
    [row["contrastive/total"] for row in rows(n)] for n in ("rehearsed", "rehearsed_halves")
  )
  assert len(set(of_pairs)) == 5 and halves == of_pairs
  start("unrehearsed", num_steps=1)
  assert whole[1] == pytest.approx(losses("unrehearsed")[1] + of_pairs[0], rel=1e-5)


def test_other_pairs_are_another_training(start, mined_pairs):
  start("changed", num_steps=1, source=Paired(**mined_pairs), objective=BOTH)
  with pytest.raises(ValueError, match="pairs.hard_negatives"):
    start("changed", num_steps=2, source=Paired(**mined_pairs, hard_negatives=0), objective=BOTH)


def test_pairs_and_a_term_that_learns_from_them_need_each_other(start, mined_pairs):
  with pytest.raises(ValueError, match="Contrastive term, but no pairs"):
    start("refused", num_steps=1, objective=BOTH)
  with pytest.raises(ValueError, match="without a Contrastive term"):
    start("refused", num_steps=1, source=Paired(**mined_pairs))
