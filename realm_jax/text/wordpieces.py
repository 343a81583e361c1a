"""A vocabulary of wordpieces: ids, digest, and text from ids, without TensorFlow.

A vocabulary on disk is a Hugging Face directory with `vocab.txt` and `tokenizer_config.json`.
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Sequence

import numpy as np
import regex

from realm_jax.foundations import atomic_files, object_store, text_files
from realm_jax.foundations.output_kinds import DirectoryKind
from realm_jax.text.languages import IDEOGRAPHIC

PAD, UNK, CLS, SEP, MASK = "[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"
SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
VOCABULARY_FILE = "vocab.txt"
# BERT makes each Chinese character a word.
_SPACE_AT_CHINESE = regex.compile(
  rf"(?<=\p{{Han}}) (?=[{IDEOGRAPHIC}])|(?<=[{IDEOGRAPHIC}]) (?=\p{{Han}})"
)
MAX_WORD_LENGTH = 100  # characters; BERT maps longer words to [UNK]
CONFIG_FILE = "tokenizer_config.json"
# Other results may be in folders below it; a model's vocabulary is in a directory with its weights.
_FILES = (VOCABULARY_FILE, CONFIG_FILE)
VOCABULARY = DirectoryKind(name="a vocabulary", files=(*_FILES, "*/"), marks=_FILES)


class WordPieces:
  """A fixed vocabulary.

  Args:
    vocabulary: Wordpieces in the order of their ids; `[PAD]` must be 0.
    lower_case: Whether text is first lower-cased (BERT "uncased").
    strip_accents: Whether text is first stripped of accents and other combining marks; None does so
      if it is lower-cased, as BERT does.

  Raises:
    ValueError: If a special token is missing, `[PAD]` is not 0 or a wordpiece occurs twice; or if
      a setting is neither true nor false.
  """

  def __init__(
    self,
    vocabulary: Sequence[str],
    *,
    lower_case: bool = True,
    strip_accents: bool | None = None,
  ):
    for name, value in (("lower_case", lower_case), ("strip_accents", strip_accents)):
      if not (isinstance(value, bool) or value is None):
        raise ValueError(f"{name} is {value!r:.60}; it is true or false")
    self.vocabulary = tuple(vocabulary)
    self.lower_case = lower_case
    self.strip_accents = lower_case if strip_accents is None else strip_accents
    for name in ("lower_case", "strip_accents"):
      if (value := getattr(self, name)) not in (True, False):
        raise ValueError(f"{name}={value!r}; give true or false")
    missing = [token for token in SPECIAL_TOKENS if token not in self.vocabulary]
    if missing:
      raise ValueError(
        f"the vocabulary of {len(self.vocabulary)} wordpieces lacks {', '.join(missing)}"
      )
    if self.vocabulary[0] != PAD:
      raise ValueError(f"wordpiece 0 is {self.vocabulary[0]!r}; it must be {PAD}")
    ids = {token: i for i, token in enumerate(self.vocabulary)}
    if len(ids) != len(self.vocabulary):
      again = next(token for i, token in enumerate(self.vocabulary) if ids[token] != i)
      first = self.vocabulary.index(again)
      raise ValueError(
        f"wordpiece {again!r} occurs twice, as {first} and {ids[again]}; each needs one id"
      )
    self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[t] for t in (UNK, CLS, SEP, MASK))

  @property
  def vocab_size(self) -> int:
    return len(self.vocabulary)

  @functools.cached_property
  def digest(self) -> str:
    """Digest of vocabulary and normalisation; equal digests mean equal ids for every text."""
    rules = [f"lower_case={self.lower_case}"]
    if self.strip_accents != self.lower_case:
      rules.append(f"strip_accents={self.strip_accents}")
    content = "\n".join((*rules, *self.vocabulary))
    return hashlib.sha256(content.encode()).hexdigest()[:16]

  def decode(self, ids: Iterable[int]) -> str:
    """Joins wordpieces into words; does not restore case or the spacing of punctuation."""
    words: list[str] = []
    for token in (self.vocabulary[int(i)] for i in ids):
      if token.startswith("##") and words:
        words[-1] += token[2:]
      elif token != PAD:
        words.append(token)
    return _SPACE_AT_CHINESE.sub("", " ".join(words))

  def save(self, directory: str | os.PathLike) -> None:
    """Writes `vocab.txt` and `tokenizer_config.json`."""
    config = {"do_lower_case": self.lower_case, "tokenizer_class": "BertTokenizer"}
    if self.strip_accents != self.lower_case:
      config["strip_accents"] = self.strip_accents
    atomic_files.write_text(os.path.join(directory, CONFIG_FILE), json.dumps(config, indent=2))
    content = "".join(token + "\n" for token in self.vocabulary)
    atomic_files.write_text(os.path.join(directory, VOCABULARY_FILE), content)


class Tokenizer(WordPieces):
  """A vocabulary that can tokenize text."""

  def encode_with_offsets(
    self, texts: Sequence[str | bytes]
  ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns the int32 ids, start bytes and limit bytes of each text."""
    raise NotImplementedError

  def encode_batch(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    """Returns the int32 ids of each text."""
    return [ids for ids, _, _ in self.encode_with_offsets(texts)]

  def encode(self, text: str | bytes) -> np.ndarray:
    """Returns the int32 ids of one text; a literal `[MASK]` becomes the mask token."""
    if isinstance(text, bytes):
      text = text.decode()
    parts = self.encode_batch(text.split(MASK))
    mask = np.array([self.mask_id], np.int32)
    pieces = [piece for part in parts for piece in (mask, part)]
    return np.concatenate(pieces[1:])


def load(directory: str | os.PathLike) -> WordPieces:
  """Reads `vocab.txt` and, if it exists, `tokenizer_config.json`, which declares how to normalise.

  Raises:
    FileNotFoundError: If the directory has no `vocab.txt`.
    ValueError: If a file is damaged, or the vocabulary is not BERT's.
  """
  path = object_store.absolute(directory) / VOCABULARY_FILE
  if not path.exists():
    raise FileNotFoundError(f"no vocabulary at {path}; prepare_corpus learns one with --vocab_size")
  config_path = path.parent / CONFIG_FILE
  config = text_files.read_json(config_path) if config_path.exists() else {}
  vocabulary = read_vocabulary(path)
  try:
    return WordPieces(
      vocabulary,
      lower_case=config.get("do_lower_case", True),
      strip_accents=config.get("strip_accents"),
    )
  except ValueError as error:
    raise ValueError(f"{path}: {error}") from error


def read_vocabulary(path: str | os.PathLike) -> list[str]:
  """Returns the wordpieces of a `vocab.txt`; empty lines at its end are none."""
  # Not splitlines: a wordpiece may contain a character that Python treats as a line boundary.
  lines = text_files.read_lines(path)
  while lines and not lines[-1]:
    lines.pop()
  return lines
