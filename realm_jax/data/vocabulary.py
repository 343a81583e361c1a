"""The project's tokenizer as a SeqIO vocabulary."""

from collections.abc import Sequence

import seqio
import tensorflow as tf

from realm_jax.text.tokenization import WordPieceTokenizer


class WordPieceVocabulary(seqio.Vocabulary):
  """Wraps a `WordPieceTokenizer`; id 0 is padding, `[SEP]` ends a sequence."""

  def __init__(self, tokenizer: WordPieceTokenizer):
    super().__init__()
    self.tokenizer = tokenizer

  @property
  def bos_id(self) -> int:
    return self.tokenizer.cls_id

  @property
  def eos_id(self) -> int:
    return self.tokenizer.sep_id

  @property
  def unk_id(self) -> int:
    return self.tokenizer.unk_id

  @property
  def _base_vocab_size(self) -> int:
    return self.tokenizer.vocab_size

  def _encode(self, s: str) -> Sequence[int]:
    return self.tokenizer.encode(s).tolist()

  def _decode(self, ids: Sequence[int]) -> str:
    return self.tokenizer.decode(ids)

  def _encode_tf(self, s: tf.Tensor) -> tf.Tensor:
    ids, _, _ = self.tokenizer.tokenize_with_offsets(tf.expand_dims(s, 0))
    return ids.values

  def _decode_tf(self, ids: tf.Tensor) -> tf.Tensor:
    pieces = tf.gather(tf.constant(self.tokenizer.vocabulary), ids)
    return tf.strings.regex_replace(tf.strings.reduce_join(pieces, -1, separator=" "), " ##", "")

  def __eq__(self, other) -> bool:
    return (
      isinstance(other, WordPieceVocabulary) and self.tokenizer.digest == other.tokenizer.digest
    )
