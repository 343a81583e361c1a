"""The public Open-QA datasets: file formats, the original's split, and a manifest of counts.

The original had no separate development set: it took from each training set the questions whose
hash ends in 0 (Lee et al. 2019, `create_data_splits`). The hash is FarmHash's fingerprint, which is
the same on every machine and in every version.
"""

import ast
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import tensorflow as tf

from realm_jax.data import questions
from realm_jax.foundations import atomic_files, object_store, text_files
from realm_jax.foundations.output_kinds import DirectoryKind

Dataset = Literal["custom", "natural_questions", "web_questions", "curated_trec"]
SPLITS = ("train", "dev", "test")
# Questions of train, dev and test in all published results.
OFFICIAL_COUNTS = {
  "natural_questions": (79_168, 8_757, 3_610),
  "web_questions": (3_417, 361, 2_032),
  "curated_trec": (1_353, 133, 694),
}

_HASH_BUCKETS = 100_000
_DEV_SHARE = 10  # one question in ten
_DESCRIPTION = re.compile(r"""\(description\s+("(?:[^"\\]|\\.)*"|[^()]*)\)""")


def read_raw(path: str | os.PathLike) -> list[dict]:
  """Reads a question file in its published format.

  Recognises, by name and content, JSON Lines with `question` and `answer` (NQ-open and others),
  WebQuestions' JSON (the official one and that of dataset-factoid-webquestions), CuratedTREC's
  table (id, kind, question, regular expression), TriviaQA's JSON and SQuAD's JSON. Any of them may
  be compressed.

  Returns:
    Records with `id`, `question`, `answer`, `regex` if it is true, and any other fields of JSON
    Lines.

  Raises:
    FileNotFoundError: If the file is missing.
    ValueError: If it is damaged, its format is unknown, or it has an invalid question or answer.
  """
  path = os.fspath(path)
  content = object_store.absolute(path).read_bytes()
  text = text_files.decoded(content, path)
  name = path.removesuffix(".gz")
  try:
    if name.endswith(".tsv"):
      records = _of_table(text)
    elif name.endswith(".json"):
      records = _of_json(text_files.parse_json(text))
    else:
      records = _of_lines(text)
    records = list(records)
  except (ValueError, KeyError, IndexError, TypeError) as error:
    raise ValueError(
      f"{path} is not in a known question format: {error!r}; make it JSON Lines with `question` "
      "and `answer`"
    ) from error
  stem = os.path.basename(name).rpartition(".")[0]
  named = []
  for number, record in enumerate(records, 1):
    id = record.get("id")
    record = {**record, "id": f"{stem}-{number}" if questions.is_missing(id) else str(id)}
    try:
      questions.from_record(record, number=number)
    except ValueError as error:
      raise ValueError(f"{path}, question {number} ({record['question']!r}): {error}") from error
    named.append(record)
  return named


def _of_lines(text: str) -> Iterator[dict]:
  for line in text.split("\n"):
    if line.strip():
      record = text_files.parse_json(line)
      yield {**record, "answer": [*questions.answer_texts(record["answer"])]}


def _of_table(text: str) -> Iterator[dict]:
  for line in text.split("\n"):
    if line.strip():
      name, _, question, pattern = line.removesuffix("\r").split("\t")
      yield {"id": name, "question": question, "answer": [pattern], "regex": True}


def _of_json(content) -> Iterator[dict]:
  if isinstance(content, list):
    yield from map(_of_web_question, content)
  elif "Data" in content:
    yield from map(_of_trivia_question, content["Data"])
  else:
    for article in content["data"]:
      for paragraph in article["paragraphs"]:
        for question in paragraph["qas"]:
          answers = _distinct(answer["text"] for answer in question["answers"])
          if answers:  # SQuAD 2.0 has questions without answers
            yield {
              "id": question["id"],
              "question": question["question"],
              "answer": answers,
              "title": article["title"].replace("_", " "),
            }


def _of_web_question(record: dict) -> dict:
  if "qText" in record:
    return {"id": record["qId"], "question": record["qText"], "answer": record["answers"]}
  described = _DESCRIPTION.findall(record["targetValue"])
  answers = [ast.literal_eval(d) if d.startswith('"') else d for d in described]
  return {"question": record["utterance"], "answer": _distinct(answers)}


def _of_trivia_question(record: dict) -> dict:
  answer = record["Answer"]
  return {
    "id": record["QuestionId"],
    "question": record["Question"],
    "answer": _distinct([answer["Value"], *answer["Aliases"]]),
  }


def _distinct(texts: Iterable[str]) -> list[str]:
  return list(dict.fromkeys(texts))


def split_train(records: Sequence[dict]) -> tuple[list[dict], list[dict]]:
  """Splits records into the training and the development set, in order."""
  texts = [record["question"] for record in records]
  hashed = tf.strings.to_hash_bucket_fast(texts, _HASH_BUCKETS).numpy() % _DEV_SHARE
  pairs = list(zip(records, hashed, strict=True))
  return [r for r, h in pairs if h != 0], [r for r, h in pairs if h == 0]


def make_splits(
  train: Iterable[dict], test: Iterable[dict], *, dataset: Dataset
) -> dict[str, list[dict]]:
  """Returns the records of `train`, `dev` and `test`.

  As in the original, CuratedTREC's questions whose id is not a number are excluded.

  Raises:
    ValueError: If the counts of a published dataset differ from the published ones.
  """
  train, test = list(train), list(test)
  if dataset == "curated_trec":
    train, test = ([r for r in part if r["id"].isdigit()] for part in (train, test))
  splits: dict[str, list[dict]] = dict(zip(SPLITS, (*split_train(train), test), strict=True))
  counts = tuple(map(len, splits.values()))
  expected = OFFICIAL_COUNTS.get(dataset, counts)
  if counts != expected:
    raise ValueError(
      f"{dataset} has {'/'.join(map(str, expected))} questions for train/dev/test, but these files "
      f"give {'/'.join(map(str, counts))}; give all its files, or use dataset=custom"
    )
  return splits


QUESTIONS = DirectoryKind(
  name="a set of questions",
  files=(questions.MANIFEST_FILE, "train.jsonl", "dev.jsonl", "test.jsonl"),
  marks=(questions.MANIFEST_FILE,),
)


def write_splits(
  directory: str | os.PathLike, splits: dict[str, list[dict]], *, dataset: Dataset
) -> dict:
  """Writes `train.jsonl`, `dev.jsonl`, `test.jsonl` and the manifest into an empty directory.

  Returns:
    The manifest: `dataset`, and for each of the `files` its number of `questions` and `sha256`.
  """
  files = {}
  for split, records in splits.items():
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    content = "".join(lines).encode()
    atomic_files.write_bytes(os.path.join(directory, f"{split}.jsonl"), content)
    digest = hashlib.sha256(content).hexdigest()
    files[f"{split}.jsonl"] = {"questions": len(records), "sha256": digest}
  manifest = {"dataset": dataset, "files": files}
  atomic_files.write_json(os.path.join(directory, questions.MANIFEST_FILE), manifest)
  return manifest
