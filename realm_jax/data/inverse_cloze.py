"""Preprocessor of the inverse cloze task (Lee et al. 2019, section 4.2)."""

import seqio
import tensorflow as tf

from realm_jax.data.masking import inside
from realm_jax.data.vocabulary import WordPieceVocabulary

_PASSAGES_PER_CALL = 64
_REMOVAL_RATE = 0.9  # the rest teaches that matching words count (Lee et al. 2019)


def build_inverse_cloze(
  dataset: tf.data.Dataset,
  sequence_length,
  *,
  vocabulary: WordPieceVocabulary,
  removal_rate: float = _REMOVAL_RATE,
  hide_salient_spans: bool,
) -> tf.data.Dataset:
  """Makes pseudo-queries from sentences, and the passages that they should find.

  Draws one sentence of each passage uniformly and, with probability `removal_rate`, removes it from
  the passage. Drops a passage that would lose its only sentence. `query` is `[CLS] sentence [SEP]`;
  `title` and `body` have no special tokens; `uid` is the passage's. `hide_salient_spans` replaces
  the salient spans of the query by `[MASK]`, as in pre-training, so that they do not give it away.
  """
  tokenizer = vocabulary.tokenizer

  @seqio.map_over_dataset(num_seeds=2)
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
      in_span_BxLxS = inside(
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
  batches = with_sentences.ragged_batch(_PASSAGES_PER_CALL)
  return build(batches).unbatch().filter(lambda example: tf.size(example["body"]) > 0)
