"""WordPiece: one tokenizer for every corpus, task and question.

TensorFlow Text tokenizes, in a `tf.data` graph or outside, and gives byte offsets into the raw text
that are exact for accents, combining marks, CJK and emoji. The `tokenizers` library learns new
vocabularies, and tokenizes where TensorFlow is not worth the seconds of its import
(`TextTokenizer`). TensorFlow is imported with the first text, so jobs that only name a tokenizer
start without it.
"""

import functools
import os
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

import numpy as np

from realm_jax.text import wordpieces
from realm_jax.text.wordpieces import CONFIG_FILE as CONFIG_FILE
from realm_jax.text.wordpieces import SPECIAL_TOKENS as SPECIAL_TOKENS
from realm_jax.text.wordpieces import VOCABULARY_FILE as VOCABULARY_FILE

Kind = TypeVar("Kind")
# A learned vocabulary knows at least this many characters, and this share of their occurrences.
_MIN_ALPHABET, _COVERED = 1000, 0.999
_PADDED_LENGTH_OF_A_CALL = 100_000
_MAX_BYTES_OF_A_WORD = 1_000_000  # `normalization` limits its characters


class WordPieceTokenizer(wordpieces.Tokenizer):
  """BERT's WordPiece over a fixed vocabulary; see `WordPieces`."""

  def __reduce__(self):
    # TensorFlow Text's tokenizer cannot be pickled.
    make = functools.partial(
      WordPieceTokenizer, lower_case=self.lower_case, strip_accents=self.strip_accents
    )
    return make, (self.vocabulary,)

  @functools.cached_property
  def _graph(self) -> Callable:
    """The tokenizer of strings `[n]`, traced once because tracing takes a second."""
    import tensorflow as tf
    import tensorflow_text as tf_text

    from realm_jax.text import normalization

    normalize = normalization.normalizer(
      lower_case=self.lower_case, strip_accents=self.strip_accents
    )
    # Lifted out of any graph being built when the first text arrives.
    with tf.init_scope():
      tokenizer = tf_text.FastWordpieceTokenizer(
        vocab=list(self.vocabulary),
        max_bytes_per_word=_MAX_BYTES_OF_A_WORD,
        token_out_type=tf.int32,
      )

      def tokenize(texts):
        normalized = normalize(texts)
        ids, starts, limits = tokenizer.tokenize_with_offsets(normalized.texts)
        return ids, *normalized.raw_offsets(starts, limits)

      graph = tf.function(tokenize, autograph=False)
      return graph.get_concrete_function(tf.TensorSpec([None], tf.string))

  def tokenize_with_offsets(self, texts):
    """Tokenizes a tensor of strings `[n]`, in a graph or eagerly.

    Returns:
      Three ragged int tensors `[n, (tokens)]`: ids, first bytes and byte limits in the raw text.
    """
    return self._graph(texts)

  def encode_with_offsets(
    self, texts: Sequence[str | bytes]
  ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    import tensorflow as tf

    encoded: list = [None] * len(texts)
    for group in _groups_of_similar_length(texts):
      with tf.device("CPU"):
        ragged = self.tokenize_with_offsets(tf.constant([texts[i] for i in group], tf.string))
      ids, starts, limits = (part.values.numpy() for part in ragged)
      splits = ragged[0].row_splits.numpy().tolist()
      for i, first, end in zip(group, splits, splits[1:], strict=False):
        encoded[i] = ids[first:end], starts[first:end], limits[first:end]
    return encoded


class TextTokenizer(wordpieces.Tokenizer):
  """The same wordpieces with the same offsets, without TensorFlow and its graphs."""

  @functools.cached_property
  def _tokenizer(self):
    import tokenizers
    from tokenizers import models, normalizers, pre_tokenizers

    ids = {piece: i for i, piece in enumerate(self.vocabulary)}
    word_pieces = models.WordPiece(
      ids, unk_token=wordpieces.UNK, max_input_chars_per_word=wordpieces.MAX_WORD_LENGTH
    )
    tokenizer = tokenizers.Tokenizer(word_pieces)
    tokenizer.normalizer = normalizers.BertNormalizer(
      lowercase=self.lower_case, strip_accents=self.strip_accents
    )
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer

  def encode_with_offsets(
    self, texts: Sequence[str | bytes]
  ) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    plain = [text.decode() if isinstance(text, bytes) else text for text in texts]
    return [
      (np.array(encoding.ids, np.int32), *self._byte_offsets(text, encoding.offsets))
      for text, encoding in zip(plain, self._tokenizer.encode_batch(plain), strict=True)
    ]

  def encode_batch(self, texts: Sequence[str | bytes]) -> list[np.ndarray]:
    plain = [text.decode() if isinstance(text, bytes) else text for text in texts]
    encoded = self._tokenizer.encode_batch_fast(plain)
    return [np.array(encoding.ids, np.int32) for encoding in encoded]

  def _byte_offsets(self, text: str, offsets) -> tuple[np.ndarray, np.ndarray]:
    starts, limits = np.array(offsets, np.int64).reshape(-1, 2).T
    if text.isascii():
      return starts, limits
    if self.strip_accents:  # marks belong to the character that has lost them
      stands = [i for i, c in enumerate(text) if unicodedata.category(c) != "Mn"]
      stands = np.array([*stands, len(text)])
      limits = stands[np.searchsorted(stands, limits)]
    byte = np.cumsum([0, *(len(character.encode()) for character in text)])
    return byte[starts], byte[limits]


def _groups_of_similar_length(texts: Sequence[str | bytes]) -> Iterator[list[int]]:
  """Yields the indices of texts to tokenize in one call.

  TensorFlow Text pads all texts of a call to the longest; one long text among thousands of short
  ones would take gigabytes.
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
  """Reads a tokenizer; see `wordpieces.load`.

  Raises:
    FileNotFoundError: If the directory has no `vocab.txt`.
  """
  return _loaded(WordPieceTokenizer, directory)


def load_text_tokenizer(directory: str | os.PathLike) -> TextTokenizer:
  """Reads a tokenizer that needs no TensorFlow; see `wordpieces.load`."""
  return _loaded(TextTokenizer, directory)


def _loaded(kind: Callable[..., Kind], directory: str | os.PathLike) -> Kind:
  loaded = wordpieces.load(directory)
  return kind(loaded.vocabulary, lower_case=loaded.lower_case, strip_accents=loaded.strip_accents)


def word_offsets(text: str) -> list[tuple[int, int]]:
  """Returns the byte offsets `(start, limit)` of BERT's words, each of which is one or more pieces.

  White space, punctuation and ideographs end a word; most symbols do not, so °C is one.
  """
  import tokenizers

  words = tokenizers.PreTokenizedString(text)
  words.normalize(tokenizers.normalizers.BertNormalizer(lowercase=False).normalize)
  tokenizers.pre_tokenizers.BertPreTokenizer().pre_tokenize(words)
  return [offsets for _, offsets, _ in words.get_splits("original", "byte")]


def learn(
  texts: Callable[[], Iterable[str]],
  *,
  vocab_size: int,
  lower_case: bool = True,
  strip_accents: bool | None = None,
) -> WordPieceTokenizer:
  """Learns a WordPiece vocabulary from raw text.

  Args:
    texts: Returns the texts; called three times.
    vocab_size: Maximum number of wordpieces, including special tokens.
    lower_case: Whether the vocabulary is "uncased".
    strip_accents: Whether texts lose combining marks; see `WordPieces`.

  Raises:
    ValueError: If there is no text, or `vocab_size` is smaller than the number of its characters.
  """

  import tokenizers
  from tokenizers import pre_tokenizers

  # The learner would take quadratic time for an overlong word, which stays unknown anyway.
  overlong = tokenizers.Regex(rf"\A.{{{wordpieces.MAX_WORD_LENGTH + 1},}}\z")
  without_overlong = pre_tokenizers.Split(overlong, behavior="removed")

  rules = {"lowercase": lower_case, "strip_accents": strip_accents}
  alphabet = _alphabet(texts(), normalizer=tokenizers.normalizers.BertNormalizer(**rules))

  def train(size: int, fixed: Sequence[str]) -> list[str]:
    learner = tokenizers.BertWordPieceTokenizer(**rules)
    learner.pre_tokenizer = pre_tokenizers.Sequence([learner.pre_tokenizer, without_overlong])
    learner.train_from_iterator(
      texts(),
      vocab_size=size,
      min_frequency=2,
      special_tokens=list(fixed),
      initial_alphabet=alphabet,
      limit_alphabet=len(alphabet),
      show_progress=False,
    )
    return sorted(set(learner.get_vocab()) - set(SPECIAL_TOKENS))

  characters = train(0, SPECIAL_TOKENS)
  if not characters:
    raise ValueError("no text to learn a vocabulary from; give a corpus that contains words")
  smallest = len(SPECIAL_TOKENS) + len(characters)
  if smallest > vocab_size:
    raise ValueError(
      f"vocab_size={vocab_size} is too small; special tokens and characters alone take {smallest}"
    )
  # The learner numbers continuation characters in the order of a hash map and breaks ties between
  # merges by these numbers. Fixing the numbers makes its result deterministic.
  continuations = [piece for piece in characters if piece.startswith("##")]
  learned = train(vocab_size, [*SPECIAL_TOKENS, *continuations])
  return WordPieceTokenizer(
    [*SPECIAL_TOKENS, *learned], lower_case=lower_case, strip_accents=strip_accents
  )


def _alphabet(texts: Iterable[str], *, normalizer) -> list[str]:
  """Returns the most frequent characters of normalised texts, ties by code point.

  The learner itself would choose among equally frequent ones by the order of a hash map.
  """
  counts: Counter[str] = Counter()
  for text in texts:
    counts.update(text)
  normal: Counter[str] = Counter()
  for character, count in counts.items():
    for part in normalizer.normalize_str(character).strip():
      normal[part] += count
  ordered = sorted(normal, key=lambda character: (-normal[character], character))
  covered = np.cumsum([normal[character] for character in ordered])
  needed = int(np.searchsorted(covered, _COVERED * normal.total())) + 1
  return ordered[: max(needed, _MIN_ALPHABET)]
