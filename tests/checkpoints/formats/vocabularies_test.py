import json

import pytest

from realm_jax.checkpoints.formats import vocabularies
from realm_jax.text.tokenization import SPECIAL_TOKENS

UNCASED, CASED = [*SPECIAL_TOKENS, "a", "##b"], [*SPECIAL_TOKENS, "A", "b"]


def write(directory, *, vocabulary=None, settings=None, tokenizer=None):
  directory.mkdir(parents=True, exist_ok=True)
  if vocabulary is not None:
    (directory / "vocab.txt").write_text("\n".join(vocabulary) + "\n")
  for name, content in (("tokenizer_config", settings), ("tokenizer", tokenizer)):
    if content is not None:
      (directory / f"{name}.json").write_text(json.dumps(content))
  return directory


def whole(vocabulary, parts=None, **normalizer):
  ids = {piece: i for i, piece in enumerate(vocabulary)}
  parts = parts or {}
  return {
    "model": {"type": "WordPiece", "vocab": ids, **parts.get("model", {})},
    "normalizer": {"type": "BertNormalizer", **normalizer},
    "pre_tokenizer": {"type": "BertPreTokenizer"},
    "post_processor": None,
    **{name: part for name, part in parts.items() if name != "model"},
  }


def template(*pieces):
  kinds = {"A": "Sequence"}
  single = [{kinds.get(piece, "SpecialToken"): {"id": piece, "type_id": 0}} for piece in pieces]
  return {"post_processor": {"type": "TemplateProcessing", "single": single}}


def added(*tokens):
  return [{"id": i, "content": token, "special": True} for i, token in enumerate(tokens)]


@pytest.mark.parametrize(
  ("files", "asked", "lower_case"),
  [
    ({"vocabulary": UNCASED}, None, True),
    ({"vocabulary": CASED}, None, False),
    ({"vocabulary": UNCASED, "settings": {"do_lower_case": False}}, None, False),
    ({"vocabulary": UNCASED, "settings": {"do_lower_case": True}}, False, False),
    ({"tokenizer": whole(UNCASED, lowercase=False)}, None, False),
    ({"tokenizer": whole(CASED, lowercase=True)}, None, True),
    (
      {"vocabulary": UNCASED, "settings": {"do_lower_case": True, "strip_accents": None}},
      None,
      True,
    ),
    (
      {
        "vocabulary": UNCASED,
        "settings": {"do_lower_case": False, "tokenizer_class": "BertTokenizer"},
        "tokenizer": whole(UNCASED, template("[CLS]", "A", "[SEP]"), lowercase=False),
      },
      None,
      False,
    ),
    (
      {
        "settings": {"do_lower_case": False, "mask_token": {"content": "[MASK]"}},
        "tokenizer": whole(UNCASED, {"added_tokens": added("[PAD]", "[MASK]")}, lowercase=True),
      },
      True,
      True,
    ),
  ],
)
def test_casing(files, asked, lower_case, tmp_path):
  tokenizer = vocabularies.read(write(tmp_path, **files), lower_case=asked)
  assert tokenizer is not None and tokenizer.lower_case is lower_case
  assert list(tokenizer.vocabulary) in (UNCASED, CASED)


@pytest.mark.parametrize(
  ("files", "message"),
  [
    ({"tokenizer": {"model": {"type": "BPE", "vocab": {}}}}, "is BPE, not WordPiece"),
    ({"tokenizer": {"model": {"type": "WordPiece", "vocab": {"a": 1}}}}, "have gaps"),
    (
      {"vocabulary": UNCASED, "settings": {"tokenize_chinese_chars": False}},
      "tokenize_chinese_chars=False is not supported",
    ),
    (
      {"tokenizer": whole(UNCASED, lowercase=True, clean_text=False)},
      "clean_text=False is not supported",
    ),
    (
      {"tokenizer": whole(UNCASED, {"normalizer": {"type": "Sequence", "normalizers": []}})},
      "normalizer: a tokenizer with type='Sequence' is not supported",
    ),
    ({"tokenizer": whole(UNCASED, {"normalizer": None})}, "normalizer: .* type=None"),
    ({"tokenizer": whole(UNCASED, {"pre_tokenizer": {"type": "WhitespaceSplit"}})}, "'Whitespace"),
    (
      {"tokenizer": whole(UNCASED, {"model": {"max_input_chars_per_word": 5}})},
      "model: a tokenizer with max_input_chars_per_word=5",
    ),
    (
      {"tokenizer": whole(UNCASED, {"model": {"continuing_subword_prefix": "@@"}})},
      "continuing_subword_prefix='@@'",
    ),
    (
      {"tokenizer": whole(UNCASED, template("[CLS]", "a", "A", "[SEP]"))},
      r"single=\['\[CLS\]', 'a",
    ),
    (
      {"tokenizer": whole(UNCASED, {"post_processor": {"type": "RobertaProcessing"}})},
      "type='RobertaProcessing'",
    ),
    (
      {"tokenizer": whole(UNCASED, {"added_tokens": added("[PAD]", "<url>")})},
      r"added_tokens=\['<url>'\] is not supported",
    ),
    (
      {"vocabulary": UNCASED, "settings": {"added_tokens_decoder": {"9": {"content": "<b>"}}}},
      r"added_tokens=\['<b>'\]",
    ),
    ({"vocabulary": UNCASED, "settings": {"cls_token": {"content": "<s>"}}}, "cls_token='<s>'"),
    ({"vocabulary": UNCASED, "settings": {"never_split": ["a"]}}, r"never_split=\['a'\]"),
    ({"vocabulary": UNCASED, "settings": {"padding_side": "left"}}, "padding_side='left'"),
    (
      {"vocabulary": UNCASED, "settings": {"tokenizer_class": "BertJapaneseTokenizer"}},
      "tokenizer_class='BertJapaneseTokenizer'",
    ),
    (
      {"vocabulary": UNCASED, "tokenizer": whole(CASED)},
      "wordpiece 5 is 'a' in vocab.txt and 'A' in tokenizer.json; remove the file",
    ),
    (
      {"vocabulary": UNCASED, "tokenizer": whole(UNCASED[:-1])},
      "wordpiece 6 is '##b' in vocab.txt and None in tokenizer.json",
    ),
    (
      {"settings": {"do_lower_case": True}, "tokenizer": whole(CASED, lowercase=False)},
      "do_lower_case=True in tokenizer_config.json, but lowercase=False in tokenizer.json",
    ),
    ({"vocabulary": [*UNCASED, "a"]}, "vocab.txt: wordpiece 'a' occurs twice, as 5 and 7"),
    ({"vocabulary": UNCASED[1:]}, r"vocab.txt: .* lacks \[PAD\]"),
  ],
)
def test_tokenizers_of_another_kind_are_refused(files, message, tmp_path):
  with pytest.raises(ValueError, match=message):
    vocabularies.read(write(tmp_path, **files))


def test_accents_may_be_kept_without_their_case(tmp_path):
  settings = {"do_lower_case": True, "strip_accents": False}
  tokenizer = vocabularies.read(write(tmp_path, vocabulary=UNCASED, settings=settings))
  assert tokenizer is not None and tokenizer.lower_case and not tokenizer.strip_accents
  whole_file = whole(UNCASED, lowercase=True, strip_accents=False)
  tokenizer = vocabularies.read(write(tmp_path / "whole", tokenizer=whole_file))
  assert tokenizer is not None and tokenizer.lower_case and not tokenizer.strip_accents


@pytest.mark.parametrize(
  ("name", "content", "message"),
  [
    ("vocab.txt", b"[PAD]\n[UNK]\ncaf\xe9\n", r"vocab.txt, line 3 is not UTF-8 \(byte 0xe9\)"),
    ("tokenizer_config.json", b'{"do_lower', "tokenizer_config.json is not complete JSON: Unterm"),
    ("tokenizer_config.json", b"[1]", "tokenizer_config.json holds a JSON list, not dict"),
    ("sentencepiece.bpe.model", b"", "sentencepiece.bpe.model: SentencePiece is not supported"),
    ("merges.txt", b"", "merges.txt: byte-level BPE is not supported"),
  ],
)
def test_a_damaged_or_foreign_file_is_named(name, content, message, tmp_path):
  (tmp_path / name).write_bytes(content)
  with pytest.raises(ValueError, match=message):
    vocabularies.read(tmp_path)


def test_empty_lines_at_the_end_are_no_wordpieces(tmp_path):
  for number, end in enumerate(["", "\n", "\n\n\n", "\r\n\r\n"]):
    write(tmp_path / str(number), vocabulary=UNCASED)
    (tmp_path / str(number) / "vocab.txt").write_bytes(("\n".join(UNCASED) + end).encode())
    tokenizer = vocabularies.read(tmp_path / str(number))
    assert tokenizer is not None and list(tokenizer.vocabulary) == UNCASED


def test_lines_may_end_as_on_windows(tmp_path):
  (tmp_path / "vocab.txt").write_bytes("\r\n".join([*UNCASED, ""]).encode("utf-8-sig"))
  tokenizer = vocabularies.read(tmp_path)
  assert tokenizer is not None and list(tokenizer.vocabulary) == UNCASED
