import json

import pytest

from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.jobs.answering.choose_retriever import choose_retriever
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from tests.knowledge_base import tiny_models

WORDS = [f"{first}{second}{first}" for first in "bcdfghjk" for second in "aeiou"]


@pytest.mark.timeout(600)
def test_words_are_chosen_over_an_encoder_that_knows_nothing(tmp_path):
  model = tiny_models.write(tmp_path / "model", words=WORDS)
  lines = [
    {
      "id": word,
      "title": f"on {word}",
      "text": f"The {word} stands in that old place by the river. It was said of {word} that it "
      f"goes on there. Nobody saw the {word} go to the river at night.",
    }
    for word in WORDS
  ]
  (tmp_path / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
  prepare_corpus(
    input=str(tmp_path / "corpus.jsonl"),
    vocabulary=f"{model}/vocabulary",
    output=str(tmp_path / "passages"),
    chunking=ChunkingConfig(max_passage_length=200),
  )
  chosen = choose_retriever(
    checkpoints=f"{model}/checkpoints",
    passages=str(tmp_path / "passages"),
    output=str(tmp_path / "choice"),
  )
  card = json.loads((tmp_path / "choice/figures.json").read_text())
  assert chosen == card["measured"]["choice"] == "bm25"
  assert card["measured"]["queries from titles"] == len(WORDS)
  assert card["figures"]["titles: bm25"] == 1.0
  low, high = card["intervals"]["sentences: bm25 - hybrid"]
  assert 0 < low < card["figures"]["sentences: bm25 - hybrid"] < high
  assert {path.name for path in tmp_path.iterdir()} == {
    "model",
    "corpus.jsonl",
    "passages",
    "choice",
  }
