"""Tags words with a model that reads wordpieces: a word's tag is that of its first wordpiece."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from realm_jax.datatypes import Tokens
from realm_jax.tokenization import WordPieceTokenizer

_SPECIAL_TOKENS = 2  # [CLS] sentence [SEP]
_BUCKETS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # one compiled program each


@dataclasses.dataclass(frozen=True)
class _Window:
  """Words of one sentence that are read together.

  Attributes:
    rows: their places in the array of all words.
    ids: int32 wordpieces of all of them.
    firsts: where the first wordpiece of each lies in `ids`.
  """

  rows: np.ndarray
  ids: np.ndarray
  firsts: np.ndarray


def tag_words(
  sentences: Sequence[Sequence[str]],
  *,
  tokenizer: WordPieceTokenizer,
  predict: Callable[[Tokens], np.ndarray],
  max_length: int,
  tokens_per_batch: int,
  multiple_of: int = 1,
) -> list[np.ndarray]:
  """Returns the tag ids of the words of each sentence; 0 for a word without any wordpiece.

  Sentences of similar length are read together. One that is longer than the model's input is read
  in parts, a word that is longer by its beginning.

  Args:
    sentences: words of each.
    tokenizer: splits a word into wordpieces.
    predict: `Tokens [R, L] -> tag ids [R, L]`, on the devices and not awaited.
    max_length: wordpieces that the model reads at once, the two special ones included.
    tokens_per_batch: padded wordpieces of a batch, about.
    multiple_of: what the number of rows R must be divisible by.
  """
  lengths = [len(words) for words in sentences]
  tags_N = np.zeros(sum(lengths), np.int32)
  windows = list(_windows(sentences, tokenizer, max_length - _SPECIAL_TOKENS))
  pending = None
  for batch, tokens in _batches(windows, tokenizer, max_length, tokens_per_batch, multiple_of):
    # The host makes the next batch while the devices work on this one.
    predicted = predict(tokens)
    if pending is not None:
      _take(tags_N, *pending)
    pending = batch, predicted
  if pending is not None:
    _take(tags_N, *pending)
  return np.split(tags_N, np.cumsum(lengths)[:-1]) if lengths else []


def _take(tags_N: np.ndarray, batch: Sequence[_Window], predicted) -> None:
  tags_RxL = np.asarray(predicted)
  for window, tags_L in zip(batch, tags_RxL, strict=False):
    tags_N[window.rows] = tags_L[1 + window.firsts]  # [CLS] comes first


def _windows(sentences, tokenizer, room: int) -> Iterator[_Window]:
  # A word is asked of the tokenizer once, however often it occurs.
  words = sorted({word for sentence in sentences for word in sentence})
  pieces = dict(zip(words, tokenizer.encode_batch(words), strict=True))
  row = 0
  for sentence in sentences:
    rows, ids, used = [], [], 0
    for word in sentence:
      word_ids = pieces[word][:room]
      if used + len(word_ids) > room:
        yield _window(rows, ids)
        rows, ids, used = [], [], 0
      if len(word_ids):
        rows.append(row)
        ids.append(word_ids)
        used += len(word_ids)
      row += 1
    if rows:
      yield _window(rows, ids)


def _window(rows, ids) -> _Window:
  limits = np.cumsum([len(word_ids) for word_ids in ids])
  return _Window(np.array(rows), np.concatenate(ids), np.concatenate([[0], limits[:-1]]))


def _batches(
  windows, tokenizer, max_length: int, tokens_per_batch: int, multiple_of: int
) -> Iterator[tuple[list[_Window], Tokens]]:
  """Yields every window once, shortest first; rows past the last one repeat it."""
  buckets = np.array([*(b for b in _BUCKETS if b < max_length), max_length])
  lengths = np.array([len(window.ids) + _SPECIAL_TOKENS for window in windows], np.int64)
  order = np.argsort(lengths, kind="stable")
  bucket_of = buckets[np.searchsorted(buckets, lengths)]
  for bucket in np.unique(bucket_of):
    members = order[bucket_of[order] == bucket]
    size = max(multiple_of, tokens_per_batch // bucket // multiple_of * multiple_of)
    for first in range(0, len(members), size):
      batch = [windows[i] for i in members[first : first + size]]
      ids_RxL = np.zeros((size, bucket), np.int32)
      for place, window in enumerate(batch):
        sentence = [tokenizer.cls_id, *window.ids, tokenizer.sep_id]
        ids_RxL[place, : len(sentence)] = sentence
      ids_RxL[len(batch) :] = ids_RxL[len(batch) - 1]
      yield batch, Tokens(ids=ids_RxL, mask=ids_RxL != 0, segments=np.zeros_like(ids_RxL))
