import dataclasses

from realm_jax.jobs.answering.serve import SecondModel
from realm_jax.saved.opening import Sources

FIRST = Sources(checkpoints="c", passages="p", index="i", step=9, generation=9)


def test_a_second_model_takes_from_the_first_what_it_is_not_given():
  assert SecondModel().sources(FIRST) == ()
  (earlier,) = SecondModel(second_step=0, second_generation=0).sources(FIRST)
  assert earlier == dataclasses.replace(FIRST, step=0, generation=0)
  (other,) = SecondModel(second_checkpoints="d", second_index="j").sources(FIRST)
  assert other == Sources(checkpoints="d", passages="p", index="j")
