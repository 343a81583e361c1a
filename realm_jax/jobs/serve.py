"""Serves the inspector: a page and an HTTP API that show what was retrieved and why."""

import ipaddress
import os
import random
import signal

from absl import logging

from realm_jax.data.questions import read_questions
from realm_jax.inspector.limits import LimitSettings
from realm_jax.jobs.mask_filling import open_mask_filler

_EDITS_FILE = "edits.json"


def serve(
  *,
  checkpoints: str,
  passages: str,
  index: str,
  step: int | None = None,
  generation: int | None = None,
  second_checkpoints: str | None = None,
  second_index: str | None = None,
  second_step: int | None = None,
  second_generation: int | None = None,
  names: tuple[str, str] = ("this model", "second model"),
  history: int = 6,
  max_answer_length: int = 4,
  editable: bool = False,
  questions: str | None = None,
  num_examples: int = 6,
  host: str = "127.0.0.1",
  port: int = 8080,
  body_bytes: int = 65_536,
  requests_per_minute: int = 1200,
  burst: int = 60,
) -> None:
  """Opens one or two models, and answers until told to stop.

  Args:
    checkpoints: directory of the checkpoints of a pre-training.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    second_checkpoints: checkpoints of a model shown beside the first; none: just one model, unless
      `second_step` names another one of the same training.
    second_index: its generations; none: those of the first.
    second_step: its checkpoint; none: the newest.
    second_generation: its generation; none: the newest.
    names: what the two are called.
    history: generations whose rankings are compared; each is held in memory.
    max_answer_length: wordpieces of an answer at most.
    editable: whether edits of passages are kept for all, in the corpus's `edits.json`; otherwise
      they end with the session.
    questions: JSON Lines with masked questions, of which some are offered as examples.
    num_examples: how many.
    host: address to listen at; 0.0.0.0 is every one of this machine.
    port: to listen at.
    body_bytes: of a request at most.
    requests_per_minute: of one client address, on average.
    burst: requests of one client address at once.

  Raises:
    FileNotFoundError: if an input is missing.
    ValueError: if inputs do not fit each other.
    ImportError: if FastAPI or uvicorn is not installed.
  """
  try:
    import uvicorn

    from realm_jax.inspector import desk, edit_books, page, server
  except ImportError as error:
    raise ImportError(
      f"{error}; `realm serve` needs the extra: pip install 'realm_jax[serve]'"
    ) from error
  models = {
    names[0]: open_mask_filler(
      checkpoints=checkpoints,
      passages=passages,
      index=index,
      step=step,
      generation=generation,
      max_answer_length=max_answer_length,
      history=history,
    )
  }
  if second_checkpoints is not None or second_step is not None:
    models[names[1]] = open_mask_filler(
      checkpoints=second_checkpoints or checkpoints,
      passages=passages,
      index=second_index or index,
      step=second_step,
      generation=second_generation,
      max_answer_length=max_answer_length,
    )
  for model in models.values():
    model.warm_up()
  first = models[names[0]]
  book = (
    edit_books.SharedEdits(
      os.path.join(passages, _EDITS_FILE), corpus=first.store.fingerprint, write=first.write
    )
    if editable
    else edit_books.SessionEdits()
  )
  examples = [] if questions is None else _examples(questions, num_examples)
  app = server.make_app(
    desk.Desk(models, book),
    limits=LimitSettings(
      body_bytes=body_bytes,
      requests_per_minute=requests_per_minute,
      burst=burst,
      hosts=_names(host),
    ),
    examples=[page.Example(text=text, answer=answer) for text, answer in examples],
  )
  logging.info("the inspector is at http://%s:%d", host, port)
  print(f"http://{host}:{port}", flush=True)
  for number in (signal.SIGTERM, signal.SIGINT):
    # uvicorn ends in order, and then raises the signal once more for whoever was there before.
    signal.signal(number, lambda *_: None)
  uvicorn.run(
    app,
    host=host,
    port=port,
    log_level="warning",
    server_header=False,
    timeout_keep_alive=30,
    timeout_graceful_shutdown=10,
  )


def _names(host: str) -> tuple[str, ...]:
  """Returns the names that a server on the local machine alone goes by; none: any."""
  try:
    local = ipaddress.ip_address(host).is_loopback
  except ValueError:
    local = host == "localhost"
  return ("127.0.0.1", "localhost", "[::1]") if local else ()


def _examples(path: str, number: int) -> list[tuple[str, str]]:
  questions = read_questions(path)
  drawn = random.Random(0).sample(questions, min(number, len(questions)))
  return [(question.masked_text, question.answer) for question in drawn]
