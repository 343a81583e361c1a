"""Questions of several threads that are embedded in one call."""

import concurrent.futures
import threading

import numpy as np
import pytest

from realm_jax.knowledge_base.encoders.together import Together


def length_of(text):
  return np.array([len(text), text.count("o")])


def test_what_waits_is_embedded_together_and_each_gets_its_own():
  calls, begun, go_on = [], threading.Event(), threading.Event()

  def embed(texts):
    calls.append([*texts])
    begun.set()
    assert go_on.wait(30)
    return np.stack([*map(length_of, texts)])

  together = Together(embed, most=4)
  texts = ["o" * n for n in range(1, 11)]
  with concurrent.futures.ThreadPoolExecutor(len(texts)) as pool:
    found = [pool.submit(together, texts[0])]
    assert begun.wait(30)
    found += [pool.submit(together, text) for text in texts[1:]]
    while len(together._waiting) < len(texts) - 1:
      pass
    go_on.set()
    for text, one in zip(texts, found, strict=True):
      np.testing.assert_array_equal(one.result(), length_of(text))
  assert [len(call) for call in calls] == [1, 4, 4, 1]


def test_a_question_that_cannot_be_embedded_fails_alone():
  begun, go_on = threading.Event(), threading.Event()

  def embed(texts):
    begun.set()
    assert go_on.wait(30)
    if "bad" in texts:
      raise ValueError("bad is refused")
    return np.stack([*map(length_of, texts)])

  together = Together(embed, most=8)
  with concurrent.futures.ThreadPoolExecutor(4) as pool:
    first = pool.submit(together, "first")
    assert begun.wait(30)
    found = {text: pool.submit(together, text) for text in ("good", "bad", "too")}
    while len(together._waiting) < 3:
      pass
    go_on.set()
    assert first.result()[0] == 5 and found["good"].result()[0] == 4
    assert found["too"].result()[1] == 2
    with pytest.raises(ValueError, match="bad is refused"):
      found["bad"].result()


def test_who_is_interrupted_leaves_nobody_waiting():
  begun, go_on, interrupts = threading.Event(), threading.Event(), iter([True])

  def embed(texts):
    begun.set()
    assert go_on.wait(30)
    if "second" in texts and next(interrupts, False):
      raise KeyboardInterrupt
    return np.stack([*map(length_of, texts)])

  together = Together(embed, most=8)
  with concurrent.futures.ThreadPoolExecutor(3) as pool:
    first = pool.submit(together, "first")
    assert begun.wait(30)
    others = [pool.submit(together, text) for text in ("second", "third")]
    while len(together._waiting) < 2:
      pass
    go_on.set()
    assert first.result()[0] == 5
    errors = {type(one.exception()) for one in others}
  assert errors == {KeyboardInterrupt, RuntimeError} and together("second")[0] == 6
