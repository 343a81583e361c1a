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


def said(**settings):
  return {"vocabulary": UNCASED, "settings": settings}


def made(parts=None, **normalizer):
  return {"tokenizer": whole(UNCASED, parts, **normalizer)}


BERTS = template("[CLS]", "A", "[SEP]")
SPECIAL = {"added_tokens": added("[PAD]", "[MASK]")}


@pytest.mark.parametrize(
  ("files", "asked", "lower_case"),
  [
    ({"vocabulary": UNCASED}, None, True),
    ({"vocabulary": CASED}, None, False),
    (said(do_lower_case=False), None, False),
    (said(do_lower_case=True), False, False),
    (made(lowercase=False), None, False),
    ({"tokenizer": whole(CASED, lowercase=True)}, None, True),
    (said(do_lower_case=True, strip_accents=None), None, True),
    (
      said(do_lower_case=False, tokenizer_class="BertTokenizer") | made(BERTS, lowercase=False),
      None,
      False,
    ),
    (
      {"settings": {"do_lower_case": False, "mask_token": {"content": "[MASK]"}}}
      | made(SPECIAL, lowercase=True),
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
    (said(tokenize_chinese_chars=False), "tokenize_chinese_chars=False is not supported"),
    (made(lowercase=True, clean_text=False), "clean_text=False is not supported"),
    (
      made({"normalizer": {"type": "Sequence", "normalizers": []}}),
      "normalizer: a tokenizer with type='Sequence' is not supported",
    ),
    (made({"normalizer": None}), "normalizer: .* type=None"),
    (made({"pre_tokenizer": {"type": "WhitespaceSplit"}}), "'Whitespace"),
    (made({"model": {"max_input_chars_per_word": 5}}), "model: .*max_input_chars_per_word=5"),
    (made({"model": {"continuing_subword_prefix": "@@"}}), "continuing_subword_prefix='@@'"),
    (made(template("[CLS]", "a", "A", "[SEP]")), r"single=\['\[CLS\]', 'a"),
    (made({"post_processor": {"type": "RobertaProcessing"}}), "type='RobertaProcessing'"),
    (made({"added_tokens": added("[PAD]", "<url>")}), r"added_tokens=\['<url>'\] is not supp"),
    (said(added_tokens_decoder={"9": {"content": "<b>"}}), r"added_tokens=\['<b>'\]"),
    (said(cls_token={"content": "<s>"}), "cls_token='<s>'"),
    (said(never_split=["a"]), r"never_split=\['a'\]"),
    (said(padding_side="left"), "padding_side='left'"),
    (said(tokenizer_class="BertJapaneseTokenizer"), "tokenizer_class='BertJapaneseTokenizer'"),
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
  for number, files in enumerate(
    (said(do_lower_case=True, strip_accents=False), made(lowercase=True, strip_accents=False))
  ):
    tokenizer = vocabularies.read(write(tmp_path / str(number), **files))
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


@pytest.mark.parametrize("content", ["\n".join(UNCASED) + e for e in ("", "\n", "\n\n\n")])
@pytest.mark.parametrize(("end", "encoding"), [("\n", "utf-8"), ("\r\n", "utf-8-sig")])
def test_neither_empty_lines_at_the_end_nor_marks_are_wordpieces(tmp_path, content, end, encoding):
  (tmp_path / "vocab.txt").write_text(content, encoding, newline=end)
  tokenizer = vocabularies.read(tmp_path)
  assert tokenizer is not None and list(tokenizer.vocabulary) == UNCASED
