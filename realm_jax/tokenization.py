"""WordPiece: one tokenizer for every corpus, task and question.

TensorFlow Text does the work, in a `tf.data` graph and outside of it alike, and gives byte offsets
into the raw text that survive accents, combining marks, CJK and emoji. The `tokenizers` library
learns new vocabularies. A vocabulary on disk is a Hugging Face directory: `vocab.txt` and
`tokenizer_config.json`.
"""

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text as tf_text
import tokenizers

from realm_jax import atomic_files, normalization
from realm_jax.datatypes import CLS, MASK, PAD, SEP, UNK

SPECIAL_TOKENS = (PAD, UNK, CLS, SEP, MASK)
VOCABULARY_FILE = "vocab.txt"
CONFIG_FILE = "tokenizer_config.json"
_PADDED_LENGTH_OF_A_CALL = 100_000
_MAX_BYTES_OF_A_WORD = 1_000_000  # `normalization` limits its characters


class WordPieceTokenizer:
  """BERT's WordPiece over a fixed vocabulary.

  Args:
    vocabulary: wordpieces in the order of their ids; `[PAD]` must be 0.
    lower_case: whether text is lower-cased and stripped of accents first (BERT "uncased").

  Raises:
    ValueError: if a special token is missing, `[PAD]` is not 0 or a wordpiece occurs twice.
  """

  def __init__(self, vocabulary: Sequence[str], *, lower_case: bool = True):
    self.vocabulary = tuple(vocabulary)
    self.lower_case = lower_case
    missing = [token for token in SPECIAL_TOKENS if token not in self.vocabulary]
    if missing:
      raise ValueError(
        f"vocabulary of {len(self.vocabulary)} wordpieces lacks {', '.join(missing)}"
      )
    if self.vocabulary[0] != PAD:
      raise ValueError(f"wordpiece 0 is {self.vocabulary[0]!r}; it must be {PAD}")
    ids = {token: i for i, token in enumerate(self.vocabulary)}
    if len(ids) != len(self.vocabulary):
      raise ValueError(f"vocabulary holds {len(self.vocabulary) - len(ids)} wordpieces twice")
    self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[t] for t in (UNK, CLS, SEP, MASK))

  def __reduce__(self):
    # TensorFlow Text's object cannot be sent to another process.
    make = functools.partial(WordPieceTokenizer, lower_case=self.lower_case)
    return make, (self.vocabulary,)

  @functools.cached_property
  def _tokenizer(self) -> tf_text.FastBertTokenizer:
    # Kept outside any graph that happens to be under construction when the first text arrives.
    with tf.init_scope():
      return tf_text.FastBertTokenizer(
        vocab=list(self.vocabulary),
        max_bytes_per_word=_MAX_BYTES_OF_A_WORD,
        token_out_type=tf.int32,
        lower_case_nfd_strip_accents=False,  # `normalization` does that
      )

  @functools.cached_property
  def _normalizer(self) -> normalization.Normalizer:
    return normalization.Normalizer(lower_case=self.lower_case)

  @functools.cached_property
  def _graph(self) -> Callable:
    # One graph for texts of any number: op by op, a call takes tens of milliseconds.
    return tf.function(
      self.tokenize_with_offsets, input_signature=[tf.TensorSpec([None], tf.string)]
    )

  @property
  def vocab_size(self) -> int:
    return len(self.vocabulary)

  @functools.cached_property
  def digest(self) -> str:
    """Names the vocabulary and its casing; equal digests mean equal ids for every text."""
    content = "\n".join((f"lower_case={self.lower_case}", *self.vocabulary))
    return hashlib.sha256(content.encode()).hexdigest()[:16]

  def tokenize_with_offsets(self, texts):
    """Tokenizes a tensor of strings `[n]` in or out of a graph.

    Returns:
      Three ragged int tensors `[n, (tokens)]`: ids, first bytes and byte limits in the raw text.
    """
    normalized = self._normalizer(texts)
    ids, starts, limits = self._tokenizer.tokenize_with_offsets(normalized.texts)
    return ids, *normalized.raw_offsets(starts, limits)

  def encode_with_offsets(
    self, texts: Sequence[str | bytes]
  ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Returns int32 ids, first bytes and byte limits of each text."""
    encoded: list = [None] * len(texts)
    for group in _groups_of_similar_length(texts):
      with tf.device("CPU"):
        ragged = self._graph(tf.constant([texts[i] for i in group], tf.string))
      borders = ragged[0].row_splits.numpy()[1:-1]
      parts = (np.split(part.values.numpy(), borders) for part in ragged)
      for i, arrays in zip(group, zip(*parts, strict=True), strict=True):
        encoded[i] = arrays
    return encoded

  def encode_batch(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    """Returns the int32 ids of each text."""
    return [ids for ids, _, _ in self.encode_with_offsets(texts)]

  def encode(self, text: str | bytes) -> np.ndarray:
    """Returns the int32 ids of one text, in which a literal `[MASK]` stands for itself."""
    if isinstance(text, bytes):
      text = text.decode()
    parts = self.encode_batch(text.split(MASK))
    mask = np.array([self.mask_id], np.int32)
    pieces = [piece for part in parts for piece in (mask, part)]
    return np.concatenate(pieces[1:])

  def decode(self, ids: Iterable[int]) -> str:
    """Joins wordpieces to words; lower-casing and the spacing of punctuation are not undone."""
    words: list[str] = []
    for token in (self.vocabulary[int(i)] for i in ids):
      if token.startswith("##") and words:
        words[-1] += token[2:]
      elif token != PAD:
        words.append(token)
    return " ".join(words)

  def save(self, directory: str | os.PathLike) -> None:
    """Writes `vocab.txt` and `tokenizer_config.json`."""
    os.makedirs(directory, exist_ok=True)
    config = {"do_lower_case": self.lower_case, "tokenizer_class": "BertTokenizer"}
    atomic_files.write_text(os.path.join(directory, CONFIG_FILE), json.dumps(config, indent=2))
    content = "".join(token + "\n" for token in self.vocabulary)
    atomic_files.write_text(os.path.join(directory, VOCABULARY_FILE), content)


def _groups_of_similar_length(texts: Sequence[str | bytes]) -> Iterator[list[int]]:
  """Yields which texts to tokenize in one call.

  TensorFlow Text pads all of a call to the longest; one long text among thousands of short ones
  would take gigabytes.
  """
  group: list[int] = []
  for i in sorted(range(len(texts)), key=lambda i: len(texts[i])):
    if group and (len(group) + 1) * len(texts[i]) > _PADDED_LENGTH_OF_A_CALL:
      yield group
      group = []
    group.append(i)
  if group:
    yield group


def load(directory: str | os.PathLike) -> WordPieceTokenizer:
  """Reads a directory that holds `vocab.txt`, and `tokenizer_config.json` where casing matters.

  Raises:
    FileNotFoundError: if the directory holds no `vocab.txt`.
  """
  path = os.path.join(directory, VOCABULARY_FILE)
  if not os.path.exists(path):
    raise FileNotFoundError(f"no vocabulary at {path}; make one with `realm learn_vocabulary`")
  with open(path, encoding="utf-8") as file:
    # Not splitlines: a wordpiece may hold a character that Python takes for the end of a line.
    vocabulary = file.read().removesuffix("\n").split("\n")
  config_path = os.path.join(directory, CONFIG_FILE)
  lower_case = True
  if os.path.exists(config_path):
    with open(config_path, encoding="utf-8") as file:
      lower_case = json.load(file).get("do_lower_case", True)
  return WordPieceTokenizer(vocabulary, lower_case=lower_case)


def learn(
  texts: Callable[[], Iterable[str]],
  *,
  vocab_size: int,
  lower_case: bool = True,
  min_frequency: int = 2,
) -> WordPieceTokenizer:
  """Learns a WordPiece vocabulary from raw text.

  Args:
    texts: gives the texts, any number of them; called twice.
    vocab_size: wordpieces at most, special tokens counted.
    lower_case: whether the vocabulary is "uncased".
    min_frequency: how often a merge must occur to become a wordpiece.

  Raises:
    ValueError: if there is no text, or `vocab_size` does not even hold its characters.
  """

  def train(size: int, fixed: Sequence[str]) -> list[str]:
    learner = tokenizers.BertWordPieceTokenizer(lowercase=lower_case)
    learner.train_from_iterator(
      texts(),
      vocab_size=size,
      min_frequency=min_frequency,
      special_tokens=list(fixed),
      show_progress=False,
    )
    return sorted(set(learner.get_vocab()) - set(SPECIAL_TOKENS))

  characters = train(0, SPECIAL_TOKENS)
  if not characters:
    raise ValueError("no text to learn a vocabulary from; give a corpus that holds words")
  smallest = len(SPECIAL_TOKENS) + len(characters)
  if smallest > vocab_size:
    raise ValueError(
      f"vocab_size={vocab_size} is too small; special tokens and characters alone take {smallest}"
    )
  # The learner numbers the characters inside of words in the order of a hash map, and of equally
  # frequent merges takes the one with the lower numbers: numbered beforehand, the same text always
  # gives the same wordpieces.
  continuations = [piece for piece in characters if piece.startswith("##")]
  wordpieces = train(vocab_size, [*SPECIAL_TOKENS, *continuations])
  return WordPieceTokenizer([*SPECIAL_TOKENS, *wordpieces], lower_case=lower_case)
