"""Reads the tokenizer of imported weights: its vocabulary and casing; all else must be BERT's."""

import os
import pathlib
from collections.abc import Iterator, Mapping

from realm_jax.checkpoints.formats.huggingface_files import read_optional_json
from realm_jax.text import tokenization, wordpieces
from realm_jax.text.wordpieces import CLS, MASK, PAD, SEP, UNK

_CONFIG_FILE, _TOKENIZER_FILE = tokenization.CONFIG_FILE, "tokenizer.json"
_ADDED_FILE = "added_tokens.json"
_SPECIAL = {PAD, UNK, CLS, SEP, MASK}
# What tokenizes as BERT does without a `tokenizer.json` that tells it.
_CLASSES = ("Bert", "Electra", "Realm", "DPRQuestionEncoder", "DPRContextEncoder", "DistilBert")
# By part of `tokenizer.json`, "" for `tokenizer_config.json`: the values that BERT has.
_BERT = {
  "": {
    "tokenize_chinese_chars": True,
    "clean_text": True,
    "do_basic_tokenize": True,
    "never_split": [],
    "word_tokenizer_type": "basic",
    "subword_tokenizer_type": "wordpiece",
    "wordpieces_prefix": "##",
    "truncation_side": "right",
    "padding_side": "right",
    **{f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")},
  },
  "normalizer": {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
  "pre_tokenizer": {"type": "BertPreTokenizer"},
  "model": {
    "unk_token": UNK,
    "continuing_subword_prefix": "##",
    "max_input_chars_per_word": wordpieces.MAX_WORD_LENGTH,
  },
}


def read(
  directory: str | os.PathLike, *, lower_case: bool | None = None
) -> tokenization.WordPieceTokenizer | None:
  """Returns the tokenizer of a directory, or None if there is no vocabulary.

  Args:
    directory: Contains `vocab.txt`, possibly in `assets/`, or Hugging Face's `tokenizer.json`.
    lower_case: Overrides the casing that the directory declares. If it declares none, a vocabulary
      without capital letters is assumed to be "uncased".

  Raises:
    ValueError: If the tokenizer is not BERT's WordPiece, its files contradict each other, or one of
      them is damaged.
  """
  settings = read_optional_json(directory, _CONFIG_FILE)
  whole = read_optional_json(directory, _TOKENIZER_FILE)
  found = {}
  for name in (wordpieces.VOCABULARY_FILE, f"assets/{wordpieces.VOCABULARY_FILE}"):
    if os.path.exists(path := os.path.join(directory, name)):
      found[name] = wordpieces.read_vocabulary(path)
      break
  if whole:
    found[_TOKENIZER_FILE] = _vocabulary(whole, directory)
  if not found:
    for pattern, kind in (("*.model", "SentencePiece"), ("merges.txt", "byte-level BPE")):
      if foreign := sorted(pathlib.Path(directory).glob(pattern)):
        raise ValueError(
          f"{foreign[0]}: {kind} is not supported; encoders with a WordPiece vocabulary are, such "
          "as multilingual BERT's"
        )
    return None
  file, vocabulary = next(iter(found.items()))
  if (other := found.get(_TOKENIZER_FILE, vocabulary)) != vocabulary:
    pairs = zip([*vocabulary, None], [*other, None], strict=False)
    i, pair = next((i, pair) for i, pair in enumerate(pairs) if pair[0] != pair[1])
    raise ValueError(
      f"{os.fspath(directory)}: wordpiece {i} is {pair[0]!r} in {file} and {pair[1]!r} in "
      f"{_TOKENIZER_FILE}; remove the file that is not the model's"
    )
  for part, name, value in _foreign(directory, settings, whole):
    where = f"{_TOKENIZER_FILE}, {part}:" if part else f"{_CONFIG_FILE}:"
    raise ValueError(
      f"{os.fspath(directory)}: {where} a tokenizer with {name}={value!r} is not supported, only "
      "what BERT's has"
    )
  normalizer = whole.get("normalizer") or {}
  declared = [settings.get("do_lower_case"), normalizer.get("lowercase")]
  if lower_case is None and None not in declared and declared[0] != declared[1]:
    raise ValueError(
      f"{os.fspath(directory)}: do_lower_case={declared[0]} in {_CONFIG_FILE}, but "
      f"lowercase={declared[1]} in {_TOKENIZER_FILE}; correct one, or import with "
      "--lower_case=true or false"
    )
  for value in declared:
    lower_case = value if lower_case is None else lower_case
  if lower_case is None:
    lower_case = not any(piece != piece.lower() for piece in vocabulary if piece not in _SPECIAL)
  try:
    return tokenization.WordPieceTokenizer(
      vocabulary,
      lower_case=lower_case,
      strip_accents=settings.get("strip_accents", normalizer.get("strip_accents")),
    )
  except ValueError as error:
    raise ValueError(f"{os.path.join(directory, file)}: {error}") from error


def _foreign(directory, settings: dict, whole: dict) -> Iterator[tuple[str, str, object]]:
  """Yields what is not as in BERT: the part of `tokenizer.json`, the setting and its value."""
  for part, expected in _BERT.items():
    values = whole.get(part, {}) if part else settings
    values = {"type": None} if values is None else values  # a null part computes nothing
    for name, only in expected.items():
      value = _text(values.get(name, only))
      if value != only and not (value is None and name != "type"):
        yield part, name, value
  kind = settings.get("tokenizer_class") or ""
  if not whole and kind and kind.removesuffix("Fast").removesuffix("Tokenizer") not in _CLASSES:
    yield "", "tokenizer_class", kind
  frame = whole.get("post_processor") or {}
  single = [[*piece.values()][0]["id"] for piece in frame.get("single", ())]
  if frame.get("type", "BertProcessing") not in ("BertProcessing", "TemplateProcessing"):
    yield "post_processor", "type", frame["type"]
  elif single and single != [CLS, "A", SEP]:
    yield "post_processor", "single", single
  added = [token["content"] for token in whole.get("added_tokens", ())]
  added += map(_text, settings.get("added_tokens_decoder", {}).values())
  added += map(_text, settings.get("additional_special_tokens") or ())
  if foreign := sorted({*added, *read_optional_json(directory, _ADDED_FILE)} - _SPECIAL):
    yield "", "added_tokens", foreign


def _text(value):
  """Returns a setting; a token may be an object with its text."""
  return value.get("content", value) if isinstance(value, Mapping) else value


def _vocabulary(tokenizer: dict, directory) -> list[str]:
  model = tokenizer.get("model", {})
  if model.get("type", "WordPiece") != "WordPiece" or not isinstance(model.get("vocab"), dict):
    raise ValueError(f"{os.fspath(directory)}: the tokenizer is {model.get('type')}, not WordPiece")
  ids = model["vocab"]
  if sorted(ids.values()) != list(range(len(ids))):
    raise ValueError(f"{os.fspath(directory)}: the ids of the vocabulary have gaps")
  return sorted(ids, key=ids.get)
