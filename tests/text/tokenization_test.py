import json
import os
import pickle
import random
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from realm_jax.text import tokenization
from realm_jax.text.tokenization import SPECIAL_TOKENS, TextTokenizer, WordPieceTokenizer

PIECES = "caf ##e ecole naive 日 本 語 a the cat fi 😀 ᄒ ##ᅡ ##ᆫ . ! , [ ]".split()
TOKENIZER = WordPieceTokenizer([*SPECIAL_TOKENS, *PIECES])
MARKED = WordPieceTokenizer([*SPECIAL_TOKENS, "café", "cafe", "हिंदी"], strip_accents=False)
CASED = WordPieceTokenizer([*SPECIAL_TOKENS, "Caf", "##é", "caf", "##e"], lower_case=False)


def shown(tokenizer, text):
  """Returns each wordpiece with the raw text that its byte offsets name."""
  raw = text.encode()
  ((ids, starts, limits),) = tokenizer.encode_with_offsets([text])
  return [
    (tokenizer.vocabulary[i], raw[start:limit].decode())
    for i, start, limit in zip(ids, starts, limits, strict=True)
  ]


@pytest.mark.parametrize(
  ("text", "expected"),
  [
    ("The cat!", [("the", "The"), ("cat", "cat"), ("!", "!")]),
    ("Café naïve", [("caf", "Caf"), ("##e", "é"), ("naive", "naïve")]),
    ("Cafe\u0301 e\u0301cole", [("caf", "Caf"), ("##e", "e\u0301"), ("ecole", "e\u0301cole")]),
    ("日本語the", [("日", "日"), ("本", "本"), ("語", "語"), ("the", "the")]),
    ("a 😀 cat", [("a", "a"), ("😀", "😀"), ("cat", "cat")]),
    ("👨\u200d👩 cat", [("[UNK]", "👨\u200d👩"), ("cat", "cat")]),
    ("ﬁ cat", [("[UNK]", "ﬁ"), ("cat", "cat")]),
    ("the\u00a0\u3000cat", [("the", "the"), ("cat", "cat")]),
    ("\ufeffthe \x00c\u200bat", [("the", "the"), ("cat", "c\u200bat")]),
    ("the\x7f cat\ue000!", [("the", "the"), ("cat", "cat"), ("!", "!")]),
    # A syllable is three wordpieces; the last of them carries its bytes.
    ("a 한 cat", [("a", "a"), ("ᄒ", ""), ("##ᅡ", ""), ("##ᆫ", "한"), ("cat", "cat")]),
    ("caf" + "e" * 97 + " cat", [("caf", "caf"), *[("##e", "e")] * 97, ("cat", "cat")]),
    ("caf" + "e" * 98 + " cat", [("[UNK]", "caf" + "e" * 98), ("cat", "cat")]),
    ("caf" + "é" * 97 + " cat", [("caf", "caf"), *[("##e", "é")] * 97, ("cat", "cat")]),
    ("the caf" + "é" * 98 + "!", [("the", "the"), ("[UNK]", "caf" + "é" * 98), ("!", "!")]),
    ("日" * 101, [("日", "日")] * 101),
    (" \n", []),
    ("", []),
  ],
)
def test_offsets_are_bytes_of_the_raw_text(text, expected):
  assert shown(TOKENIZER, text) == expected


@pytest.mark.parametrize("tokenizer", [TOKENIZER, CASED, MARKED])
def test_without_tensorflow_wordpieces_and_offsets_are_the_same(tokenizer):
  without = TextTokenizer(
    tokenizer.vocabulary, lower_case=tokenizer.lower_case, strip_accents=tokenizer.strip_accents
  )
  parts = (
    "the cat Cafe\u0301 ecole\u0301 naïve 日本語 हिंदी 😀 ﬁ [MASK] ! , c\u200bat İ caf\x00é".split()
  )
  draw = random.Random(0)
  texts = ["", " \n", "caf" + "é" * 98 + "!", b"caf\xc3\xa9"]
  texts += [
    "".join(draw.choices([*parts, " ", "\u00a0"], k=draw.randint(1, 9))) for _ in range(300)
  ]
  expected = [[part.tolist() for part in row] for row in tokenizer.encode_with_offsets(texts)]
  assert [[part.tolist() for part in row] for row in without.encode_with_offsets(texts)] == expected
  assert [ids.tolist() for ids in without.encode_batch(texts)] == [row[0] for row in expected]


def test_a_cased_vocabulary_keeps_case_and_accents():
  assert shown(CASED, "Café cafe") == [("Caf", "Caf"), ("##é", "é"), ("caf", "caf"), ("##e", "e")]


def test_texts_are_tokenized_each_for_itself_inside_a_graph_and_outside():
  texts = ["the cat", "", "Café"]
  dataset = tf.data.Dataset.from_tensors(texts).map(TOKENIZER.tokenize_with_offsets)
  graph = [part.to_list() for part in next(iter(dataset))]
  eager = TOKENIZER.encode_with_offsets(texts)
  assert graph == [[row[part].tolist() for row in eager] for part in range(3)]
  assert [ids.tolist() for ids in TOKENIZER.encode_batch(texts)] == graph[0]
  assert [len(row) for row in graph[0]] == [2, 0, 2]
  assert TOKENIZER.encode_with_offsets([]) == []


def test_many_texts_of_any_lengths_are_tokenized_as_each_alone(monkeypatch):
  texts = ["the cat " * n for n in (3, 0, 40, 1, 7, 7, 200, 2)] + [b"caf\xc3\xa9"]
  alone = [TOKENIZER.encode_with_offsets([text])[0] for text in texts]
  for padded_length in (1, 100, 2000):
    monkeypatch.setattr(tokenization, "_PADDED_LENGTH_OF_A_CALL", padded_length)
    for row, expected in zip(TOKENIZER.encode_with_offsets(texts), alone, strict=True):
      for part, expected_part in zip(row, expected, strict=True):
        np.testing.assert_array_equal(part, expected_part)


def test_a_literal_mask_is_one_wordpiece():
  the, cat = (TOKENIZER.vocabulary.index(word) for word in ("the", "cat"))
  mask = TOKENIZER.mask_id
  assert TOKENIZER.encode("the [MASK][MASK] cat").tolist() == [the, mask, mask, cat]
  assert TOKENIZER.encode(b"[MASK]").tolist() == [mask]
  assert TOKENIZER.encode("").dtype == np.int32
  assert TOKENIZER.encode("").tolist() == []


def test_decoding_joins_wordpieces_to_words():
  ids = [*TOKENIZER.encode("Café, [MASK] the!"), 0, 0]
  assert TOKENIZER.decode(ids) == "cafe , [MASK] the !"
  assert TOKENIZER.decode(TOKENIZER.encode("the 日本語 cat")) == "the 日本語 cat"


@pytest.mark.parametrize("tokenizer", [TOKENIZER, CASED, MARKED])
def test_a_saved_vocabulary_comes_back(tmp_path, tokenizer):
  tokenizer.save(tmp_path / "new")
  loaded = tokenization.load(tmp_path / "new")
  assert loaded.vocabulary == tokenizer.vocabulary
  assert loaded.lower_case == tokenizer.lower_case
  assert loaded.strip_accents == tokenizer.strip_accents
  assert loaded.digest == tokenizer.digest
  config = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())
  assert config["do_lower_case"] == tokenizer.lower_case


def test_the_digest_names_wordpieces_order_and_casing():
  vocabularies = (
    WordPieceTokenizer([*SPECIAL_TOKENS, "a", "b"]),
    WordPieceTokenizer([*SPECIAL_TOKENS, "b", "a"]),
    WordPieceTokenizer([*SPECIAL_TOKENS, "a", "c"]),
    WordPieceTokenizer([*SPECIAL_TOKENS, "a", "b"], lower_case=False),
    WordPieceTokenizer([*SPECIAL_TOKENS, "a", "b"], strip_accents=False),
  )
  assert len({vocabulary.digest for vocabulary in vocabularies}) == 5
  assert WordPieceTokenizer([*SPECIAL_TOKENS, "a", "b"]).digest == vocabularies[0].digest


@pytest.mark.parametrize(
  ("vocabulary", "message"),
  [
    (["[PAD]", "[UNK]", "[CLS]", "a"], r"vocabulary of 4 wordpieces lacks \[SEP\], \[MASK\]"),
    (["a", *SPECIAL_TOKENS], r"wordpiece 0 is 'a'; it must be \[PAD\]"),
    ([*SPECIAL_TOKENS, "a", "b", "a"], "wordpiece .a. occurs twice, as 5 and 7"),
  ],
)
def test_unusable_vocabularies_are_refused(vocabulary, message):
  with pytest.raises(ValueError, match=message):
    WordPieceTokenizer(vocabulary)


def test_learned_wordpieces_cover_frequent_words_and_every_character():
  texts = ["The Café serves tea."] * 5 + ["Bees hum."]
  uncased = tokenization.learn(lambda: iter(texts), vocab_size=60)
  assert uncased.vocabulary[:5] == SPECIAL_TOKENS
  assert {"the", "cafe", "serves", "tea", "."} <= set(uncased.vocabulary)
  assert "bees" not in uncased.vocabulary  # seen once
  assert uncased.vocab_size <= 60
  assert uncased.unk_id not in uncased.encode("Bees hum the tea.")
  cased = tokenization.learn(lambda: iter(texts), vocab_size=60, lower_case=False)
  assert {"The", "Café"} <= set(cased.vocabulary)
  assert not cased.lower_case


def test_marks_stay_where_they_carry_meaning():
  assert [MARKED.vocabulary[i] for i in MARKED.encode("CAFÉ Cafe हिंदी")] == ["café", "cafe", "हिंदी"]
  learned = tokenization.learn(lambda: ["हिंदी Й"] * 9, vocab_size=40, strip_accents=False)
  assert {"हिंदी", "й"} <= set(learned.vocabulary)
  assert pickle.loads(pickle.dumps(learned)).digest == learned.digest


def tied_texts():
  """Many merges of equal frequency, whose order decides which of them fit into the vocabulary."""
  draw = random.Random(0)
  return [" ".join("".join(draw.choices("abcdefghéü", k=draw.randint(2, 7))) for _ in range(800))]


_LEARN = """
import sys
from realm_jax.text import tokenization
print(tokenization.learn(lambda: [sys.argv[1]], vocab_size=60).digest)
"""


def test_learning_gives_the_same_vocabulary_in_every_process():
  run = subprocess.run(
    [sys.executable, "-c", _LEARN, *tied_texts()],
    stdout=subprocess.PIPE,
    text=True,
    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
  )
  assert run.stdout.strip() == tokenization.learn(tied_texts, vocab_size=60).digest
