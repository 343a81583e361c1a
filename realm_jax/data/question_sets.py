"""The public Open-QA sets: their file formats, the original's split, and a manifest of counts.

The original kept no development set of its own: it took from each training set the questions whose
hash ends in 0 (Lee et al. 2019, `create_data_splits`). The hash is Farm's fingerprint, so the split
is the same everywhere and for ever.
"""

import ast
import gzip
import hashlib
import json
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

import tensorflow as tf

from realm_jax import object_store
from realm_jax.data import questions

Dataset = Literal["custom", "natural_questions", "web_questions", "curated_trec"]
SPLITS = ("train", "dev", "test")
# Questions of train, dev and test that every published figure is about.
OFFICIAL_COUNTS = {
  "natural_questions": (79_168, 8_757, 3_610),
  "web_questions": (3_417, 361, 2_032),
  "curated_trec": (1_353, 133, 694),
}

_HASH_BUCKETS = 100_000
_DEV_SHARE = 10  # one question of ten
_DESCRIPTION = re.compile(r"""\(description\s+("(?:[^"\\]|\\.)*"|[^()]*)\)""")


def read_raw(path: str | os.PathLike) -> list[dict]:
  """Reads a question file as its publishers made it.

  The name and the content tell which it is: JSON Lines with `question` and `answer` (NQ-open and
  any other), WebQuestions' JSON (the official one, and that of dataset-factoid-webquestions),
  CuratedTREC's table (id, kind, question, regular expression), TriviaQA's JSON, SQuAD's JSON. Any
  of them may be compressed.

  Returns:
    Records with `id`, `question`, `answer`, `regex` where it is true, and what else the lines of
    JSON Lines had.

  Raises:
    FileNotFoundError: if the file is not there.
    ValueError: if it is of no known format, or a question or an answer in it is not usable.
  """
  path = os.fspath(path)
  content = object_store.absolute(path).read_bytes()
  text = (gzip.decompress(content) if path.endswith(".gz") else content).decode()
  name = path.removesuffix(".gz")
  try:
    if name.endswith(".tsv"):
      records = _of_table(text)
    elif name.endswith(".json"):
      records = _of_json(json.loads(text))
    else:
      records = _of_lines(text)
    records = list(records)
  except (ValueError, KeyError, IndexError, TypeError) as error:
    raise ValueError(
      f"{path} is no question file that is known: {error!r}; make it JSON Lines with `question` "
      "and `answer`"
    ) from error
  stem = os.path.basename(name).rpartition(".")[0]
  named = []
  for number, record in enumerate(records, 1):
    record = {**record, "id": str(record.get("id") or f"{stem}-{number}")}
    try:
      questions.from_record(record, number=number)
    except (ValueError, re.error) as error:
      raise ValueError(f"{path}, question {number} ({record['question']!r}): {error}") from error
    named.append(record)
  return named


def _of_lines(text: str) -> Iterator[dict]:
  for line in text.split("\n"):
    if line.strip():
      record = json.loads(line)
      answer = record["answer"]
      yield {**record, "answer": [answer] if isinstance(answer, str) else list(answer)}


def _of_table(text: str) -> Iterator[dict]:
  for line in text.split("\n"):
    if line.strip():
      name, _, question, pattern = line.split("\t")
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
          if answers:  # SQuAD 2.0 has questions without
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
  """Returns the records of the training and of the development set, in their order."""
  texts = [record["question"] for record in records]
  hashed = tf.strings.to_hash_bucket_fast(texts, _HASH_BUCKETS).numpy() % _DEV_SHARE
  pairs = list(zip(records, hashed, strict=True))
  return [r for r, h in pairs if h != 0], [r for r, h in pairs if h == 0]


def make_splits(
  train: Iterable[dict], test: Iterable[dict], *, dataset: Dataset
) -> dict[str, list[dict]]:
  """Returns the records of `train`, `dev` and `test`.

  Of CuratedTREC, questions whose id is no number are left out, as the original did.

  Raises:
    ValueError: if a published set has not the published counts.
  """
  train, test = list(train), list(test)
  if dataset == "curated_trec":
    train, test = ([r for r in part if r["id"].isdigit()] for part in (train, test))
  splits = dict(zip(SPLITS, (*split_train(train), test), strict=True))
  counts = tuple(map(len, splits.values()))
  expected = OFFICIAL_COUNTS.get(dataset, counts)
  if counts != expected:
    raise ValueError(
      f"{dataset} has {'/'.join(map(str, expected))} questions for train/dev/test, these files "
      f"give {'/'.join(map(str, counts))}; give all its files, or call it custom"
    )
  return splits


def write_splits(
  directory: str | os.PathLike, splits: dict[str, list[dict]], *, dataset: Dataset
) -> dict:
  """Writes `train.jsonl`, `dev.jsonl`, `test.jsonl` and the manifest into an empty directory.

  Returns:
    The manifest: `dataset`, and of each of the `files` its number of `questions` and `sha256`.
  """
  files = {}
  for split, records in splits.items():
    lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    content = "".join(lines).encode()
    with open(os.path.join(directory, f"{split}.jsonl"), "wb") as file:
      file.write(content)
    digest = hashlib.sha256(content).hexdigest()
    files[f"{split}.jsonl"] = {"questions": len(records), "sha256": digest}
  manifest = {"dataset": dataset, "files": files}
  with open(os.path.join(directory, questions.MANIFEST_FILE), "w", encoding="utf-8") as file:
    json.dump(manifest, file, indent=2)
    file.write("\n")
  return manifest
