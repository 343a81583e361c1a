"""Answers as they are written: server-sent events, which hold their turn while they are written."""

import asyncio
import contextlib
import json
import threading
from collections.abc import Callable
from typing import Any

from fastapi import Request
from fastapi.encoders import jsonable_encoder
from fastapi.responses import Response, StreamingResponse

from realm_jax.web.application import REFUSED, Refusal, Turns

KIND = "text/event-stream"
_LOOK = 0.2  # seconds
_SILENT = 15.0  # seconds; proxies end a connection after 30 or 60 without a byte
# Is told what is written so far.
Told = Callable[[str], None]


class LeftError(Exception):
  """The client has closed its connection, so nothing more need be written."""


def wanted(request: Request) -> bool:
  """Returns whether a client asks for events."""
  return KIND in request.headers.get("accept", "")


async def respond(
  request: Request,
  turns: Turns,
  call: Callable[[Told], Any],
  *,
  last: str,
  reason: Callable[[Exception], str],
) -> Response:
  """Responds with events `text`, each with more of it, and one of the whole that is returned.

  The response begins with the first event, or after a while without one, and has comments while
  there are none, because of proxies; what is raised before is refused as without events, and
  afterwards told by an event `error`.

  Args:
    turns: Of which the call has one until it ends.
    call: Is given what to call with the text so far, and again and again with ""; that raises
      LeftError once the client has left.
    last: Name of the last event.
    reason: What clients are told of an error.
  """
  await request.body()  # only then can one look whether the client is there
  loop, news, left, written = asyncio.get_running_loop(), asyncio.Event(), threading.Event(), [""]

  def told(text: str) -> None:
    if left.is_set():
      raise LeftError
    if text:
      written[0] = text
      loop.call_soon_threadsafe(news.set)

  async def write() -> Any:
    try:
      return await turns.taken_by(call)(told)
    except Exception as error:  # is told below, or to nobody, as when the server stops
      return error
    finally:
      news.set()

  writing = asyncio.create_task(write())

  async def events():
    shown = ""
    try:
      while not writing.done():
        try:
          await asyncio.wait_for(news.wait(), _SILENT)
        except TimeoutError:
          yield ": wait\n\n"
          continue
        news.clear()
        if (text := written[0]) != shown:
          grows = text.startswith(shown)
          yield _event("text", {"text": text[len(shown) * grows :], "replaces": not grows})
          shown = text
      yield _last(writing, last, reason)
    finally:
      left.set()

  begun = loop.time()
  try:
    while not news.is_set() and loop.time() < begun + _SILENT:
      with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(news.wait(), _LOOK)
      if await request.is_disconnected():
        left.set()
        return Response()
    if writing.done():
      _result(writing)  # raises what refuses
  except BaseException:
    left.set()
    raise
  return StreamingResponse(events(), media_type=KIND, headers={"x-accel-buffering": "no"})


def _result(writing: asyncio.Task) -> Any:
  if isinstance(made := writing.result(), Exception):
    raise made
  return made


def _last(writing: asyncio.Task, name: str, reason: Callable[[Exception], str]) -> str:
  try:
    made = _result(writing)
  except REFUSED as error:
    refusal = Refusal.of(error, reason=reason)
    return _event("error", {"status": refusal.status, "detail": refusal.detail})
  is_page = isinstance(made, Response)
  return _event(name, bytes(made.body).decode() if is_page else jsonable_encoder(made))


def _event(name: str, data: Any) -> str:
  return f"event: {name}\ndata: {json.dumps(data)}\n\n"
