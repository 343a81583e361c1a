"""Preprocessor of the inverse cloze task, dataset to dataset (Lee et al. 2019, section 4.2)."""

import seqio
import tensorflow as tf

from realm_jax.data.vocabulary import WordPieceVocabulary


def build_inverse_cloze(
  dataset: tf.data.Dataset,
  sequence_length,
  *,
  vocabulary: WordPieceVocabulary,
  removal_rate: float,
  hide_salient_spans: bool,
) -> tf.data.Dataset:
  """Makes a pseudo-query of one sentence of a passage, and the passage it has to find.

  A sentence is drawn uniformly; with probability `removal_rate` it is taken out of the passage. A
  passage of one sentence from which it would be taken out is dropped. `query` is `[CLS] sentence
  [SEP]`, `title` and `body` carry no special tokens.

  Args:
    dataset: tagged passages.
    sequence_length: lengths of `query`, `title` and `body`.
    vocabulary: the tokenizer.
    removal_rate: how often the sentence leaves the passage; 0.9 in the paper.
    hide_salient_spans: whether the salient spans of the pseudo-query become `[MASK]`, so that
      a query resembles those of pre-training and cannot be matched by what it asks for.
  """
  tokenizer = vocabulary.tokenizer

  @seqio.map_over_dataset(num_seeds=2)
  def build(example, seeds):
    starts, limits = example["sentence_byte_start"], example["sentence_byte_limit"]
    num_sentences = tf.size(starts)
    drawn = tf.random.stateless_uniform([], seeds[0], maxval=num_sentences, dtype=tf.int32)
    removed = tf.random.stateless_uniform([], seeds[1]) < removal_rate
    sentences = tf.strings.substr(
      tf.fill([num_sentences], example["text"]),
      tf.cast(starts, tf.int32),
      tf.cast(limits - starts, tf.int32),
    )
    texts = tf.concat([sentences, [example["title"]]], 0)
    ids, token_starts, token_limits = tokenizer.tokenize_with_offsets(texts)
    query = ids[drawn]
    if hide_salient_spans:
      hidden = _inside_any_span(
        tf.cast(token_starts[drawn], tf.int64) + starts[drawn],
        tf.cast(token_limits[drawn], tf.int64) + starts[drawn],
        example["span_byte_start"],
        example["span_byte_limit"],
      )
      query = tf.where(hidden, tokenizer.mask_id, query)
    kept = tf.range(num_sentences) != drawn
    body = tf.ragged.boolean_mask(ids[:-1], kept | ~removed)
    return {
      "query": tf.concat(
        [[tokenizer.cls_id], query[: sequence_length["query"] - 2], [tokenizer.sep_id]], 0
      ),
      "title": ids[-1],
      "body": body.values,
    }

  with_sentences = dataset.filter(lambda example: tf.size(example["sentence_byte_start"]) > 0)
  return build(with_sentences).filter(lambda example: tf.size(example["body"]) > 0)


def _inside_any_span(token_starts, token_limits, span_starts, span_limits):
  token_starts, token_limits = token_starts[:, tf.newaxis], token_limits[:, tf.newaxis]
  # Of a character that is several wordpieces all but the last are empty.
  inside = (
    (token_starts >= span_starts) & (token_starts < span_limits) & (token_limits <= span_limits)
  )
  return tf.reduce_any(inside, axis=1)
