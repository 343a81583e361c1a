import dataclasses

from realm_jax.jobs.training import pretrain
from realm_jax.runs.pretraining import Pretraining


def test_a_softmax_that_tells_no_passages_apart_is_warned_of(caplog):
  given = Pretraining()
  encoder = given.model.dual_encoder
  for temperature, lines in ((0.05, 0), (1.0, 1)):
    unit_length = dataclasses.replace(
      encoder,
      projection_size=encoder.bert.hidden_size,
      output="unit_length",
      temperature=temperature,
    )
    model = dataclasses.replace(given.model, dual_encoder=unit_length)
    pretrain._warn_of_what_cannot_learn(dataclasses.replace(given, model=model), [])
    assert caplog.text.count("temperature=1.0 with embeddings of unit length") == lines
