# ir_measures has no type annotations that can be relied on.
from typing import Any

def __getattr__(name: str) -> Any: ...
