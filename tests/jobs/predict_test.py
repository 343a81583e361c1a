"""What would have no effect is refused before anything is opened."""

import pytest

from realm_jax.jobs.answering.predict import predict
from realm_jax.saved.opening import Sources

FILES = {"questions": "q.jsonl", "output": "o"}


@pytest.mark.parametrize(
  ("keywords", "message"),
  [
    (
      {**FILES, "num_passages": 9},
      "--num_passages would do nothing for --output_format=jsonl; omit it",
    ),
    (
      {**FILES, "num_answers": 3, "output_format": "dpr"},
      "--num_answers would do nothing for --output_format=dpr; omit it",
    ),
  ],
)
def test_a_flag_without_effect_is_refused(keywords, message):
  with pytest.raises(ValueError, match=message):
    predict(sources=Sources(), **keywords)
