"""Wordpieces are those of the `tokenizers` library, for every character and for real text."""

import gzip
import json
import pathlib
import unicodedata

import numpy as np
import pytest
import tokenizers

from realm_jax.text import tokenization
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer

DATA = pathlib.Path(__file__).parents[3] / "shared" / "data"
NUM_LINES = 10_000
# Punctuation and format characters younger than the library's tables: it takes them for letters.
YOUNG = {0x61D, 0x890, 0x891, 0x8E2, 0x9FD, 0xA76, 0xC77, 0xC84, 0x166D, 0x1B4E, 0x1B4F}
YOUNG |= {0x1B7D, 0x1B7E, 0x1B7F, *range(0x2E43, 0x2E5E)}


def library(tokenizer):
  """The tokenizer of the library with the same vocabulary."""
  ids = {piece: i for i, piece in enumerate(tokenizer.vocabulary)}
  return tokenizers.BertWordPieceTokenizer(
    vocab=ids, lowercase=tokenizer.lower_case, strip_accents=tokenizer.strip_accents
  )


def assert_same(tokenizer, texts):
  theirs = library(tokenizer).encode_batch(texts, add_special_tokens=False)
  for text, ours, expected in zip(texts, tokenizer.encode_batch(texts), theirs, strict=True):
    assert ours.tolist() == expected.ids, repr(text)


@pytest.mark.parametrize(("lower_case", "strip"), [(True, True), (False, False), (True, False)])
def test_every_character_between_letters_and_alone(lower_case, strip):
  # Those of alphabets, symbols and punctuation, then some of all that follow.
  codes = [*range(1, 0x3100), *range(0x3100, 0xD800, 97), *range(0xE000, 0x110000, 997)]
  codes += [*range(0xF900, 0xFB10), *range(0xFE00, 0x10000), *range(0x1F600, 0x1F650), 0x2F80A]
  characters = [chr(code) for code in codes if code not in YOUNG]
  normalize = tokenizers.normalizers.BertNormalizer(
    lowercase=lower_case, strip_accents=strip
  ).normalize_str
  pieces = {piece for c in characters for piece in normalize(c) if not piece.isspace()} | {*"ab"}
  vocabulary = [*SPECIAL_TOKENS, *sorted(pieces), *sorted(f"##{piece}" for piece in pieces)]
  tokenizer = WordPieceTokenizer(vocabulary, lower_case=lower_case, strip_accents=strip)
  assert_same(tokenizer, [f"a{c}b {c}" for c in characters])


@pytest.mark.parametrize("lower_case", [True, False])
def test_words_up_to_a_hundred_characters(lower_case):
  tokenizer = WordPieceTokenizer(
    [*SPECIAL_TOKENS, *"aéᄒ日.", "##a", "##é", "##한"], lower_case=lower_case
  )
  texts = [
    character * length + end
    for character in "aAé한日."
    for length in (99, 100, 101, 250)
    for end in ("", " a", ".a", "日a")
  ]
  assert_same(tokenizer, texts)


def lines():
  """Lines of real text, those with unusual characters first."""
  unusual, usual, kinds = [], [], set()
  for name in ("corpus/simplewiki_2021", "squad_open/passages"):
    with gzip.open(DATA / f"{name}.jsonl.gz", "rt", encoding="utf-8") as file:
      for record in file:
        for line in json.loads(record)["text"].split("\n"):
          if len(unusual) == NUM_LINES - 1000:
            return unusual + usual, kinds
          if line.isascii():
            usual = usual if len(usual) == 999 else [*usual, line]
          else:
            unusual.append(line)
            kinds |= {unicodedata.category(c) for c in line if not c.isascii()}
  raise AssertionError("too few lines")


@pytest.mark.skipif(not DATA.exists(), reason="needs the data in ../shared/data")
def test_ten_thousand_lines_of_real_text():
  texts, kinds = lines()
  # Emoji and control characters do not stand in an encyclopedia: every tenth line is given some.
  extras = np.random.default_rng(0).choice(
    ["😀", "👨\u200d👩", "\x07", "\ufeff", "\u202a"], len(texts)
  )
  texts = [
    line if i % 10 else line[: len(line) // 2] + extra + line[len(line) // 2 :]
    for i, (line, extra) in enumerate(zip(texts, extras, strict=True))
  ]
  texts.append("".join(extras))
  assert len(texts) == NUM_LINES
  assert {"Lo", "Mn", "Lu", "So", "No", "Pi", "Cf"} <= kinds
  tokenizer = tokenization.learn(lambda: texts[::5], vocab_size=12_000)
  assert_same(tokenizer, texts)
