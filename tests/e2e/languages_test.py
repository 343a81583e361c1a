"""REALM's whole path in languages that are not English, from raw text to answers."""

import json

import pytest

from realm_jax.checkpoints.opening import Sources
from realm_jax.corpus import tagged_examples
from realm_jax.corpus.chunking import ChunkingConfig
from realm_jax.corpus.passage_store import PassageStore
from realm_jax.corpus.vocabulary import VocabularyConfig
from realm_jax.evaluation.systems import Asking
from realm_jax.index.builder_config import BuilderConfig
from realm_jax.index.vectors.searcher import SearcherConfig
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.preparation.mask_sentences import mask_sentences
from realm_jax.jobs.preparation.prepare_corpus import prepare_corpus
from realm_jax.jobs.preparation.prepare_examples import prepare_examples
from realm_jax.jobs.training.build_index import build_index
from realm_jax.jobs.training.pretrain import pretrain
from realm_jax.training.recipes.examples import ExampleSettings, ReadingOrder
from tests.configurations import changed
from tests.e2e.conftest import PRETRAINING

pytestmark = pytest.mark.timeout(600)

# Of each language: sentences about one of several subjects, a question, and its answer.
LANGUAGES = {
  "ar": (
    "تأسست مدينة {name} القديمة في عام {year} على ضفة النهر. "
    "كان عدد سكان مدينة {name} القديمة حوالي {count} نسمة في ذلك الوقت. "
    "بنى المهندس {person} الجسر الكبير فوق النهر في عام {later}. "
    "يزور الناس مدينة {name} القديمة والجسر الكبير الذي بناه {person} كل صيف.",
    "من بنى الجسر الكبير في مدينة {name}؟",
    (("البندقية", "سالم الخطيب"), ("الأقصر", "كريم النجار"), ("قرطاج", "يوسف الحداد")),
  ),
  "hi": (
    "{name} का पुराना शहर नदी के किनारे वर्ष {year} में बसाया गया था। "
    "उस समय {name} का पुराना शहर लगभग {count} लोगों का घर था। "
    "शिल्पकार {person} ने नदी के ऊपर बड़ा पुल वर्ष {later} में बनाया। "
    "हर गर्मी में लोग {name} का पुराना शहर और {person} का बड़ा पुल देखने आते हैं।",
    "{name} में बड़ा पुल किसने बनाया?",
    (("जयनगर", "मोहन त्रिवेदी"), ("रामपुर", "सीता शर्मा"), ("वाराणसी", "हिमांशु ज्योति")),
  ),
  "zh": (
    "{name}古城于{year}年在河岸上建立。当时{name}古城大约有{count}名居民和许多花园。"
    "建筑师{person}于{later}年在河上修建了大石桥。"
    "每年夏天人们都来参观{name}古城和{person}修建的大石桥。",
    "谁在{name}修建了大石桥？",
    (("青岩", "李文华"), ("凤凰", "王大明"), ("丽江", "赵小云")),
  ),
}


@pytest.fixture(params=LANGUAGES, scope="module")
def given(request, tmp_path_factory):
  """A directory with documents and questions, and their language."""
  root = tmp_path_factory.mktemp(request.param)
  text, question, subjects = LANGUAGES[request.param]
  documents, questions = [], []
  for i, (name, person) in enumerate(subjects):
    years = {"year": 1100 + 37 * i, "count": 2000 + 310 * i, "later": 1450 + 11 * i}
    content = text.format(name=name, person=person, **years)
    documents.append({"id": str(i), "title": f"{i}", "text": content})
    questions.append({"question": question.format(name=name), "answer": [person]})
  for file, records in (("documents", documents), ("questions", questions)):
    lines = [json.dumps(record, ensure_ascii=False) for record in records]
    (root / f"{file}.jsonl").write_text("\n".join(lines), "utf-8")
  return root, request.param


def test_from_raw_text_to_answers(given):
  root, language = given
  documents, passages, vocabulary = (
    str(root / name) for name in ("documents.jsonl", "passages", "vocabulary")
  )
  prepare_corpus(
    input=documents,
    output=passages,
    vocabulary=vocabulary,
    learning=VocabularyConfig(vocab_size=1024),
    chunking=ChunkingConfig(max_passage_length=32),
    num_shards=1,
  )
  store = PassageStore(passages)
  assert store.metadata.languages == (language,)
  assert store.metadata.counts["unknown_wordpieces"] == 0
  tagged = [p for f in tagged_examples.files(passages) for p in tagged_examples.read_shard(f)]
  assert sum(len(passage.spans) for passage in tagged) >= 2 * len(tagged)

  masked = str(root / "masked.jsonl")
  assert mask_sentences(corpus=passages, output=masked)["passages"] >= len(store) / 2
  prepare_examples(
    task="masked_queries",
    corpus=passages,
    output=str(root / "examples"),
    settings=ExampleSettings(query_length=32, max_masks=3),
    reading=ReadingOrder(num_examples=24),
  )

  asking = Asking(recall_at=(1, 2))
  bm25 = Sources(passages=passages, retriever="bm25")
  asked = {"questions": str(root / "questions.jsonl"), "asking": asking}
  assert evaluate(**asked, sources=bm25)["recall@2"] >= 2 / 3
  if language != "zh":
    return  # from here on there are wordpieces, whose language no program knows
  places = {"passages": passages, "index": str(root / "index")}
  training = {"corpus": str(root / "examples"), "workdir": str(root / "run"), **places}
  checkpoints = str(root / "run" / "checkpoints")
  pretrain(**training, pretraining=changed(PRETRAINING, num_steps=0))
  build_index(
    checkpoints=checkpoints, **places, builder=BuilderConfig(searcher=SearcherConfig(kind="exact"))
  )
  pretrain(**training, pretraining=changed(PRETRAINING, num_steps=2))
  trained = Sources(checkpoints=checkpoints, step=2, **places)
  figures = evaluate(questions=masked, sources=trained, asking=asking)
  assert 0 <= figures["exact_match"] <= 1
