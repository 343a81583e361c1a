"""Writes the built-in world as JSON Lines: documents, training sentences, questions, and edits.

Also a job, `realm realm_jax/demo/make_almanac.py --output=DIR`. Spans are `[start, limit)` in UTF-8
bytes of the text of their record; each is the value of a fact.
"""

import json
import os
import random
from collections.abc import Iterable, Mapping
from typing import Any

from realm_jax.demo.world import Fact, World, edit, make_world
from realm_jax.foundations import atomic_files, choices, object_store
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


def make_almanac(
  *,
  output: str,
  seed: int = 0,
  num_invented_entities: choices.CountOrZero = 6_500,
  num_edits: choices.CountOrZero = 100,
) -> None:
  """Writes `documents`, `training`, `heldout` and `values.jsonl`, and `edited/`, into `output`.

  Args:
    output: Directory to write; replaced as a whole when finished.
    seed: Seeds names, values, wordings and the held-out facts.
    num_invented_entities: Invented towns, ships, stars and the like, with two facts each.
    num_edits: Number of facts with a new value in `edited/documents.jsonl`, asked for in
      `edited/questions.jsonl`.
  """
  object_store.check_local(output=output)
  ALMANAC.check(output)
  world = make_world(seed=seed, num_invented_entities=num_invented_entities)
  edited = edit(world, seed=seed + 1, num_edits=num_edits)
  with atomic_files.new_directory(output, kind=ALMANAC) as directory:
    write_world(world, directory)
    write_edits(world, edited, os.path.join(directory, EDITED))
  held_out = sum(fact.held_out for fact in world.facts)
  print(f"{output}: {len(world.facts):,} facts, {held_out:,} of them held out", flush=True)


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
    the answers as whole words.
  * `manifest.json`: the settings.
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
  }
  for name, records in files.items():
    _write_lines(os.path.join(directory, name), records)
  atomic_files.write_json(os.path.join(directory, MANIFEST), manifest)


def write_edits(world: World, edited: World, directory: str | os.PathLike[str]) -> None:
  """Writes the files of a world and what `edit` made of it, each atomically.

  * `documents.jsonl`: the whole knowledge corpus with the new values.
  * `questions.jsonl`: a masked sentence for each edited fact, as in `heldout.jsonl`, with the new
    value as the answer and the additional fields old_answer and held_out.
  """
  questions = (
    {**_masked_sentence(new), "old_answer": old.value, "held_out": new.held_out}
    for old, new in zip(world.facts, edited.facts, strict=True)
    if old.value != new.value
  )
  _write_lines(os.path.join(directory, DOCUMENTS), _documents(edited))
  _write_lines(os.path.join(directory, QUESTIONS), questions)


def _documents(world: World) -> Iterable[Mapping[str, Any]]:
  for subject, facts in world.by_subject.items():
    text = ""
    spans = []
    for fact in facts:
      if text:
        text += " "
      offset = len(text.encode())
      sentence = fact.document_sentence
      text += sentence.text
      spans.append([offset + sentence.start, offset + sentence.limit])
    document_id = f"{facts[0].category}/{subject}"
    yield {"id": document_id, "title": subject, "text": text, "spans": spans}


def _values(world: World) -> Iterable[Mapping[str, Any]]:
  values = " ".join(sorted({fact.value for fact in world.facts}))
  return ({"id": f"values/{copy}", "title": "", "text": values} for copy in range(_VALUE_COPIES))


def _training_record(fact: Fact) -> Mapping[str, Any]:
  sentence = fact.training_sentence
  spans = [[sentence.start, sentence.limit]]
  return {"id": fact.fact_id, "title": "", "text": sentence.text, "spans": spans}


def _masked_sentence(fact: Fact) -> Mapping[str, Any]:
  sentence = fact.training_sentence
  return {
    "id": fact.fact_id,
    "text": sentence.text,
    "spans": [[sentence.start, sentence.limit]],
    "answer": fact.value,
    "subject": fact.subject,
    "relation": fact.relation.name,
    "kind": fact.kind,
    "passage": fact.document_sentence.text,
  }


def _question(fact: Fact) -> Mapping[str, Any]:
  return {
    "id": fact.fact_id,
    "question": fact.question,
    "answer": [fact.value],
    "kind": fact.kind,
    "passage": fact.document_sentence.text,
  }


def _write_lines(path: str, records: Iterable[Mapping[str, Any]]) -> None:
  lines = (json.dumps(record, ensure_ascii=False) + "\n" for record in records)
  atomic_files.write_text(path, "".join(lines))
