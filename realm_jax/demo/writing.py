"""Writes worlds as JSON Lines: the knowledge corpus, the training corpus and the questions.

Spans are `[start, limit)` in UTF-8 bytes of the text of their record; each is the value of a fact.
"""

import collections
import hashlib
import json
import os
import random
from collections.abc import Iterable, Mapping
from typing import Any

from realm_jax.demo.world import (
  EditedWorld,
  Fact,
  World,
  document_sentence,
  question,
  training_sentence,
)
from realm_jax.foundations import atomic_files
from realm_jax.foundations.output_kinds import DirectoryKind

DOCUMENTS = "documents.jsonl"
TRAINING = "training.jsonl"
HELD_OUT = "heldout.jsonl"
QUESTIONS = "questions.jsonl"
TRAINING_QUESTIONS = "training_questions.jsonl"
HELD_OUT_QUESTIONS = "heldout_questions.jsonl"
VALUES = "values.jsonl"
MANIFEST = "manifest.json"
EDITED = "edited"  # a folder
ALMANAC = DirectoryKind(
  name="an almanac",
  files=(
    *(DOCUMENTS, TRAINING, HELD_OUT, TRAINING_QUESTIONS, HELD_OUT_QUESTIONS, VALUES, MANIFEST),
    *(f"{EDITED}/{DOCUMENTS}", f"{EDITED}/{QUESTIONS}"),
  ),
  marks=(MANIFEST,),
)

_VALUE_COPIES = 10


def write_world(world: World, directory: str | os.PathLike[str]) -> None:
  """Writes a world's files, each atomically, the manifest last.

  * `documents.jsonl`: the knowledge corpus, one document per subject and one sentence per fact,
    separated by ". ". Fields: id, title, text, spans.
  * `training.jsonl`: the training corpus in shuffled order, one sentence for each fact that is not
    held out. Fields: id (of the fact), title (empty), text, spans.
  * `heldout.jsonl`: one masked sentence for each held-out fact. Fields: id, text (worded as in
    training, the answer not yet masked), spans (of the answer), answer, subject, relation, kind,
    passage (the document's sentence).
  * `training_questions.jsonl` and `heldout_questions.jsonl`: the same facts as questions, in the
    same order. Fields: id, question, answer (a list of one), kind, passage.
  * `values.jsonl`: every value ten times, so that a small vocabulary learned from it as well has
  the answers as whole words. * `manifest.json`: the settings, counts of facts, digests of the other
  files.
  """
  trained = [fact for fact in world.facts if not fact.held_out]
  random.Random(f"training order/{world.seed}").shuffle(trained)
  held_out = [fact for fact in world.facts if fact.held_out]
  files = {
    DOCUMENTS: _documents(world),
    TRAINING: map(_training_record, trained),
    HELD_OUT: map(_masked_sentence, held_out),
    TRAINING_QUESTIONS: map(_question, trained),
    HELD_OUT_QUESTIONS: map(_question, held_out),
    VALUES: _values(world),
  }
  manifest = {
    "seed": world.seed,
    "num_invented_entities": world.num_invented_entities,
    "held_out_fraction": world.held_out_fraction,
    "counts": _counts(world),
    "sha256": {
      name: _write_lines(os.path.join(directory, name), records) for name, records in files.items()
    },
  }
  atomic_files.write_json(os.path.join(directory, MANIFEST), manifest)


def write_edits(edited: EditedWorld, directory: str | os.PathLike[str]) -> None:
  """Writes an edited world's files, each atomically.

  * `documents.jsonl`: the whole knowledge corpus with the new values.
  * `questions.jsonl`: a masked sentence for each edited fact, as in `heldout.jsonl`, with the new
    value as the answer and the additional fields old_answer and held_out.
  """
  questions = (
    {**_masked_sentence(e.fact), "old_answer": e.old_value, "held_out": e.fact.held_out}
    for e in edited.edits
  )
  _write_lines(os.path.join(directory, DOCUMENTS), _documents(edited.world))
  _write_lines(os.path.join(directory, QUESTIONS), questions)


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


def _masked_sentence(fact: Fact) -> Mapping[str, Any]:
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


def _question(fact: Fact) -> Mapping[str, Any]:
  return {
    "id": fact.fact_id,
    "question": question(fact),
    "answer": [fact.value],
    "kind": fact.kind,
    "passage": document_sentence(fact).text,
  }


def _counts(world: World) -> Mapping[str, Any]:
  """Returns `{kind: {trained, held_out, relations: {category/relation: {trained, held_out}}}}`."""
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


def _write_lines(path: str, records: Iterable[Mapping[str, Any]]) -> str:
  """Writes JSON Lines; returns the SHA-256 digest of the file."""
  content = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
  atomic_files.write_text(path, content)
  return hashlib.sha256(content.encode()).hexdigest()
