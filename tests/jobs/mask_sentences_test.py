import json

import pytest

from realm_jax.checkpoints.opening import Sources
from realm_jax.corpus.passage_store import Passage
from realm_jax.corpus.tagged_examples import TaggedExampleWriter, serialize
from realm_jax.data.questions import read_questions
from realm_jax.evaluation.systems import Asking
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.preparation.mask_sentences import mask_sentences
from realm_jax.text.tokenization import SPECIAL_TOKENS, WordPieceTokenizer
from tests.stores import write_store

SENTENCES = (
  "Zürich is the largest town of Switzerland.",
  "The town of Oslo lies in old Norway.",
  "Rome is old.",  # too short
  "°C is what they write over there.",  # °C is one word, and its C no word
)


@pytest.fixture
def corpus(tmp_path):
  directory = tmp_path / "tagged"
  directory.mkdir()
  writer = TaggedExampleWriter(directory, num_shards=1)
  for uid, sentence in enumerate(SENTENCES, 1):
    text = f"Ä first one. {sentence}"
    start = len("Ä first one. ".encode())
    names = [w.strip(".").encode() for w in sentence.split()[1:] if w[0].isupper()]
    names.append(sentence.split()[0].strip("°").encode())
    spans = [(text.encode().index(n, start), text.encode().index(n, start) + len(n)) for n in names]
    sentences = ((0, start - 1), (start, len(text.encode())))
    passage = Passage(title="", text=text, uid=uid, sentences=sentences, spans=spans)
    writer.write(serialize(passage))
  writer.close()
  return str(directory)


def test_the_masked_spans_are_those_of_the_corpus(tmp_path, corpus):
  output = str(tmp_path / "masked.jsonl")
  assert mask_sentences(corpus=corpus, output=output) == {"sentences": 2, "passages": 2}
  questions = read_questions(output)
  assert {q.text for q in questions} == set(SENTENCES[:2])
  for question in questions:
    assert question.masked_text.replace("[MASK]", question.answer) == question.text
    assert question.answer in ("Zürich", "Switzerland", "The", "Oslo", "Norway")
  assert mask_sentences(corpus=corpus, output=output, max_sentences=1)["sentences"] == 1


def test_bm25_is_evaluated_on_them_and_compared(tmp_path, corpus, capsys):
  masked = str(tmp_path / "masked.jsonl")
  mask_sentences(corpus=corpus, output=masked)
  asked = read_questions(masked)
  texts = [*SENTENCES, *(f"Of {q.masked_text} it is {q.answer}" for q in asked), "nothing here"]
  tokenizer = WordPieceTokenizer([*SPECIAL_TOKENS, "the", "of"])
  (tmp_path / "passages").mkdir()
  store = write_store(tmp_path / "passages", texts, tokenizer=tokenizer)
  sources = Sources(passages=store.directory, retriever="bm25")
  outputs = [str(tmp_path / name) for name in ("one", "other")]
  for output in outputs:
    figures = evaluate(
      questions=masked,
      sources=sources,
      asking=Asking(recall_at=(1, 2)),
      output=output,
      against=outputs[0] if output is not outputs[0] else None,
    )
    assert figures == {"questions": 2, "recall@1": 1.0, "recall@2": 1.0}
  compared = [line for line in capsys.readouterr().out.splitlines() if "+0.0000" in line]
  assert [line.split(" | ")[1] for line in compared] == ["recall@1", "recall@2"]
  record = json.loads((tmp_path / "one" / "predictions.jsonl").read_text().splitlines()[0])
  assert record["rank"] == 1 and "prediction" not in record
