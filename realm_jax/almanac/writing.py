"""Worlds as files: the knowledge corpus, the training corpus and the questions, one JSON a line.

Spans are `[start, limit)` in UTF-8 bytes of the text beside them, each a fact's value.
"""

import collections
import hashlib
import json
import os
import pathlib
import random
import tempfile
from collections.abc import Iterable, Mapping
from typing import Any

from realm_jax.almanac import question_wordings
from realm_jax.almanac.world import (
  EditedWorld,
  Fact,
  World,
  document_sentence,
  training_sentence,
)

DOCUMENTS = "documents.jsonl"
TRAINING = "training.jsonl"
HELD_OUT = "heldout.jsonl"
QUESTIONS = "questions.jsonl"
TRAINING_QUESTIONS = "training_questions.jsonl"
HELD_OUT_QUESTIONS = "heldout_questions.jsonl"
VALUES = "values.jsonl"
MANIFEST = "manifest.json"

_VALUE_COPIES = 10


def write_world(world: World, directory: str | os.PathLike[str]) -> None:
  """Writes a world's files; each appears whole or not at all, the manifest last.

  * `documents.jsonl`, the knowledge corpus, one document a subject: id, title, text, spans. A
    sentence a fact; sentences end with ". ", the last with ".".
  * `training.jsonl`, the training corpus in shuffled order, one sentence for each fact that is not
    held out: id (of the fact), title (empty), text, spans.
  * `heldout.jsonl`, one question for each held-out fact: id, text (worded as in training, the
    answer not yet masked), spans (of the answer), answer, subject, relation, kind, passage (the
    document's sentence).
  * `training_questions.jsonl` and `heldout_questions.jsonl`, the same facts asked for outright, in
    the same order: id, question, answer (a list of one), kind, passage.
  * `values.jsonl`, every value ten times over: read beside the corpora when a vocabulary is
    learned, it makes the answers whole words of a small vocabulary.
  * `manifest.json`: the settings, counts of facts, digests of the other files.
  """
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  trained = [fact for fact in world.facts if not fact.held_out]
  random.Random(f"training order/{world.seed}").shuffle(trained)
  held_out = [fact for fact in world.facts if fact.held_out]
  digests = {
    DOCUMENTS: _write(directory / DOCUMENTS, _lines(_documents(world))),
    TRAINING: _write(directory / TRAINING, _lines(map(_training_record, trained))),
    HELD_OUT: _write(directory / HELD_OUT, _lines(map(_question, held_out))),
    TRAINING_QUESTIONS: _write(
      directory / TRAINING_QUESTIONS, _lines(map(_asked_outright, trained))
    ),
    HELD_OUT_QUESTIONS: _write(
      directory / HELD_OUT_QUESTIONS, _lines(map(_asked_outright, held_out))
    ),
    VALUES: _write(directory / VALUES, _lines(_values(world))),
  }
  manifest = {
    "seed": world.seed,
    "num_invented_entities": world.num_invented_entities,
    "held_out_fraction": world.held_out_fraction,
    "counts": _counts(world),
    "sha256": digests,
  }
  _write(directory / MANIFEST, json.dumps(manifest, indent=2) + "\n")


def write_edits(edited: EditedWorld, directory: str | os.PathLike[str]) -> None:
  """Writes an edited world's files; each appears whole or not at all.

  * `documents.jsonl`, the whole knowledge corpus with the new values.
  * `questions.jsonl`, one question for each edited fact, as in `heldout.jsonl` with the new value
    as the answer, and besides old_answer and held_out.
  """
  directory = pathlib.Path(directory)
  directory.mkdir(parents=True, exist_ok=True)
  questions = [
    {
      **_question(change.fact),
      "old_answer": change.old_value,
      "held_out": change.fact.held_out,
    }
    for change in edited.edits
  ]
  _write(directory / DOCUMENTS, _lines(_documents(edited.world)))
  _write(directory / QUESTIONS, _lines(questions))


def _documents(world: World) -> Iterable[Mapping[str, Any]]:
  for subject, facts in world.by_subject.items():
    text = ""
    spans = []
    for fact in facts:
      if text:
        text += " "
      offset = len(text.encode())
      sentence = document_sentence(fact)
      text += sentence.text
      spans.append([offset + sentence.start, offset + sentence.limit])
    document_id = f"{facts[0].category}/{subject}"
    yield {"id": document_id, "title": subject, "text": text, "spans": spans}


def _values(world: World) -> Iterable[Mapping[str, Any]]:
  values = " ".join(sorted({fact.value for fact in world.facts}))
  return ({"id": f"values/{copy}", "title": "", "text": values} for copy in range(_VALUE_COPIES))


def _training_record(fact: Fact) -> Mapping[str, Any]:
  sentence = training_sentence(fact)
  spans = [[sentence.start, sentence.limit]]
  return {"id": fact.fact_id, "title": "", "text": sentence.text, "spans": spans}


def _question(fact: Fact) -> Mapping[str, Any]:
  sentence = training_sentence(fact)
  return {
    "id": fact.fact_id,
    "text": sentence.text,
    "spans": [[sentence.start, sentence.limit]],
    "answer": fact.value,
    "subject": fact.subject,
    "relation": fact.relation,
    "kind": fact.kind,
    "passage": document_sentence(fact).text,
  }


def _asked_outright(fact: Fact) -> Mapping[str, Any]:
  return {
    "id": fact.fact_id,
    "question": question_wordings.ask(fact.relation, article=fact.article, subject=fact.subject),
    "answer": [fact.value],
    "kind": fact.kind,
    "passage": document_sentence(fact).text,
  }


def _counts(world: World) -> Mapping[str, Any]:
  """`{kind: {trained, held_out, relations: {category/relation: {trained, held_out}}}}`."""
  tally = collections.Counter(
    (fact.kind, f"{fact.category}/{fact.relation}", "held_out" if fact.held_out else "trained")
    for fact in world.facts
  )
  counts: dict[str, Any] = {}
  for (kind, relation, part), number in sorted(tally.items()):
    of_kind = counts.setdefault(kind, {"trained": 0, "held_out": 0, "relations": {}})
    of_kind[part] += number
    of_relation = of_kind["relations"].setdefault(relation, {"trained": 0, "held_out": 0})
    of_relation[part] = number
  return counts


def _lines(records: Iterable[Mapping[str, Any]]) -> str:
  return "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)


def _write(path: pathlib.Path, text: str) -> str:
  """Replaces a file in one step; returns the SHA-256 digest of its bytes."""
  content = text.encode()
  descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
  try:
    with os.fdopen(descriptor, "wb") as file:
      file.write(content)
    os.chmod(temporary, 0o644)  # mkstemp's files are private
    os.replace(temporary, path)
  except BaseException:
    os.unlink(temporary)
    raise
  return hashlib.sha256(content).hexdigest()
