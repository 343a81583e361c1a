"""Files that were made to cost much: each is read or named, in bounded time and memory."""

import bz2
import contextlib
import gzip
import json
import random
import resource
import time

import pytest

from realm_jax.corpus import limits
from realm_jax.corpus.documents import Document
from realm_jax.corpus.input_files import find_files
from realm_jax.corpus.reading import DocumentReader

_SECONDS = 8  # of CPU, for what takes a tenth of it
_MEBIBYTES = 512


@contextlib.contextmanager
def bounded_memory():
  soft, hard = resource.getrlimit(resource.RLIMIT_AS)
  with open("/proc/self/statm") as sizes:
    used = int(sizes.read().split()[0]) * resource.getpagesize()
  resource.setrlimit(resource.RLIMIT_AS, (used + _MEBIBYTES * 2**20, hard))
  try:
    yield
  finally:
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def read(path, content):
  """Returns the documents of a folder with a file, and what is said of it."""
  path.write_bytes(content if isinstance(content, bytes) else content.encode())
  (path.parent / "z.txt").write_text("Moss\nIt grows.")
  (files,) = find_files([str(path.parent)])
  documents, wrong, start = [], [], time.process_time()
  with bounded_memory():
    for record in DocumentReader(files):
      (documents if isinstance(record, Document) else wrong).append(record)
  assert time.process_time() - start < _SECONDS
  assert documents.pop().id == "z.txt", "the others are read"
  assert all("\n" not in record.reason and record.name for record in wrong)
  return documents, wrong


def record(**fields):
  return json.dumps({"text": "Moss grows.", **fields})


BOMB = b"a " * 2**24
BLANK = b" " * 1_023 + b"\n"
TOO_LONG = f"longer than {limits.RECORD:,} characters; divide it"
UNPACKED = f"bytes unpack to more than {limits.UNPACKED:,}; unpack it"
DIGITS = "9" * 10_000
REFUSED = {  # what is refused, and what is said of it
  "gzip": ("a.txt.gz", lambda: gzip.compress(BOMB), UNPACKED),
  "bzip2": ("a.txt.bz2", lambda: bz2.compress(bytes(2**25)), UNPACKED),
  "gzip-lines": ("a.jsonl.gz", lambda: gzip.compress(BLANK * 2**15), UNPACKED),
  "gzip-rows": ("a.csv.gz", lambda: gzip.compress(b"id,text\n" + BLANK * 2**15), UNPACKED),
  "gzip-record": ("a.jsonl.gz", lambda: gzip.compress(b'{"text":"%b"}' % BOMB), UNPACKED),
  "text": ("a.txt", lambda: BOMB, TOO_LONG),
  "markdown": ("a.md", lambda: BOMB[: 2**23], f"than {limits.MARKDOWN:,} characters; divide it"),
  "line": ("a.jsonl", lambda: record(text=BOMB.decode()), TOO_LONG),
  "cell": ("a.csv", lambda: f'text\n"{BOMB.decode()}"', TOO_LONG),
  "item": ("a.json", lambda: f"[\n{record(text=BOMB.decode())}\n]", TOO_LONG),
  "fields": ("a.jsonl", lambda: record(**{f"f{n}": 1 for n in range(20_000)}), "20,001 fields"),
  "columns": ("a.csv", lambda: "text" + ",c" * 100_000 + "\nMoss\n", "100,001 fields"),
  "no-names": ("a.csv", lambda: "text" + "," * 10**6 + "\nMoss\n", "1,000,001 fields"),
  "cells": ("a.csv", lambda: "text,id\nMoss" + ",x" * 10**6, "1000001 cells for 2 columns"),
  "deep": ("a.jsonl", lambda: f'{{"text": "a", "n": {"[" * 10**5}', "nested too deep"),
  "deep-array": ("a.json", lambda: "[\n" * 10**5, "nested too deep"),
  "digits": ("a.jsonl", lambda: f'{{"text": "a", "n": {DIGITS}}}', "4,300 digits"),
  "digits-id": ("a.json", lambda: f'[{{"text": "a", "id": {DIGITS}}}]', "4,300 digits"),
  "nul": ("a.md", lambda: bytes(2**20), "NUL characters"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_costs_too_much_is_refused_by_name_with_the_bound(tmp_path, name):
  file, content, reason = REFUSED[name]
  documents, wrong = read(tmp_path / file, content())
  assert not documents and len(wrong) == 1
  assert wrong[0].name.startswith(f"{tmp_path}/{file}") and reason in wrong[0].reason


def merged(depth, bases):
  rows = [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * bases)}]}}" for n in range(1, depth)]
  return "\n".join(["---", "a0: &a0 {x: 1}", *rows, "---", "Moss grows."])


READ = {  # what costs no more than it has, and a word that is found of it
  "merge-keys": ("a.md", lambda: merged(9, 9)),
  "references": ("a.md", lambda: merged(9, 9).replace("{<<: ", "").replace("]}", "]")),
  "itself": ("a.md", lambda: "---\na: &a [*a]\nb: &b {<<: *b}\n---\nMoss grows."),
  "yaml-digits": ("a.md", lambda: f"---\nn: {DIGITS}\n---\nMoss grows."),
  "yaml-deep": ("a.md", lambda: f"---\nn: {'[' * 5_000}\n---\nMoss grows."),
  "toml-deep": ("a.md", lambda: f"+++\nn = {'[' * 15_000}\n+++\nMoss grows."),
  "toml-dots": ("a.md", lambda: f"+++\n{'a.' * 15_000}b = 1\n+++\nMoss grows."),
  "toml-digits": ("a.md", lambda: f"+++\nn = {DIGITS}\n+++\nMoss grows."),
  "yaml-code": ("a.md", lambda: "---\na: !!python/object/apply:os.system [exit]\n---\nMoss grows."),
  "sexagesimal": ("a.md", lambda: f"---\na: 1{':59' * 9_000}\n---\nMoss grows."),
  "long-matter": ("a.md", lambda: "---\n" + "a: b\n" * 20_000 + "---\nMoss grows."),
  "fences": ("a.md", lambda: "---\n" * 20_000 + "Moss grows."),
  "tags": ("a.md", lambda: "Moss\n\n<div>\n" + "<a" * 80_000),
  **{
    text: ("a.md", lambda text=text: "Moss\n\n<div>\n" + text * 20_000)
    for text in ("<script ", "<script>", "<a b='", '<a =">" ', "<!-- ", "<p>", "</a ", "<![")
  },
  "quotes": ("a.md", lambda: "Moss " + ">" * 30_000),
  "brackets": ("a.md", lambda: "Moss " + "[" * 10_000),
  "title": ("a.jsonl", lambda: record(title="title " * 50_000)),
  "id": ("a.jsonl", lambda: record(id="i" * 10**6)),
  "unclosed": ("a.csv", lambda: "id,text\n" + '1,"Moss\n' * 20_000),
  "quotations": ("a.csv", lambda: "id,text\n1,Moss\n" + 'a",",c\n' * 20_000),
  "lines-of-a-cell": ("a.csv", lambda: 'id,text\n1,"Moss\n' + "a\n" * 2 * 10**5),
  "empty-cells": ("a.csv", lambda: "id,text\n1,Moss" + "," * 10**6),
}


@pytest.mark.parametrize("name", READ)
def test_what_looks_costly_is_read(tmp_path, name):
  file, content = READ[name]
  documents, _ = read(tmp_path / file, content())
  assert any("Moss" in document.title + document.text for document in documents)


KINDS = {
  "gzip": (".txt", gzip.compress(b"Moss")),
  "bzip2": (".jsonl", bz2.compress(b"Moss")),
  "PDF": (".md", b"%PDF-1.7\n%\xe2\xe3"),
  "not a zip": (".csv", b"PK\3\4\x14\0\6\0"),
  "Parquet": (".json", b"PAR1\x15\4"),
  "not gz": (".txt.gz", b"Moss grows."),
  "not bz2": (".jsonl.bz2", b"Moss grows."),
  "as Parquet": (".parquet", b"Moss grows."),
  "is gzip": (".txt.bz2", bz2.compress(gzip.compress(b"Moss"))),
  "truncated": (".txt.gz", gzip.compress(b"Moss " * 1_000)[:-12]),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_what_its_name_says_is_named(tmp_path, kind):
  suffix, content = KINDS[kind]
  documents, (bad,) = read(tmp_path / f"a{suffix}", content)
  assert not documents and bad.name == f"{tmp_path}/a{suffix}" and kind in bad.reason


_SPACE = (" ", "\n", "\n\n", "\t", "\r\n", "\ufeff", "\0", "\x85", "\u2028")
_PIECES = {
  ".jsonl": '{ } [ ] " : , "text" {"text":"a"} {"id": \\ \\u \\ud800 1e999 NaN 99 -'.split(),
  ".csv": '" "" , ; \t | id,text a,b "a" \'a\' a"b"'.split(" "),
  ".md": (
    "--- +++ a: &a *a <<: [ ] ( ) ![ [a] [a]: http://b <a <a> </a> <div> <script </script> <!-- "
    "--> <![CDATA[ <? ` ``` ~~~ ~~ * ** _ # ## - 1. > | |-| & &lt; &#x \\ = ' \" : ? ! % @ { } <br>"
  ).split(),
}
_ENCODINGS = ("utf-8", "utf-8", "utf-8", "utf-16", "utf-16-le", "utf-32", "latin-1", "cp1252")


def hostile(random, suffix):
  """Returns a file of few pieces in an odd order, each many times, in some encoding."""
  pieces = random.sample([*_PIECES[suffix], *_SPACE, "a", "Moss", "é", "日"], k=8)
  text = "".join(
    "".join(random.choices(pieces, k=random.randrange(1, 5))) * int(10 ** random.uniform(0, 3.5))
    for _ in range(random.randrange(1, 6))
  )
  start = "id,text\n" if suffix == ".csv" and random.random() < 0.8 else ""
  content = (start + text).encode(random.choice(_ENCODINGS), errors="replace")
  for _ in range(random.choice((0, 0, 0, 3))):
    place = random.randrange(len(content))
    content = content[:place] + random.randbytes(1) + content[place + 1 :]
  return content


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("suffix", _PIECES)
def test_odd_texts_cost_little_and_become_texts_or_are_named(tmp_path, suffix, seed):
  content = hostile(random.Random(f"{suffix}{seed}"), suffix)
  documents, wrong = read(tmp_path / f"a{suffix}", content)
  assert documents or wrong
  for document in documents:
    json.dumps(document.fields, allow_nan=False)
    (document.id + document.title + document.text).encode()
