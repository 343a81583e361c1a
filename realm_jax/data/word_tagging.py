"""Tags words with a wordpiece model: each word gets the tag of its first wordpiece."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from realm_jax.devices.datatypes import Tokens
from realm_jax.text.tokenization import WordPieceTokenizer

_SPECIAL_TOKENS = 2  # [CLS] sentence [SEP]
_BUCKETS = (16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512)  # one compiled program each


@dataclasses.dataclass(frozen=True)
class _Window:
  """Words of one sentence that the model reads together.

  Attributes:
    rows: Positions of the words in the array of all words.
    ids: int32 wordpieces of the words.
    firsts: Position in `ids` of each word's first wordpiece.
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

  Sentences of similar length are read together. A sentence that exceeds the model's input is read
  in parts, and a word that exceeds it is truncated.

  Args:
    predict: `Tokens [B, L] -> tag ids [B, L]`, dispatched to the devices without waiting.
    max_length: Maximum wordpieces of the model's input, including two special tokens.
    tokens_per_batch: Approximate number of padded wordpieces per batch.
    multiple_of: The number of rows B is a multiple of this.
  """
  lengths = [len(words) for words in sentences]
  all_tags = np.zeros(sum(lengths), np.int32)
  windows = list(_windows(sentences, tokenizer, max_length - _SPECIAL_TOKENS))
  pending = None
  for batch, tokens in _batches(windows, tokenizer, max_length, tokens_per_batch, multiple_of):
    # The host prepares the next batch while the devices work on this one.
    predicted = predict(tokens)
    if pending is not None:
      _take(all_tags, *pending)
    pending = batch, predicted
  if pending is not None:
    _take(all_tags, *pending)
  return np.split(all_tags, np.cumsum(lengths)[:-1]) if lengths else []


def _take(all_tags: np.ndarray, batch: Sequence[_Window], predicted) -> None:
  for window, tags in zip(batch, np.asarray(predicted), strict=False):
    all_tags[window.rows] = tags[1 + window.firsts]  # [CLS] comes first


def _windows(sentences, tokenizer, room: int) -> Iterator[_Window]:
  # Each distinct word is tokenized once.
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
  """Yields every window once, shortest first; the last window pads its batch."""
  buckets = np.array([*(b for b in _BUCKETS if b < max_length), max_length])
  lengths = np.array([len(window.ids) + _SPECIAL_TOKENS for window in windows], np.int64)
  order = np.argsort(lengths, kind="stable")
  bucket_of = buckets[np.searchsorted(buckets, lengths)]
  for bucket in np.unique(bucket_of):
    members = order[bucket_of[order] == bucket]
    size = max(multiple_of, tokens_per_batch // bucket // multiple_of * multiple_of)
    for first in range(0, len(members), size):
      batch = [windows[i] for i in members[first : first + size]]
      ids_BxL = np.zeros((size, bucket), np.int32)
      for place, window in enumerate(batch):
        sentence = [tokenizer.cls_id, *window.ids, tokenizer.sep_id]
        ids_BxL[place, : len(sentence)] = sentence
      ids_BxL[len(batch) :] = ids_BxL[len(batch) - 1]
      yield batch, Tokens(ids=ids_BxL, mask=ids_BxL != 0, segments=np.zeros_like(ids_BxL))
