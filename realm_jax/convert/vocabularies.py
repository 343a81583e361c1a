"""Reads the vocabulary of imported weights, and its casing."""

import json
import os
import pathlib

from realm_jax.text import tokenization
from realm_jax.text.wordpieces import CLS, MASK, PAD, SEP, UNK

_TOKENIZER_FILE = "tokenizer.json"
_SPECIAL = {PAD, UNK, CLS, SEP, MASK}


def read(
  directory: str | os.PathLike, *, lower_case: bool | None = None
) -> tokenization.WordPieceTokenizer | None:
  """Returns the tokenizer of a directory, or None if there is no vocabulary.

  Args:
    directory: Contains `vocab.txt`, possibly in `assets/`, or Hugging Face's `tokenizer.json`.
    lower_case: Overrides the casing that the directory declares. If it declares none, a vocabulary
      without capital letters is assumed to be "uncased".

  Raises:
    ValueError: If the tokenizer is not BERT's WordPiece.
  """
  settings = _read_json(os.path.join(directory, tokenization.CONFIG_FILE))
  whole = _read_json(os.path.join(directory, _TOKENIZER_FILE))
  normalizer = whole.get("normalizer") or {}
  vocabulary = None
  for folder in ("", "assets"):
    path = os.path.join(directory, folder, tokenization.VOCABULARY_FILE)
    if os.path.exists(path):
      vocabulary = tokenization.load(os.path.dirname(path)).vocabulary
      break
  else:
    if whole:
      vocabulary = _vocabulary(whole, directory)
  if vocabulary is None:
    if foreign := sorted(pathlib.Path(directory).glob("*.model")):
      raise ValueError(
        f"{foreign[0]}: SentencePiece is not supported; multilingual encoders with the WordPiece "
        "vocabulary of multilingual BERT are"
      )
    return None
  for name, value in (
    ("tokenize_chinese_chars", settings.get("tokenize_chinese_chars")),
    ("handle_chinese_chars", normalizer.get("handle_chinese_chars")),
    ("clean_text", normalizer.get("clean_text")),
  ):
    if value is False:
      raise ValueError(f"{os.fspath(directory)}: a tokenizer with {name}=False is not supported")
  for declared in (settings.get("do_lower_case"), normalizer.get("lowercase")):
    lower_case = declared if lower_case is None else lower_case
  if lower_case is None:
    lower_case = not any(piece != piece.lower() for piece in vocabulary if piece not in _SPECIAL)
  strip_accents = settings.get("strip_accents", normalizer.get("strip_accents"))
  return tokenization.WordPieceTokenizer(
    vocabulary, lower_case=lower_case, strip_accents=strip_accents
  )


def _vocabulary(tokenizer: dict, directory) -> list[str]:
  model = tokenizer.get("model", {})
  if model.get("type", "WordPiece") != "WordPiece" or not isinstance(model.get("vocab"), dict):
    raise ValueError(f"{os.fspath(directory)}: the tokenizer is {model.get('type')}, not WordPiece")
  ids = model["vocab"]
  if sorted(ids.values()) != list(range(len(ids))):
    raise ValueError(f"{os.fspath(directory)}: the ids of the vocabulary have gaps")
  return sorted(ids, key=ids.get)


def _read_json(path: str) -> dict:
  return json.loads(pathlib.Path(path).read_text("utf-8")) if os.path.exists(path) else {}
