"""Flax modules whose `init`, `apply` and `param` have the types that their users see."""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax


class TypedModule(nn.Module):
  """A module that is applied without mutable variables.

  Flax's own annotations also admit frozen dictionaries, pairs with mutated variables and boxed
  parameters, which every use would have to rule out.
  """

  if TYPE_CHECKING:

    def init(self, *args: Any, **kwargs: Any) -> dict[str, Any]: ...

    def apply(self, *args: Any, **kwargs: Any) -> Any: ...

    def param(self, *args: Any, **kwargs: Any) -> jax.Array: ...
