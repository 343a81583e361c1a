"""Serves the inspector: a page and an HTTP API that show what was retrieved and why."""

import dataclasses
import ipaddress
import os
import random
import signal
import socket

from absl import logging

from realm_jax.data.questions import read_questions
from realm_jax.inference.answerer import Answerer
from realm_jax.saved.answering_models import open_answerer
from realm_jax.saved.opening import Sources

_EDITS_FILE = "edits.json"
_TABLE_3 = (  # of Guu et al. 2020
  "An equilateral triangle is easily constructed using a straightedge and compass, because 3 is a "
  "[MASK] prime.",
  "Fermat",
)


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
  questions: tuple[str, ...] = (),
  num_examples: int = 6,
  host: str = "127.0.0.1",
  port: int = 8080,
  body_bytes: int = 65_536,
  requests_per_minute: int = 1200,
  burst: int = 60,
) -> None:
  """Opens one or two models, and answers until told to stop.

  Args:
    checkpoints: directory of the checkpoints of a pre-training or a fine-tuning.
    passages: directory of the knowledge corpus to answer from.
    index: directory of the index generations of that corpus.
    step: checkpoint; none: the newest.
    generation: index generation; none: the newest.
    second_checkpoints: checkpoints of a model shown beside the first, or which answers questions
      where the first one fills masks; none: just one model, unless `second_step` names another one
      of the same training.
    second_index: its generations; none: those of the first.
    second_step: its checkpoint; none: the newest.
    second_generation: its generation; none: the newest.
    names: what the two are called.
    history: generations whose rankings are compared; each is held in memory for each model.
    max_answer_length: wordpieces that fill a mask at most.
    editable: whether edits of passages are kept for all, in the corpus's `edits.json`; otherwise
      they end with the session.
    questions: JSON Lines with questions or masked sentences, of which some are offered as examples.
    num_examples: how many of each file.
    host: address to listen at; 0.0.0.0 is every one of this machine.
    port: to listen at; 0: any that is free, the address printed names it.
    body_bytes: of a request at most.
    requests_per_minute: of one client address, on average.
    burst: requests of one client address at once.

  Raises:
    FileNotFoundError: if an input is missing.
    ValueError: if inputs do not fit each other, the port is taken, or FastAPI or uvicorn is not
      installed.
  """
  try:
    import uvicorn

    from realm_jax.inspector import edit_stores, page, server
    from realm_jax.inspector.limits import LimitSettings
    from realm_jax.inspector.service import AnsweringService
  except ImportError as error:
    raise ValueError(
      f"{error}; `realm serve` needs the extra: pip install -e '.[serve]' in the checkout"
    ) from error
  # Before the models are opened, which takes seconds.
  listener = _bound(host, port)
  first = Sources(
    checkpoints=checkpoints, passages=passages, index=index, step=step, generation=generation
  )
  second = dataclasses.replace(
    first,
    checkpoints=second_checkpoints or checkpoints,
    index=second_index or index,
    step=second_step,
    generation=second_generation,
  )
  several = second_checkpoints is not None or second_step is not None
  models = {
    name: open_answerer(sources, max_answer_length=max_answer_length, history=history)
    for name, sources in zip(names, (first, second) if several else (first,), strict=False)
  }
  for model in models.values():
    model.warm_up()
  corpus = models[names[0]].corpus
  edit_store = (
    edit_stores.SharedEdits(
      os.path.join(passages, _EDITS_FILE), corpus=corpus.store.fingerprint, write=corpus.write
    )
    if editable
    else edit_stores.SessionEdits()
  )
  examples = [example for path in questions for example in _examples(path, num_examples)]
  if any(_takes(model, *_TABLE_3) for model in models.values()):
    examples.append(_TABLE_3)
  app = server.make_app(
    AnsweringService(models, edit_store),
    limits=LimitSettings(
      body_bytes=body_bytes,
      requests_per_minute=requests_per_minute,
      burst=burst,
      hosts=_names(host),
    ),
    examples=[page.Example(text=text, answer=answer) for text, answer in examples],
  )
  address = f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
  config = uvicorn.Config(
    app,
    log_level="warning",
    server_header=False,
    timeout_keep_alive=30,
    timeout_graceful_shutdown=10,
  )
  running = uvicorn.Server(config)

  def stop(*_) -> None:
    # Before uvicorn has handlers of its own; and after it has ended in order, when it raises the
    # signal once more for whoever was there before.
    running.should_exit = True

  signals = (signal.SIGTERM, signal.SIGINT)
  before = [signal.signal(number, stop) for number in signals]
  try:
    listener.listen()
    logging.info("the inspector is at %s", address)
    print(address, flush=True)
    running.run(sockets=[listener])
  finally:
    for number, handler in zip(signals, before, strict=True):
      signal.signal(number, handler)


def _bound(host: str, port: int) -> socket.socket:
  """Returns a socket that has the address but does not listen yet."""
  listener = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
  listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
  try:
    listener.bind((host, port))
  except OSError as error:
    listener.close()
    raise ValueError(
      f"cannot listen at {host}, port {port}: {error.strerror}; choose another --port or --host"
    ) from error
  return listener


def _names(host: str) -> tuple[str, ...]:
  """Returns the names that a server on the local machine alone goes by; none: any."""
  try:
    local = ipaddress.ip_address(host).is_loopback
  except ValueError:
    local = host == "localhost"
  return ("127.0.0.1", "localhost", "[::1]") if local else ()


def _takes(model: Answerer, text: str, answer: str) -> bool:
  try:
    return model.kind == "mask" and bool(model.explain([text], target=answer))
  except ValueError:  # too long for it
    return False


def _examples(path: str, number: int) -> list[tuple[str, str]]:
  questions = read_questions(path)
  drawn = random.Random(0).sample(questions, min(number, len(questions)))
  return [
    (question.masked_text if question.span else question.text, question.answer)
    for question in drawn
  ]
