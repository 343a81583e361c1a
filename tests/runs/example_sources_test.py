import pytest

from realm_jax.runs.example_sources import PairData


@pytest.mark.parametrize(
  ("field", "value", "message"),
  [
    ("pairs", "none", "pairs='none'; choose one of inverse_cloze, recurring_spans"),
    ("removal_rate", 1.5, r"removal_rate=1.5; it must lie in \[0, 1\]"),
  ],
)
def test_settings_that_make_no_pairs_are_refused(field, value, message):
  with pytest.raises(ValueError, match=message):
    PairData(**{field: value})
