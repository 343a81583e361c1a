"""Flax modules with narrower types for `init`, `apply` and `param`."""

from typing import TYPE_CHECKING, Any

import flax.linen as nn
import jax

from realm_jax.devices import backend

backend.prepare()


class TypedModule(nn.Module):
  """A module that is applied without mutable variables.

  Flax's own annotations also allow frozen dictionaries, pairs with mutated variables and boxed
  parameters, which every caller would have to rule out.
  """

  if TYPE_CHECKING:

    def init(self, *args: Any, **kwargs: Any) -> dict[str, Any]: ...

    def apply(self, *args: Any, **kwargs: Any) -> Any: ...

    def param(self, *args: Any, **kwargs: Any) -> jax.Array: ...
