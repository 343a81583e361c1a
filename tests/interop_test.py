"""What `make test` skips, `make interop` runs."""

import pathlib
import re

TESTS = pathlib.Path(__file__).parent
# What `make test` installs.
INSTALLED = {"bm25s", "fastapi", "gcp_storage_emulator", "gcsfs", "ir_measures", "pyarrow"}
INSTALLED |= {"huggingface_hub", "markupsafe", "pypdfium2", "tokenizers", "uvicorn", "watchfiles"}


def test_every_test_of_an_extra_has_an_environment():
  marked, unmarked = set(), {}
  for file in TESTS.rglob("*_test.py"):
    text = file.read_text("utf-8")
    wanted = {name.split(".")[0] for name in re.findall(r'importorskip\(\s*"([\w.]+)"', text)}
    if "t5x_adapter" in file.parts or not wanted - INSTALLED:
      continue
    if re.search(r"mark\.(interop|parity)\b", text):
      marked.add(file.name)
    else:
      unmarked[file.name] = wanted - INSTALLED
  assert not unmarked, "mark these as `interop`, and add what they need to INTEROP in the Makefile"
  assert {"retrievers_test.py", "tree_searchers_test.py", "prepare_corpus_test.py"} <= marked
