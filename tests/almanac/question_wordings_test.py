import json

import pytest

from realm_jax.almanac import question_wordings, real_facts, writing
from realm_jax.almanac.kinds import KINDS
from realm_jax.almanac.world import make_world

RELATIONS = {
  relation.name: relation
  for relations in (*KINDS.values(), *(table.relations for table in real_facts.TABLES.values()))
  for relation in relations
}


@pytest.mark.parametrize("relation", sorted(RELATIONS))
def test_every_relation_can_be_asked_for(relation):
  question = question_wordings.ask(relation, article="the", subject="Nulvaclov")
  assert question.count("the Nulvaclov") == 1
  assert question[0].isupper() and question.endswith("?")


def test_no_wording_asks_for_what_there_is_not():
  assert question_wordings.QUESTIONS.keys() == RELATIONS.keys()


def test_the_same_facts_are_asked_for_as_are_masked(tmp_path):
  world = make_world(seed=3, num_invented_entities=40)
  writing.write_world(world, tmp_path)

  def read(name):
    return [json.loads(line) for line in (tmp_path / name).read_text("utf-8").splitlines()]

  for masked, asked in (
    (writing.TRAINING, writing.TRAINING_QUESTIONS),
    (writing.HELD_OUT, writing.HELD_OUT_QUESTIONS),
  ):
    masked, asked = read(masked), read(asked)
    assert [record["id"] for record in asked] == [record["id"] for record in masked]
    for before, after in zip(masked, asked, strict=True):
      start, limit = before["spans"][0]
      assert after["answer"] == [before["text"].encode()[start:limit].decode()]
      assert after["answer"][0] in after["passage"]
      assert after["answer"][0] not in after["question"].split()
