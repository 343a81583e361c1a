import tensorflow as tf

from realm_jax.data.vocabulary import WordPieceVocabulary
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, "caf", "##e", "the"])
VOCABULARY = WordPieceVocabulary(TOKENIZER)


def test_it_is_the_tokenizer_in_seqio_s_words():
  assert VOCABULARY.vocab_size == 8
  assert VOCABULARY.pad_id == 0
  assert (VOCABULARY.bos_id, VOCABULARY.eos_id, VOCABULARY.unk_id) == (2, 3, 1)
  assert VOCABULARY.encode("The café") == [7, 5, 6]
  assert VOCABULARY.encode_tf(tf.constant("The café")).numpy().tolist() == [7, 5, 6]
  assert VOCABULARY.decode([7, 5, 6]) == "the cafe"
  assert VOCABULARY.decode_tf(tf.constant([7, 5, 6])).numpy() == b"the cafe"


def test_vocabularies_are_equal_when_their_tokenizers_are():
  same = WordPieceVocabulary(WordPieceTokenizer(TOKENIZER.vocabulary))
  cased = WordPieceVocabulary(WordPieceTokenizer(TOKENIZER.vocabulary, lower_case=False))
  assert same == VOCABULARY
  assert cased != VOCABULARY
