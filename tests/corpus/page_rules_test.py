import pytest

from realm_jax.corpus.parts import is_list_or_disambiguation


@pytest.mark.parametrize(
  ("title", "text", "expected"),
  [
    ("List of rivers", "Rhine", True),
    ("Index of law articles", "A", True),
    ("Outline of France", "France", True),
    ("Mercury (disambiguation)", "Mercury", True),
    ("Mercury", "Mercury may refer to:\nMercury, a planet.", True),
    ("Hope", "Hope can also mean:\nHope, a town", True),
    ("AC", "AC can mean several things:\n", True),
    ("List of", "A poem.", False),
    ("list of rivers", "The rules heed capitals.", False),
    ("The List of Seven", "A novel.", False),
    ("Schindler's List of names", "A list.", False),
    ("Outliers", "A book.", False),
    ("Power", "Power is energy per time. It may refer to:", False),  # begins as an article does
    ("Silence", "Silence can also mean no communication.\nMore:", False),
    ("Will", "The will may mean a lot to heirs.\nIt may refer to:", False),
    ("", "", False),
  ],
)
def test_pages_that_only_list_others_are_told_by_rule(title, text, expected):
  assert is_list_or_disambiguation(title, text) is expected
