"""Preprocessors that turn tagged passages into masked queries or pseudo-queries, many at once.

Salient span masking (Guu et al. 2020, section 3.4) draws one span of the passage, takes the
sentence around it as the query, and replaces every wordpiece of the span by `[MASK]`. For the
ablations of section 4.3 the mask can instead be a random span or random wordpieces of a random
sentence. BERT's own masked language modelling masks random wordpieces of whole passages. An example
whose mask cannot be predicted is marked with a reason; `drop_rejected` removes and counts such
examples. The inverse cloze task (Lee et al. 2019, section 4.2) makes a pseudo-query of a sentence,
which should find its passage.

From `parse_passages` to `drop_rejected` an element of the dataset is a batch of passages, because
an operation costs about the same for one passage as for many. Arrays of wordpieces are padded with
id 0.
"""

import seqio
import tensorflow as tf

from realm_jax.corpus import tagged_examples
from realm_jax.corpus.passage_store import BODY_SHARE, SPECIAL_TOKENS_PER_PASSAGE
from realm_jax.data.batches import REJECTIONS
from realm_jax.text.tokenization import WordPieceTokenizer

_ACCEPTED = 0
_NO_SPAN, _NO_WORDPIECE, _MASK_CUT = range(1, len(REJECTIONS) + 1)

_RANDOM_SPAN_MAX_LENGTH = 10
_RANDOM_SPAN_STOP_PROBABILITY = 0.2  # geometric span length of SpanBERT (Joshi et al. 2020)
_RANDOM_TOKEN_SHARE = 0.15  # BERT (Devlin et al. 2019), section 3.1
_RANDOM_TOKEN_MASKED, _RANDOM_TOKEN_REPLACED = 0.8, 0.1
_REMOVAL_RATE = 0.9  # the rest teaches that matching words count (Lee et al. 2019)
_PASSAGES_AT_ONCE = 64  # of one operation


def _map_with_seeds(num_seeds: int):
  """Maps a function of a batch and a list of so many seeds over a dataset.

  SeqIO's seeds depend on the seed of the task and change from batch to batch, so in each epoch, but
  all streams have the same ones. These also depend on the batch's first passage.
  """

  def decorate(fn):
    @seqio.map_over_dataset(num_seeds=num_seeds)
    def mapped(batch, **seeds):
      pairs = tf.reshape(tf.stack([*seeds.values()]), [num_seeds, 2])
      passage = tf.cast(batch["uid"][0], pairs.dtype)
      return fn(batch, tf.unstack(tf.bitwise.bitwise_xor(pairs, passage)))

    return mapped

  return decorate


def parse_passages(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Parses serialized tagged examples in batches."""
  description = tagged_examples.feature_description()
  return dataset.batch(_PASSAGES_AT_ONCE).map(
    lambda records: tf.io.parse_example(records, description), num_parallel_calls=tf.data.AUTOTUNE
  )


@_map_with_seeds(1)
def draw_salient_span(passages, seeds):
  """Draws one of the salient spans that lie within a sentence, uniformly, and its sentence.

  Adds `sentence` (string), `mask_start`, `mask_limit` (bytes of the sentence) and `rejection`.
  """
  starts_BxX, limits_BxX = _sentence_bounds(passages)
  span_starts_BxS = _padded(passages["span_byte_start"], 0)
  span_limits_BxS = _padded(passages["span_byte_limit"], tf.int64.max)  # in no sentence
  inside_BxSxX = (starts_BxX[:, tf.newaxis] <= span_starts_BxS[..., tf.newaxis]) & (
    span_limits_BxS[..., tf.newaxis] <= limits_BxX[:, tf.newaxis]
  )
  candidates_BxS = tf.reduce_any(inside_BxSxX, axis=2)
  drawn_B = _draw(candidates_BxS, seeds[0])
  sentence_B = tf.argmax(tf.cast(_at(inside_BxSxX, drawn_B), tf.int32), axis=1)
  start_B = _at(starts_BxX, sentence_B)
  return {
    "uid": passages["uid"],
    "sentence": _slice(passages["text"], start_B, _at(limits_BxX, sentence_B)),
    "mask_start": _at(span_starts_BxS, drawn_B) - start_B,
    "mask_limit": _at(span_limits_BxS, drawn_B) - start_B,
    "rejection": tf.where(tf.reduce_any(candidates_BxS, axis=1), _ACCEPTED, _NO_SPAN),
  }


@_map_with_seeds(1)
def draw_sentence(passages, seeds):
  """Draws one sentence uniformly; adds `sentence` and `rejection`."""
  starts_BxX, limits_BxX = _sentence_bounds(passages)
  drawn_B = _draw(limits_BxX >= 0, seeds[0])
  sentences = _slice(passages["text"], _at(starts_BxX, drawn_B), _at(limits_BxX, drawn_B))
  return _unmasked(passages, sentences)


@seqio.map_over_dataset
def whole_passage(passages):
  """Takes the whole passage in place of a sentence; adds `sentence` and `rejection`."""
  return _unmasked(passages, passages["text"])


def tokenize_sentence(
  dataset: tf.data.Dataset, *, tokenizer: WordPieceTokenizer
) -> tf.data.Dataset:
  """Adds `ids`, and `token_start` and `token_limit` in bytes of the sentence."""

  def tokenize(batch):
    ids, starts, limits = tokenizer.tokenize_with_offsets(batch["sentence"])
    return {
      **batch,
      "ids": ids.to_tensor(),
      "token_start": tf.cast(starts.to_tensor(), tf.int64),
      "token_limit": tf.cast(limits.to_tensor(), tf.int64),
    }

  return dataset.map(tokenize, num_parallel_calls=tf.data.AUTOTUNE)


def mask_span(dataset: tf.data.Dataset, *, tokenizer: WordPieceTokenizer) -> tf.data.Dataset:
  """Masks the wordpieces that lie entirely in the drawn span; adds `masked` and `masked_ids`."""

  def mask(batch):
    masked_BxL = _inside(
      batch["token_start"],
      batch["token_limit"],
      batch["mask_start"][:, tf.newaxis],
      batch["mask_limit"][:, tf.newaxis],
    )
    return _with_mask(batch, masked_BxL, tokenizer)

  return dataset.map(mask, num_parallel_calls=tf.data.AUTOTUNE)


def mask_random_span(dataset: tf.data.Dataset, *, tokenizer: WordPieceTokenizer) -> tf.data.Dataset:
  """Masks a span of geometric length at a random place (section 4.3, "random span masks")."""

  @_map_with_seeds(1)
  def mask(batch, seeds):
    total_B = _lengths(batch["ids"])
    uniform_2xB = tf.random.stateless_uniform([2, tf.size(total_B)], seeds[0])
    length_B = 1 + tf.cast(
      tf.math.log1p(-uniform_2xB[0]) / tf.math.log(1.0 - _RANDOM_SPAN_STOP_PROBABILITY), tf.int32
    )
    length_B = tf.minimum(tf.minimum(length_B, _RANDOM_SPAN_MAX_LENGTH), total_B)
    room_B = tf.cast(total_B - length_B + 1, tf.float32)
    start_B = tf.cast(uniform_2xB[1] * room_B, tf.int32)
    place_L = tf.range(tf.shape(batch["ids"])[1])
    limit_B = start_B + length_B
    masked_BxL = (place_L >= start_B[:, tf.newaxis]) & (place_L < limit_B[:, tf.newaxis])
    return _with_mask(batch, masked_BxL, tokenizer)

  return mask(dataset)


def mask_random_tokens(
  dataset: tf.data.Dataset, *, tokenizer: WordPieceTokenizer
) -> tf.data.Dataset:
  """Masks 15 % of the wordpieces, at least one: 80 % as `[MASK]`, 10 % random, 10 % kept (BERT)."""

  @_map_with_seeds(3)
  def mask(batch, seeds):
    ids_BxL = batch["ids"]
    shape = tf.shape(ids_BxL)
    order_BxL, fate_BxL = (tf.random.stateless_uniform(shape, seed) for seed in seeds[:2])
    total_B = tf.cast(_lengths(ids_BxL), tf.float32)
    count_B = tf.maximum(1, tf.cast(tf.round(_RANDOM_TOKEN_SHARE * total_B), tf.int32))
    order_BxL = tf.where(ids_BxL > 0, order_BxL, 1.0)
    rank_BxL = tf.argsort(tf.argsort(order_BxL))
    batch = _with_mask(batch, rank_BxL < count_B[:, tf.newaxis], tokenizer)
    # From 1, because 0 in the middle of a query would be taken for padding.
    random_BxL = tf.random.stateless_uniform(
      shape, seeds[2], minval=1, maxval=tokenizer.vocab_size, dtype=tf.int32
    )
    is_random_BxL = fate_BxL < _RANDOM_TOKEN_MASKED + _RANDOM_TOKEN_REPLACED
    batch["masked_ids"] = tf.where(
      batch["masked"] & (fate_BxL >= _RANDOM_TOKEN_MASKED),
      tf.where(is_random_BxL, random_BxL, ids_BxL),
      batch["masked_ids"],
    )
    return batch

  return mask(dataset)


def crop(dataset: tf.data.Dataset, sequence_length) -> tf.data.Dataset:
  """Keeps as many successive wordpieces as a query holds, from a random place."""
  most = sequence_length["query"] - 2

  @_map_with_seeds(1)
  def cropped(batch, seeds):
    spare_B = tf.maximum(_lengths(batch["ids"]) - most, 0)
    uniform_B = tf.random.stateless_uniform(tf.shape(spare_B), seeds[0])
    start_B = tf.cast(uniform_B * tf.cast(spare_B + 1, tf.float32), tf.int32)
    padded_BxL = tf.pad(batch["ids"], [[0, 0], [0, most]])
    kept_BxL = start_B[:, tf.newaxis] + tf.range(most)
    return {**batch, "ids": tf.gather(padded_BxL, kept_BxL, batch_dims=1)}

  return cropped(dataset)


def build_masked_query(
  dataset: tf.data.Dataset, sequence_length, *, tokenizer: WordPieceTokenizer
) -> tf.data.Dataset:
  """Makes the features of masked queries from `ids`, `masked` and `masked_ids`.

  `query` is `[CLS] x [SEP]`, truncated to its length. The first `sequence_length["mlm_targets"]`
  masked wordpieces are predicted, the others stay hidden. Features are padded to their lengths. An
  example that would lose a mask to truncation is rejected.
  """
  query_length = sequence_length["query"]
  max_masks = sequence_length["mlm_targets"]

  def build(batch):
    ids_BxL, masked_BxL = batch["ids"], batch["masked"]
    position_BxL = tf.zeros_like(ids_BxL) + tf.range(1, tf.shape(ids_BxL)[1] + 1)  # after [CLS]
    last_B = tf.reduce_max(tf.where(masked_BxL, position_BxL, 0), axis=1)
    rejection_B = tf.where(last_B > 0, _ACCEPTED, _NO_WORDPIECE)
    rejection_B = tf.where(last_B >= query_length - 1, _MASK_CUT, rejection_B)
    # [CLS] is in the place before the first wordpiece, [SEP] in the one after the last.
    sep_Bx1 = tf.minimum(_lengths(ids_BxL) + 1, query_length - 1)[:, tf.newaxis]
    place_L = tf.range(query_length)
    query_BxL = tf.pad(batch["masked_ids"], [[0, 0], [1, query_length]])[:, :query_length]
    query_BxL = tf.where(place_L < sep_Bx1, query_BxL, 0)
    query_BxL = tf.where(place_L == sep_Bx1, tokenizer.sep_id, query_BxL)
    positions_BxM, targets_BxM = (
      tf.ragged.boolean_mask(values_BxL, masked_BxL).to_tensor(shape=[None, max_masks])
      for values_BxL in (position_BxL, ids_BxL)
    )
    return {
      "query": tf.where(place_L == 0, tokenizer.cls_id, query_BxL),
      "mlm_positions": positions_BxM,
      "mlm_targets": targets_BxM,
      "mlm_weights": tf.cast(positions_BxM > 0, tf.float32),
      "source_uid": batch["uid"][:, tf.newaxis],
      "rejection": tf.where(batch["rejection"] == _ACCEPTED, rejection_B, batch["rejection"]),
    }

  return dataset.map(build, num_parallel_calls=tf.data.AUTOTUNE)


def drop_rejected(dataset: tf.data.Dataset) -> tf.data.Dataset:
  """Makes examples of the batches, without rejected ones.

  Adds `rejections`, the number dropped so far per reason.
  """

  def count(counts, batch):
    reasons = tf.one_hot(batch["rejection"] - 1, len(REJECTIONS), dtype=tf.int64)
    counts = counts + tf.cumsum(reasons)
    examples = {**batch, "rejections": counts}
    accepted_B = examples.pop("rejection") == _ACCEPTED
    return counts[-1], {name: values[accepted_B] for name, values in examples.items()}

  return dataset.scan(tf.zeros([len(REJECTIONS)], tf.int64), count).unbatch()


def build_inverse_cloze(
  dataset: tf.data.Dataset,
  sequence_length,
  *,
  tokenizer: WordPieceTokenizer,
  removal_rate: float = _REMOVAL_RATE,
  hide_salient_spans: bool,
) -> tf.data.Dataset:
  """Makes pseudo-queries from sentences, and the passages that they should find.

  Draws one sentence of each passage uniformly and, with probability `removal_rate`, removes it from
  the passage. Drops a passage that would lose its only sentence. `query` is `[CLS] sentence [SEP]`;
  `title` and `body` have no special tokens; `uid` is the passage's. `hide_salient_spans` replaces
  the salient spans of the query by `[MASK]`, as in pre-training, so that they do not give it away.
  """

  @_map_with_seeds(2)
  def build(passages, seeds):
    starts, limits = passages["sentence_byte_start"], passages["sentence_byte_limit"]
    num_B = starts.row_lengths()
    sentences = tf.strings.substr(
      tf.repeat(passages["text"], num_B),
      tf.cast(starts.values, tf.int32),
      tf.cast(limits.values - starts.values, tf.int32),
    )
    tokens = tokenizer.tokenize_with_offsets(tf.concat([sentences, passages["title"]], 0))
    uniform_B = tf.random.stateless_uniform(tf.shape(num_B), seeds[0])
    removed_B = tf.random.stateless_uniform(tf.shape(num_B), seeds[1]) < removal_rate
    drawn_B = starts.row_starts() + tf.cast(uniform_B * tf.cast(num_B, tf.float32), tf.int64)
    query, token_starts, token_limits = (tf.gather(part, drawn_B) for part in tokens)
    if hide_salient_spans:
      moved_Bx1 = tf.gather(starts.values, drawn_B)[:, tf.newaxis]
      in_span_BxLxS = _inside(
        (tf.cast(token_starts.to_tensor(), tf.int64) + moved_Bx1)[..., tf.newaxis],
        (tf.cast(token_limits.to_tensor(), tf.int64) + moved_Bx1)[..., tf.newaxis],
        passages["span_byte_start"].to_tensor()[:, tf.newaxis],
        passages["span_byte_limit"].to_tensor(-1)[:, tf.newaxis],  # missing ones contain nothing
      )
      hidden_BxL = tf.reduce_any(in_span_BxLxS, axis=2)
      masked_BxL = tf.where(hidden_BxL, tokenizer.mask_id, query.to_tensor())
      query = tf.RaggedTensor.from_tensor(masked_BxL, query.row_lengths())
    lost_F = tf.repeat(tf.where(removed_B, drawn_B, -1), num_B)
    kept = starts.with_values(tf.range(tf.size(sentences, tf.int64)) != lost_F)
    bodies = starts.with_values(tokens[0][: tf.size(sentences)])
    ends_Bx1 = tf.ones_like(drawn_B, tf.int32)[:, tf.newaxis]
    return {
      "uid": passages["uid"],
      "query": tf.concat(
        [
          ends_Bx1 * tokenizer.cls_id,
          query[:, : sequence_length["query"] - 2],
          ends_Bx1 * tokenizer.sep_id,
        ],
        axis=1,
      ),
      "title": tokens[0][tf.size(sentences) :],
      "body": tf.ragged.boolean_mask(bodies, kept).merge_dims(1, 2),
    }

  with_sentences = dataset.filter(lambda example: tf.size(example["sentence_byte_start"]) > 0)
  # A tokenizer call runs hundreds of small operations, whether for one passage or for many.
  batches = with_sentences.ragged_batch(_PASSAGES_AT_ONCE)
  return build(batches).unbatch().filter(lambda example: tf.size(example["body"]) > 0)


def join_title_and_body(
  dataset: tf.data.Dataset, sequence_length, *, tokenizer: WordPieceTokenizer
) -> tf.data.Dataset:
  """Makes `passage`, `[CLS] title [SEP] body [SEP]`, with segments; pads it and `query`."""
  length = sequence_length["passage"]
  room = length - SPECIAL_TOKENS_PER_PASSAGE

  def join(example):
    title, body = example["title"], example["body"]
    title = title[: room - tf.minimum(tf.size(body), length // BODY_SHARE)]
    body = body[: room - tf.size(title)]
    cls, sep = [tokenizer.cls_id], [tokenizer.sep_id]
    return {
      "query": pad(example["query"], sequence_length["query"]),
      "passage": pad(tf.concat([cls, title, sep, body, sep], 0), length),
      "passage_segments": pad(tf.repeat([0, 1], [tf.size(title) + 2, tf.size(body) + 1]), length),
      "passage_uid": example["uid"][tf.newaxis],
    }

  return dataset.map(join, num_parallel_calls=tf.data.AUTOTUNE)


def pad(values: tf.Tensor, length: int) -> tf.Tensor:
  """Pads ids with 0 to a static length."""
  return tf.ensure_shape(tf.pad(values, [[0, length - tf.size(values)]]), [length])


def _inside(token_starts, token_limits, span_starts, span_limits):
  """Returns whether tokens lie entirely in spans.

  Only the last of several wordpieces of one character has a width; an empty one lies in the span
  where it starts.
  """
  return (
    (token_starts >= span_starts) & (token_starts < span_limits) & (token_limits <= span_limits)
  )


def _with_mask(batch, masked_BxL, tokenizer):
  masked_BxL &= batch["ids"] > 0
  return {
    **batch,
    "masked": masked_BxL,
    "masked_ids": tf.where(masked_BxL, tokenizer.mask_id, batch["ids"]),
  }


def _unmasked(passages, sentences):
  rejection_B = tf.fill(tf.shape(sentences), _ACCEPTED)
  return {"uid": passages["uid"], "sentence": sentences, "rejection": rejection_B}


def _draw(candidates, seed):
  """Draws one of the candidates of each row uniformly, 0 if there is none."""
  draws = tf.random.stateless_uniform(tf.shape(candidates), seed)
  return tf.argmax(tf.where(candidates, draws, -1.0), axis=1)


def _sentence_bounds(passages):
  """Returns the first bytes and byte limits of sentences; the limits of missing ones are -1."""
  return _padded(passages["sentence_byte_start"], 0), _padded(passages["sentence_byte_limit"], -1)


def _at(values, place_B):
  """Returns `values[i, place_B[i]]` for each row i."""
  return tf.gather(values, place_B, batch_dims=1)


def _slice(text, start, limit):
  """Returns bytes of the text; none if the limit is below the start."""
  return tf.strings.substr(
    text, tf.cast(start, tf.int32), tf.cast(tf.maximum(limit - start, 0), tf.int32)
  )


def _padded(values, default):
  """Pads ragged values to one more than the longest row, so that argmax always has a slot."""
  return tf.pad(values.to_tensor(default), [[0, 0], [0, 1]], constant_values=default)


def _lengths(ids_BxL):
  return tf.reduce_sum(tf.cast(ids_BxL > 0, tf.int32), axis=1)
