"""Preprocessors that turn tagged passages into masked queries.

Salient span masking (Guu et al. 2020, section 3.4) draws one span of the passage, takes the
sentence around it as the query, and replaces every wordpiece of the span by `[MASK]`. For the
ablations of section 4.3 the mask can instead be a random span or random wordpieces of a random
sentence. BERT's own masked language modelling masks random wordpieces of whole passages. An example
whose mask cannot be predicted is marked with a reason; `drop_rejected` removes and counts such
examples.
"""

import seqio
import tensorflow as tf

from realm_jax.data.batches import REJECTIONS
from realm_jax.data.vocabulary import WordPieceVocabulary

_ACCEPTED = 0
_NO_SPAN, _NO_WORDPIECE, _MASK_CUT = range(1, len(REJECTIONS) + 1)

_RANDOM_SPAN_MAX_LENGTH = 10
_RANDOM_SPAN_STOP_PROBABILITY = 0.2  # geometric span length of SpanBERT (Joshi et al. 2020)
_RANDOM_TOKEN_SHARE = 0.15  # BERT (Devlin et al. 2019), section 3.1
_RANDOM_TOKEN_MASKED, _RANDOM_TOKEN_REPLACED = 0.8, 0.1
_SENTENCES_PER_CALL = 64


@seqio.map_over_dataset(num_seeds=1)
def draw_salient_span(example, seed):
  """Draws one of the salient spans that lie within a sentence, uniformly, and its sentence.

  Adds `sentence` (string), `mask_start`, `mask_limit` (bytes of the sentence) and `rejection`.
  """
  in_sentence = (
    example["sentence_byte_start"][tf.newaxis, :] <= example["span_byte_start"][:, tf.newaxis]
  ) & (example["span_byte_limit"][:, tf.newaxis] <= example["sentence_byte_limit"][tf.newaxis, :])
  candidates = tf.where(tf.reduce_any(in_sentence, axis=1))[:, 0]
  found = tf.size(candidates) > 0
  drawn = _draw(candidates, seed)
  sentence = tf.where(found, tf.argmax(tf.cast(_row_or_false(in_sentence, drawn), tf.int32)), 0)
  start = _at(example["sentence_byte_start"], sentence)
  return {
    "uid": example["uid"],
    "sentence": _slice(example["text"], start, _at(example["sentence_byte_limit"], sentence)),
    "mask_start": _at(example["span_byte_start"], drawn) - start,
    "mask_limit": _at(example["span_byte_limit"], drawn) - start,
    "rejection": tf.where(found, _ACCEPTED, _NO_SPAN),
  }


@seqio.map_over_dataset(num_seeds=1)
def draw_sentence(example, seed):
  """Draws one sentence uniformly; adds `sentence` and `rejection`."""
  drawn = _draw(tf.range(tf.size(example["sentence_byte_start"], tf.int64)), seed)
  return {
    "uid": example["uid"],
    "sentence": _slice(
      example["text"],
      _at(example["sentence_byte_start"], drawn),
      _at(example["sentence_byte_limit"], drawn),
    ),
    "rejection": _ACCEPTED,
  }


@seqio.map_over_dataset
def whole_passage(example):
  """Takes the whole passage in place of a sentence; adds `sentence` and `rejection`."""
  return {"uid": example["uid"], "sentence": example["text"], "rejection": _ACCEPTED}


def tokenize_sentence(
  dataset: tf.data.Dataset, *, vocabulary: WordPieceVocabulary
) -> tf.data.Dataset:
  """Adds `ids`, and `token_start` and `token_limit` in bytes of the sentence."""

  def tokenize(examples):
    ids, starts, limits = vocabulary.tokenizer.tokenize_with_offsets(examples["sentence"])
    return {
      **examples,
      "ids": ids,
      "token_start": tf.cast(starts, tf.int64),
      "token_limit": tf.cast(limits, tf.int64),
    }

  # A tokenizer call runs hundreds of small operations, whether for one sentence or for many.
  batches = dataset.ragged_batch(_SENTENCES_PER_CALL)
  return batches.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE).unbatch()


def mask_span(dataset: tf.data.Dataset, *, vocabulary: WordPieceVocabulary) -> tf.data.Dataset:
  """Masks the wordpieces that lie entirely in the drawn span; adds `masked` and `masked_ids`."""

  def mask(example):
    names = ("token_start", "token_limit", "mask_start", "mask_limit")
    return _with_mask(example, inside(*(example[name] for name in names)), vocabulary)

  return dataset.map(mask, num_parallel_calls=tf.data.AUTOTUNE)


def mask_random_span(
  dataset: tf.data.Dataset, *, vocabulary: WordPieceVocabulary
) -> tf.data.Dataset:
  """Masks a span of geometric length at a random place (section 4.3, "random span masks")."""

  @seqio.map_over_dataset(num_seeds=1)
  def mask(example, seed):
    total = tf.size(example["ids"])
    uniform = tf.random.stateless_uniform([2], seed)
    length = 1 + tf.cast(
      tf.math.log1p(-uniform[0]) / tf.math.log(1.0 - _RANDOM_SPAN_STOP_PROBABILITY), tf.int32
    )
    length = tf.minimum(tf.minimum(length, _RANDOM_SPAN_MAX_LENGTH), total)
    start = tf.cast(uniform[1] * tf.cast(total - length + 1, tf.float32), tf.int32)
    place = tf.range(total)
    return _with_mask(example, (place >= start) & (place < start + length), vocabulary)

  return mask(dataset)


def mask_random_tokens(
  dataset: tf.data.Dataset, *, vocabulary: WordPieceVocabulary
) -> tf.data.Dataset:
  """Masks 15 % of the wordpieces, at least one: 80 % as `[MASK]`, 10 % random, 10 % kept (BERT)."""

  @seqio.map_over_dataset(num_seeds=2)
  def mask(example, seeds):
    total = tf.size(example["ids"])
    draw = tf.random.stateless_uniform([2, total], seeds[0])
    count = tf.maximum(
      1, tf.cast(tf.round(_RANDOM_TOKEN_SHARE * tf.cast(total, tf.float32)), tf.int32)
    )
    rank = tf.argsort(tf.argsort(draw[0]))
    example = _with_mask(example, rank < count, vocabulary)
    # From 1, because 0 in the middle of a query would be taken for padding.
    random_ids = tf.random.stateless_uniform(
      [total], seeds[1], minval=1, maxval=vocabulary.vocab_size, dtype=tf.int32
    )
    other = tf.where(
      draw[1] < _RANDOM_TOKEN_MASKED + _RANDOM_TOKEN_REPLACED, random_ids, example["ids"]
    )
    example["masked_ids"] = tf.where(
      example["masked"] & (draw[1] >= _RANDOM_TOKEN_MASKED), other, example["masked_ids"]
    )
    return example

  return mask(dataset)


def crop(dataset: tf.data.Dataset, sequence_length) -> tf.data.Dataset:
  """Keeps as many successive wordpieces as a query holds, from a random place."""
  most = sequence_length["query"] - 2

  @seqio.map_over_dataset(num_seeds=1)
  def cropped(example, seed):
    spare = tf.maximum(tf.size(example["ids"]) - most, 0)
    start = tf.random.stateless_uniform([], seed, maxval=spare + 1, dtype=tf.int32)
    return {**example, "ids": example["ids"][start : start + most]}

  return cropped(dataset)


def build_masked_query(
  dataset: tf.data.Dataset, sequence_length, *, vocabulary: WordPieceVocabulary
) -> tf.data.Dataset:
  """Makes the features of a masked query from `ids`, `masked` and `masked_ids`.

  `query` is `[CLS] x [SEP]`, truncated to its length. The first `sequence_length["mlm_targets"]`
  masked wordpieces are predicted, the others stay hidden. An example that would lose a mask to
  truncation is rejected.
  """
  query_length = sequence_length["query"]
  max_masks = sequence_length["mlm_targets"]

  def build(example):
    positions = tf.cast(tf.where(example["masked"])[:, 0], tf.int32)
    any_masked = tf.size(positions) > 0
    last = tf.reduce_max(tf.concat([positions, [-1]], 0))
    rejection = tf.where(any_masked, _ACCEPTED, _NO_WORDPIECE)
    rejection = tf.where(last >= query_length - 2, _MASK_CUT, rejection)
    kept = positions[:max_masks]
    return {
      "query": tf.concat(
        [[vocabulary.bos_id], example["masked_ids"][: query_length - 2], [vocabulary.eos_id]], 0
      ),
      "mlm_positions": kept + 1,  # [CLS] comes first
      "mlm_targets": tf.gather(example["ids"], kept),
      "source_uid": example["uid"],
      "rejection": tf.where(example["rejection"] == _ACCEPTED, rejection, example["rejection"]),
    }

  return dataset.map(build, num_parallel_calls=tf.data.AUTOTUNE)


def drop_rejected(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Drops rejected examples; adds `rejections`, the number dropped so far per reason."""

  def count(counts, example):
    counts += tf.one_hot(example["rejection"] - 1, len(REJECTIONS), dtype=tf.int64)
    return counts, {**example, "rejections": counts}

  def without_reason(example):
    return {name: value for name, value in example.items() if name != "rejection"}

  counted = dataset.scan(tf.zeros([len(REJECTIONS)], tf.int64), count)
  return counted.filter(lambda example: example["rejection"] == _ACCEPTED).map(without_reason)


def inside(token_starts, token_limits, span_starts, span_limits):
  """Returns whether tokens lie entirely in spans.

  Only the last of several wordpieces of one character has a width; an empty one lies in the span
  where it starts.
  """
  return (
    (token_starts >= span_starts) & (token_starts < span_limits) & (token_limits <= span_limits)
  )


def _with_mask(example, masked, vocabulary):
  return {
    **example,
    "masked": masked,
    "masked_ids": tf.where(masked, vocabulary.tokenizer.mask_id, example["ids"]),
  }


def _draw(candidates, seed):
  """Draws one of the candidates; returns 0 if there is none."""
  place = tf.random.stateless_uniform(
    [], seed, maxval=tf.maximum(tf.size(candidates), 1), dtype=tf.int32
  )
  return _at(candidates, place)


def _at(values, place):
  """Returns `values[place]`, or 0 if there are no values."""
  return tf.concat([values, [0]], 0)[
    tf.minimum(tf.cast(place, tf.int64), tf.size(values, tf.int64))
  ]


def _row_or_false(matrix, row):
  """Returns a row of a boolean matrix, or False if it has no rows."""
  padded = tf.pad(matrix, [[0, 1], [0, 1]])
  return padded[tf.minimum(row, tf.shape(matrix, tf.int64)[0])]


def _slice(text, start, limit):
  return tf.strings.substr(text, tf.cast(start, tf.int32), tf.cast(limit - start, tf.int32))
