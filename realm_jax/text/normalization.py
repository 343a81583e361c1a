"""BERT's normalisation of text in a TensorFlow graph, with offsets into the raw bytes.

Control characters are removed, white space becomes a space, and for an "uncased" vocabulary letters
lose accents and case (Devlin et al. 2018); where marks carry meaning, they lose only their case.
Each character is normalised by the `tokenizers` library, so that wordpieces match those of every
model trained with it. TensorFlow Text's own normalisation would also fold compatibility characters
and case ("km²" to "km2", "ß" to "ss").
"""

import functools
import unicodedata
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf
import tokenizers

from realm_jax.text.wordpieces import MAX_WORD_LENGTH

# Text in which only the case can change: ASCII without control characters or overlong words.
_PLAIN = r"([0-9A-Za-z]{0,100}[\t\n\r -/:-@\[-`{-~])*[0-9A-Za-z]{0,100}"
# No vocabulary has this character, because normalisation removes it: a word with it is unknown.
_NOT_IN_A_VOCABULARY = 0xFFFD
_NUM_CHARACTERS = 0x110000
# Other characters are ideographs, which are kept, or in private planes, which are removed.
_NORMALIZED = (range(0x20000), range(0x2F800, 0x2FA20), range(0xE0000, 0xE0200))
_IDEOGRAPHS = (  # each is a word of its own in BERT
  (0x3400, 0x4DBF),
  (0x4E00, 0x9FFF),
  (0xF900, 0xFAFF),
  (0x20000, 0x2A6DF),
  (0x2A700, 0x2CEAF),
  (0x2F800, 0x2FA1F),
)
_ASCII_SYMBOLS = "$+<=>^`|~"
_PRIVATE = (range(0xF0000, 0xFFFFE), range(0x100000, 0x10FFFE))


class Normalized(NamedTuple):
  """Normalised texts and their offsets into the raw texts.

  Attributes:
    texts: Strings `[n]`.
    first_byte: int64 `[n]`, first entry of each text in `starts` and `limits`; -1 for texts whose
      offsets have not changed.
    starts: int64, for each byte of the changed texts, the first raw byte of its character.
    limits: int64, for each byte of the changed texts, the raw byte after its character and after
      the marks that the character lost.
  """

  texts: tf.Tensor
  first_byte: tf.Tensor
  starts: tf.Tensor
  limits: tf.Tensor

  def raw_offsets(
    self, starts: tf.RaggedTensor, limits: tf.RaggedTensor
  ) -> tuple[tf.RaggedTensor, tf.RaggedTensor]:
    """Returns the raw offsets of wordpieces, given their offsets in the normalised texts."""
    first = tf.gather(self.first_byte, starts.value_rowids())

    def raw(table, offsets, shift):
      known = tf.cast(offsets.flat_values, tf.int64)
      found = tf.gather(table, tf.where(first < 0, tf.zeros_like(known), first + known - shift))
      values = tf.where(first < 0, known, found)
      return offsets.with_flat_values(tf.cast(values, offsets.dtype))

    return raw(self.starts, starts, 0), raw(self.limits, limits, 1)


@functools.cache
def normalizer(*, lower_case: bool, strip_accents: bool) -> Callable[[tf.Tensor], Normalized]:
  """Returns a function that normalises strings `[n]`; bytes that are not UTF-8 become U+FFFD.

  Args:
    lower_case: Whether letters lose their case.
    strip_accents: Whether letters lose their accents and other combining marks.
  """
  with tf.init_scope():
    normalize = _Normalizer(lower_case=lower_case, strip_accents=strip_accents)
    graph = tf.function(lambda texts: normalize(texts), autograph=False)
    return graph.get_concrete_function(tf.TensorSpec([None], tf.string))


class _Normalizer:
  """Adds the operations that normalise strings to a graph."""

  def __init__(self, *, lower_case: bool, strip_accents: bool):
    self._lower_case = lower_case
    table = (tf.constant(column) for column in _table(lower_case, strip_accents))
    self._characters, self._splits, self._is_mark, self._is_break = table

  def __call__(self, texts: tf.Tensor) -> Normalized:
    is_plain = tf.strings.regex_full_match(texts, _PLAIN)
    plain = tf.strings.lower(texts) if self._lower_case else texts
    rows = tf.where(~is_plain)[:, 0]
    changed, first_byte, starts, limits = self._changed(tf.gather(texts, rows))
    nowhere = tf.fill(tf.shape(texts), tf.constant(-1, tf.int64))
    # One additional entry, because nothing can be gathered from an empty array.
    end = tf.zeros([1], tf.int64)
    return Normalized(
      texts=tf.tensor_scatter_nd_update(plain, rows[:, None], changed),
      first_byte=tf.tensor_scatter_nd_update(nowhere, rows[:, None], first_byte),
      starts=tf.concat([starts, end], axis=0),
      limits=tf.concat([limits, end], axis=0),
    )

  def _changed(self, texts):
    """Normalises texts character by character."""
    raw, offsets = tf.strings.unicode_decode_with_offsets(texts, "UTF-8")
    sizes = tf.cast(tf.strings.length(texts), tf.int64)
    text_of_raw = raw.value_rowids()
    bases = tf.cumsum(sizes, exclusive=True)
    # Offsets into the concatenated bytes of all texts.
    starts = offsets.flat_values + tf.gather(bases, text_of_raw)
    limits = self._limits(raw, starts, tf.reduce_sum(sizes))

    first = tf.gather(self._splits, raw.flat_values)
    counts = tf.gather(self._splits, raw.flat_values + 1) - first
    normal = tf.gather(self._characters, tf.ragged.range(first, first + counts).flat_values)
    of_normal = tf.repeat(tf.range(tf.size(counts)), counts)
    ends = tf.concat([[0], tf.cumsum(counts)], axis=0)
    splits = tf.gather(ends, raw.row_splits)
    normal = self._without_overlong_words(normal, splits)
    strings = tf.strings.unicode_encode(
      tf.RaggedTensor.from_row_splits(normal, tf.cast(splits, tf.int64), validate=False), "UTF-8"
    )
    # If one character becomes several, only the last has a width.
    is_last = tf.equal(tf.range(tf.size(normal)) + 1, tf.gather(ends, of_normal + 1))
    num_bytes = 1 + sum(tf.cast(normal >= border, tf.int32) for border in (0x80, 0x800, 0x10000))
    base = tf.gather(tf.gather(bases, text_of_raw), of_normal)
    start = tf.gather(starts, of_normal) - base
    limit = tf.where(is_last, tf.gather(limits, of_normal) - base, start)
    lengths = tf.cast(tf.strings.length(strings), tf.int64)
    return (
      strings,
      tf.cumsum(lengths, exclusive=True),
      tf.repeat(start, num_bytes),
      tf.repeat(limit, num_bytes),
    )

  def _without_overlong_words(self, normal, splits):
    """Makes words unknown that have more characters (in TensorFlow: bytes) than BERT allows."""
    is_break = tf.gather(self._is_break, normal)
    begins = tf.scatter_nd(splits[:-1, None], tf.ones_like(splits[:-1]), tf.shape(normal) + 1)
    word = tf.cumsum(tf.cast(is_break | (begins[:-1] > 0), tf.int32))
    num_words = tf.reduce_max(tf.concat([word, [0]], axis=0)) + 1
    lengths = tf.math.unsorted_segment_sum(tf.cast(~is_break, tf.int32), word, num_words)
    is_overlong = ~is_break & (tf.gather(lengths, word) > MAX_WORD_LENGTH)
    return tf.where(is_overlong, _NOT_IN_A_VOCABULARY, normal)

  def _limits(self, raw, starts, total):
    """Returns where each character ends: at the next non-mark, or at the end of its text."""
    begins = tf.scatter_nd(
      raw.row_starts()[raw.row_lengths() > 0][:, None],
      tf.ones(tf.reduce_sum(tf.cast(raw.row_lengths() > 0, tf.int32)), tf.int32),
      [tf.size(raw.flat_values, tf.int64)],
    )
    stands = ~tf.gather(self._is_mark, raw.flat_values) | (begins > 0)
    standing = tf.concat([tf.boolean_mask(starts, stands), [total]], axis=0)
    return tf.gather(standing, tf.cumsum(tf.cast(stands, tf.int32)))


def _table(lower_case: bool, strip_accents: bool) -> tuple[np.ndarray, ...]:
  """Returns the normalisation of every character.

  Returns:
    Flat code points and their row splits; whether a character is a mark that is removed; whether it
    ends a word.
  """
  normalize = tokenizers.normalizers.BertNormalizer(
    lowercase=lower_case, strip_accents=strip_accents, handle_chinese_chars=False
  ).normalize_str
  counts = np.ones(_NUM_CHARACTERS, np.int32)
  is_mark, is_break = (np.zeros(_NUM_CHARACTERS, bool) for _ in range(2))
  others = {}
  for characters in _NORMALIZED:
    for code in characters:
      if 0xD800 <= code < 0xE000:
        continue
      character = chr(code)
      normal, category = normalize(character), unicodedata.category(character)
      is_break[code] = category[0] == "P" or character == " " or character in _ASCII_SYMBOLS
      if normal != character:
        others[code] = [ord(c) for c in normal]
        counts[code] = len(normal)
        is_mark[code] = not normal and category == "Mn"
  for first, last in _IDEOGRAPHS:
    is_break[first : last + 1] = True
  for characters in _PRIVATE:
    counts[characters.start : characters.stop] = 0
  splits = np.concatenate([[0], np.cumsum(counts, dtype=np.int32)]).astype(np.int32)
  flat = np.repeat(np.arange(_NUM_CHARACTERS, dtype=np.int32), counts)
  for code, normal in others.items():
    flat[splits[code] : splits[code + 1]] = normal
  return flat, splits, is_mark, is_break
