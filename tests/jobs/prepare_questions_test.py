from realm_jax.data.questions import read_questions
from realm_jax.jobs.preparation.prepare_questions import prepare_questions
from tests.json_lines import write_lines


def test_questions_of_several_files_are_split_and_can_be_read(tmp_path):
  records = [{"question": f"what is x{i}?", "answer": ["x"]} for i in range(40)]
  a = write_lines(tmp_path / "a.jsonl", *records[:10])
  b = write_lines(tmp_path / "b.jsonl", *records[10:])
  asked = {"question": "where?", "answer": ["(x|y)"], "regex": True}
  test = write_lines(tmp_path / "test.jsonl", asked)
  output = tmp_path / "prepared"
  manifest = prepare_questions(train=[str(a), str(b)], test=[str(test)], output=str(output))
  parts = {name: read_questions(output / f"{name}.jsonl") for name in ("train", "dev", "test")}
  assert {f"{name}.jsonl": len(part) for name, part in parts.items()} == {
    name: file["questions"] for name, file in manifest["files"].items()
  }
  asked = sorted(q.text for name in ("train", "dev") for q in parts[name])
  assert asked == sorted(record["question"] for record in records)
  assert len({q.id for name in ("train", "dev") for q in parts[name]}) == 40
  assert parts["test"][0].regex
