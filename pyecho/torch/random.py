"""PyTorch's random functions with a generator of one's own, in one thread.

PyTorch draws from one global generator unless it is given another. Saving and restoring the state
of the global one (`torch.random.fork_rng`) would disturb every other thread, but a
`TorchFunctionMode` belongs to one thread: it sees each call of PyTorch's API and adds
``generator=`` where it is missing. Some functions, such as dropout, have no such argument; while
one of them runs, a dispatch mode adds the generator to the native operations it is made of.

These draws are not covered and use PyTorch's global generators: on another device than the CPU; in
TorchScript and compiled functions; in threads that the function starts; and in inference mode those
of dropout, recurrent layers and attention.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import _C
from torch.nn import functional, init
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

_R = TypeVar("_R")


def _functions(where: Any, names: str) -> set[Any]:
    return {getattr(where, name) for name in names.split() if hasattr(where, name)}


# Functions with a keyword `generator`.
_WITH = _functions(torch, "rand randn randint randperm normal bernoulli multinomial") | _functions(
    torch.Tensor,
    "bernoulli multinomial bernoulli_ cauchy_ exponential_ geometric_ log_normal_ normal_ random_ "
    "uniform_",
)

# Functions that draw and have no `generator`, or not in every version, or not as a keyword.
_WITHOUT = (
    _functions(
        torch,
        "rand_like randn_like randint_like poisson binomial _standard_gamma _sample_dirichlet "
        "dropout dropout_ alpha_dropout alpha_dropout_ feature_dropout feature_dropout_ "
        "feature_alpha_dropout feature_alpha_dropout_ rrelu rrelu_ lstm gru rnn_tanh rnn_relu "
        "svd_lowrank pca_lowrank lobpcg",
    )
    | _functions(
        functional,
        "dropout dropout1d dropout2d dropout3d alpha_dropout feature_alpha_dropout rrelu "
        "gumbel_softmax fractional_max_pool2d fractional_max_pool2d_with_indices "
        "fractional_max_pool3d fractional_max_pool3d_with_indices scaled_dot_product_attention "
        "multi_head_attention_forward",
    )
    | _functions(init, "uniform_ normal_ kaiming_uniform_")
)

_TAKES_GENERATOR = dict.fromkeys(_WITH, True) | dict.fromkeys(_WITHOUT, False)

_FILLS = {"rand_like": "uniform_", "randn_like": "normal_", "randint_like": "random_"}
_FACTORIES = {"rand", "randn", "randint", "randperm"}
_FACTORY_OVERLOADS = {"default": "generator", "low": "low_generator"}


def _on_cpu(args: Any, kwargs: dict[str, Any]) -> bool:
    """Return True if a random function with these arguments draws on the CPU."""
    if kwargs.get("device") is not None:
        return torch.device(kwargs["device"]).type == "cpu"
    tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, torch.Tensor)]
    # Without tensors the default device decides; torch.get_default_device() takes far longer.
    return all(tensor.is_cpu for tensor in tensors or [torch.empty(0)])


class SeededTorch(TorchFunctionMode):
    """Calls functions whose random numbers come from a generator of its own."""

    def __init__(self, seed: Callable[[], int]) -> None:
        super().__init__()
        self._seed = seed  # called at the first draw
        self._made: torch.Generator | None = None
        self._operations: _SeededOperations | None = None

    def call(self, function: Callable[[], _R]) -> _R:
        """Call a function, in this thread. Not a ``with`` block: Ctrl-C could cut short its end."""
        try:
            _C._push_on_torch_function_stack(self)
            return function()
        finally:
            _C._pop_torch_function_stack()

    def _generator(self) -> torch.Generator:
        if self._made is None:
            self._made = torch.Generator("cpu").manual_seed(self._seed())
        return self._made

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call `func`, which draws from the generator if it draws at all."""
        kwargs = kwargs or {}
        takes_generator = _TAKES_GENERATOR.get(func)
        if takes_generator is None or torch.compiler.is_compiling() or not _on_cpu(args, kwargs):
            return func(*args, **kwargs)
        if not takes_generator:
            self._operations = self._operations or _SeededOperations(self._generator)
            return self._operations.call(func, args, kwargs)
        if kwargs.get("generator") is None:
            kwargs = {**kwargs, "generator": self._generator()}
        return func(*args, **kwargs)


class _SeededOperations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Gives the generator to native operations that draw."""

    def __init__(self, generator: Callable[[], torch.Generator]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._generator = generator

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # or the first draw would import torch._dynamo, which takes seconds

    def call(self, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        # Not a `with` block either, which also sets flags of the whole process, from which
        # torch.compile in another thread would conclude that a mode is active there.
        try:
            _C._push_on_torch_dispatch_stack(self)
            return func(*args, **kwargs)
        finally:
            _C._pop_torch_dispatch_stack(None)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Call the operation, with the generator if it draws on the CPU and was given none."""
        kwargs = kwargs or {}
        if (
            torch.Tag.nondeterministic_seeded not in func.tags
            or kwargs.get("generator") is not None
            or not _on_cpu(args, kwargs)
        ):
            return func(*args, **kwargs)
        kwargs = {name: value for name, value in kwargs.items() if name != "generator"}
        name, overload = func.overloadpacket.__name__, func._overloadname
        if name in _FILLS:
            filled = torch.ops.aten.empty_like.default(args[0], **kwargs)
            return getattr(filled, _FILLS[name])(*map(int, args[1:]), generator=self._generator())
        if name in _FACTORIES:
            func = getattr(func.overloadpacket, _FACTORY_OVERLOADS.get(overload, overload))
        arguments = [argument.name for argument in func._schema.arguments[len(args) :]]
        if "generator" in arguments:
            kwargs["generator"] = self._generator()
        return func(*args, **kwargs)
