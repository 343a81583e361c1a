import json

import pytest

from realm_jax.convert import vocabularies
from realm_jax.text.tokenization import SPECIAL_TOKENS

UNCASED, CASED = [*SPECIAL_TOKENS, "a", "##b"], [*SPECIAL_TOKENS, "A", "b"]


def write(directory, *, vocabulary=None, settings=None, tokenizer=None):
  directory.mkdir(parents=True, exist_ok=True)
  if vocabulary is not None:
    (directory / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
  for name, content in (("tokenizer_config", settings), ("tokenizer", tokenizer)):
    if content is not None:
      (directory / f"{name}.json").write_text(json.dumps(content))
  return directory


def whole(vocabulary, **normalizer):
  ids = {piece: i for i, piece in enumerate(vocabulary)}
  return {"model": {"type": "WordPiece", "vocab": ids}, "normalizer": normalizer}


@pytest.mark.parametrize(
  ("files", "asked", "lower_case"),
  [
    ({"vocabulary": UNCASED}, None, True),
    ({"vocabulary": CASED}, None, False),
    ({"vocabulary": UNCASED, "settings": {"do_lower_case": False}}, None, False),
    ({"vocabulary": UNCASED, "settings": {"do_lower_case": True}}, False, False),
    ({"tokenizer": whole(UNCASED, lowercase=False)}, None, False),
    ({"tokenizer": whole(CASED, lowercase=True)}, None, True),
    (
      {"vocabulary": UNCASED, "settings": {"do_lower_case": True, "strip_accents": None}},
      None,
      True,
    ),
  ],
)
def test_casing(files, asked, lower_case, tmp_path):
  tokenizer = vocabularies.read(write(tmp_path, **files), lower_case=asked)
  assert tokenizer.lower_case is lower_case
  assert list(tokenizer.vocabulary) in (UNCASED, CASED)


@pytest.mark.parametrize(
  ("files", "message"),
  [
    ({"tokenizer": {"model": {"type": "BPE", "vocab": {}}}}, "is BPE, not WordPiece"),
    ({"tokenizer": {"model": {"type": "WordPiece", "vocab": {"a": 1}}}}, "have gaps"),
    (
      {"vocabulary": UNCASED, "settings": {"tokenize_chinese_chars": False}},
      "tokenize_chinese_chars=False is not supported",
    ),
    (
      {"tokenizer": whole(UNCASED, lowercase=True, clean_text=False)},
      "clean_text=False is not supported",
    ),
  ],
)
def test_tokenizers_of_another_kind_are_refused(files, message, tmp_path):
  with pytest.raises(ValueError, match=message):
    vocabularies.read(write(tmp_path, **files))


def test_accents_may_be_kept_without_their_case(tmp_path):
  settings = {"do_lower_case": True, "strip_accents": False}
  tokenizer = vocabularies.read(write(tmp_path, vocabulary=UNCASED, settings=settings))
  assert tokenizer.lower_case and not tokenizer.strip_accents
  whole_file = whole(UNCASED, lowercase=True, strip_accents=False)
  tokenizer = vocabularies.read(write(tmp_path / "whole", tokenizer=whole_file))
  assert tokenizer.lower_case and not tokenizer.strip_accents
