"""Asking and serving, from checkpoints on disk to answers on the terminal and over HTTP."""

import concurrent.futures
import gzip
import json
import os
import queue
import signal
import socket
import threading
import urllib.request

import pytest

from realm_jax.answering.open_answerer import open_answerer
from realm_jax.checkpoints.opening import Sources
from realm_jax.evaluation.systems import Asking
from realm_jax.foundations import atomic_files
from realm_jax.jobs.answering import ask as ask_job
from realm_jax.jobs.answering.ask import ask
from realm_jax.jobs.answering.evaluate import evaluate
from realm_jax.jobs.answering.serve import serve
from realm_jax.web.inspector.service import AnsweringService

pytestmark = pytest.mark.timeout(600)
SENTENCE = "The capital of France is [MASK]."
QUESTION = "What is the capital of France?"


@pytest.fixture(scope="module")
def corpus(world):
  return {"passages": str(world / "passages"), "index": str(world / "index")}


@pytest.fixture(scope="module")
def pretrained(world):
  return str(world / "first" / "checkpoints")


def test_every_job_gives_the_same_answer_to_the_same_question(
  world, corpus, tuned_whole, tmp_path, monkeypatch, capsys
):
  """Alone and in batches of several sizes; the inspector's service stands for its page."""
  heldout = (world / "almanac" / "heldout_questions.jsonl").read_text("utf-8").splitlines()[::30]
  questions = tmp_path / "questions.jsonl"
  questions.write_text("\n".join(heldout), "utf-8")
  asked = [json.loads(line)["question"] for line in heldout]
  sources = Sources(checkpoints=tuned_whole, **corpus)
  written = tmp_path / "answers.jsonl"
  ask(sources=sources, questions=str(questions), output=str(written), answers=1)
  predicted = [json.loads(line) for line in written.read_text("utf-8").splitlines()]
  asking = Asking(batch_size=16)
  evaluate(sources=sources, asking=asking, questions=str(questions), output=str(tmp_path / "run"))
  lines = (tmp_path / "run" / "predictions.jsonl").read_text("utf-8").splitlines()
  evaluated = {line["question"]: line for line in map(json.loads, lines)}
  model = open_answerer(sources)
  service = AnsweringService(model)
  batches = [asked[first : first + 16] for first in range(0, len(asked), 16)]
  with concurrent.futures.ThreadPoolExecutor(4) as clients:
    answered = clients.map(lambda batch: service.ask(batch, session=""), batches)
    shown = [explanation for batch in answered for explanation in batch]
  assert len(asked) == len(predicted) == len(evaluated) == len(shown) > 24
  for text, line, explanation in zip(asked, predicted, shown, strict=True):
    (answer,) = line["answers"]
    assert line["prediction"] == evaluated[text]["prediction"] == explanation.likeliest
    assert evaluated[text]["read_ids"] == [p["passage_id"] for p in line["passages"]]
    found = explanation.answers[0].probability
    assert found == pytest.approx(answer["probability"], rel=1e-4)
    contributions = [passage.contribution for passage in explanation.passages]
    assert found == pytest.approx(max(contributions), rel=1e-6)
  monkeypatch.setattr(ask_job, "open_answerer", lambda sources, **_: model)
  for text, line in zip(asked, predicted, strict=True):
    explained = ask(text, sources=sources)
    assert explained["answer"] == line["prediction"]
    assert f"\n  {line['prediction']}   p(y,z|x) = " in capsys.readouterr().out


def test_questions_in_an_object_store_are_answered_there(emulated_gcs, corpus, tuned_whole):
  asked = {"question": QUESTION, "asked_by": "Zoë"}
  questions, output = "gs://bucket/asked.jsonl.gz", "gs://bucket/answers.jsonl"
  atomic_files.write_bytes(questions, gzip.compress(json.dumps(asked).encode() + b"\n\n"))
  sources = Sources(checkpoints=tuned_whole, **corpus)
  ask(sources=sources, questions=questions, output=output)
  answered = json.loads(emulated_gcs.read("answers.jsonl"))
  assert answered.items() >= asked.items() and answered["prediction"]


@pytest.mark.parametrize(
  ("path", "text", "count"), [("fill_mask", SENTENCE, 3), ("answer", QUESTION, 8)]
)
def test_a_served_model_answers_until_it_is_told_to_stop(
  world, corpus, pretrained, tuned_whole, monkeypatch, path, text, count
):
  lines, answers, before = queue.Queue(), [], signal.getsignal(signal.SIGTERM)
  said = lambda line, file=None, **_: lines.put(line) if file is None else None  # noqa: E731
  monkeypatch.setattr("builtins.print", said)

  def ask_and_stop():
    address = lines.get(timeout=120)
    try:
      request = urllib.request.Request(
        f"{address}/api/{path}",
        json.dumps({"texts": [text], "rankings": True}).encode(),
        {"content-type": "application/json"},
      )
      with urllib.request.urlopen(request) as response:
        answers.extend(json.load(response)["explanations"])
      with urllib.request.urlopen(f"{address}/ready") as response:
        answers.append(json.load(response))
    finally:
      os.kill(os.getpid(), signal.SIGTERM)

  client = threading.Thread(target=ask_and_stop, daemon=True)
  client.start()
  questions = (
    str(world / "almanac" / "heldout.jsonl"),
    str(world / "almanac" / "heldout_questions.jsonl"),
  )
  serve(
    sources=Sources(checkpoints=pretrained if path == "fill_mask" else tuned_whole, **corpus),
    questions=questions,
    port=0,
    history=1,
  )
  client.join()
  answered, ready = answers
  assert answered["query"] == text and len(answered["passages"]) == count
  assert [ranking["generation"] for ranking in answered["rankings"]] == [0]
  # Fine-tuning has changed what embeds questions since the index was built.
  assert answered["rankings"][0]["own_query_encoder"] == (path == "fill_mask")
  assert ready == {"status": "ready"}
  assert signal.getsignal(signal.SIGTERM) is before


def test_a_port_that_is_taken_is_said_before_models_are_opened(corpus):
  with socket.create_server(("127.0.0.1", 0)) as taken:
    port = taken.getsockname()[1]
    with pytest.raises(ValueError, match=f"cannot listen at 127.0.0.1, port {port}: Address alr.*"):
      serve(sources=Sources(checkpoints="nowhere", **corpus), port=port)
