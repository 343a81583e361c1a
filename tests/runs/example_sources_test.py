import pytest

from realm_jax.runs.example_sources import MaskedQueryData, PairData


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


def test_masked_queries_prepared_before_there_were_neighbours_have_the_settings_of_none():
  kept, shuffled = MaskedQueryData(neighbours=4).settings(), MaskedQueryData().settings()
  assert "neighbours" not in shuffled
  assert kept == {**shuffled, "neighbours": 4}
