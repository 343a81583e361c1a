"""A knowledge base as the libraries of other programs see it; skipped where these are missing."""

import asyncio
import inspect

import pytest

import realm_jax


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem):
  """Runs coroutines, also those of other libraries' tests, in whatever mode plugins are."""
  if not inspect.iscoroutinefunction(pyfuncitem.obj):
    return None
  names = inspect.signature(pyfuncitem.obj).parameters
  asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
  return True


@pytest.fixture
def base(tmp_path):
  texts = [
    {"id": f"n{number}", "title": "Wings", "text": f"A wing flutters. Note {number}.", "n": number}
    for number in range(8)
  ]
  own = {"source": "https://example.org/a", "score": 7}
  texts.append({"id": "own", "text": "A rudder of its own.", **own})
  return realm_jax.KnowledgeBase.create(tmp_path / "kb", texts, language="en")
