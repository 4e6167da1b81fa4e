"""PyTorch's operators on emulated devices: they run on the CPU, in the order of their stream.

PyTorch calls `register` when it is imported (an entry point of the group "torch.backends").
Each aten operator with a kernel for CUDA gets another kernel. It computes the shapes of the results
with meta tensors, allocates them with PyTorch's CUDA allocator, and launches the CPU's operator on
the same memory. It keeps no tensor alive: memory that is reused too early gives wrong values, as on
a device. Views, allocations, and copies by cudaMemcpyAsync() stay PyTorch's own.
"""

from __future__ import annotations

import atexit
import ctypes
import itertools
import threading
import traceback
import warnings
from functools import partial

import torch
from cuda_emulator import control
from torch.utils._pytree import tree_leaves, tree_map

# Of PyTorch's own, though their results alias nothing.
KEPT = {"empty", "empty_strided", "resize_", "is_set_to", "record_stream", "_local_scalar_dense"}
# Composite operators that would choose an algorithm of cuDNN's.
WHOLE = ["aten::convolution", "aten::convolution_backward"]

_library = torch.library.Library("aten", "IMPL")  # its kernels live as long as it does
_launched: dict[int, object] = {}
_captured: set[int] = set()
_numbers = itertools.count(1)
_last = 0  # of these
_thread = threading.local()


def register() -> None:
    """Replace the kernels."""
    torch.backends.cudnn.enabled = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch warns when kernels are replaced
        _register()
    torch._C._cuda_emptyCache = partial(_empty_cache, torch._C._cuda_emptyCache)
    atexit.register(control.finish)  # kernels need the interpreter


def _register() -> None:
    names = torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
    for name in {*names, *WHOLE}:  # older versions list some of both
        if name.startswith("aten::") and torch._C._dispatch_has_computed_kernel_for_dispatch_key(
            name, "CPU"
        ):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            operator = getattr(getattr(torch.ops.aten, packet), overload or "default")
            if packet not in KEPT and not _is_view(operator._schema):
                _library.impl(operator, partial(_call, operator), "CUDA")
    _library.impl("copy_", _copy, "CUDA")


def _is_view(schema) -> bool:
    results = (result.alias_info for result in schema.returns)
    is_set = schema.name.startswith("aten::set_")
    return is_set or any(alias is not None and not alias.is_write for alias in results)


def _call(operator, *args, **kwargs):
    """Launch an operator; run it at once if its results depend on values."""
    schema = operator._schema
    if _has_numbers(schema, args):
        operator = operator.overloadpacket  # which finds the overload for numbers
    device = _device_of(schema, [x for x in tree_leaves((args, kwargs)) if _is_tensor(x)])
    meta_args, meta_kwargs = tree_map(_as_meta, (args, kwargs))
    try:
        if any(not _has_tensors(result.type) for result in schema.returns):
            raise NotImplementedError
        shapes = operator(*meta_args, **meta_kwargs)
    except Exception:  # the CPU's operator explains what is wrong, if anything is
        return _call_at_once(operator, schema, device, args, kwargs)
    written = _written(schema, args, kwargs)
    for tensor, meta in zip(written, _written(schema, meta_args, meta_kwargs), strict=True):
        if tensor.shape != meta.shape:
            tensor.resize_(meta.shape)
    if schema.returns and schema.returns[0].alias_info is not None:
        launch(device, partial(operator, *tree_map(_on_cpu, args), **tree_map(_on_cpu, kwargs)))
        return written[0] if len(schema.returns) == 1 else tuple(written[: len(schema.returns)])
    results = tree_map(partial(_allocated, device), shapes)
    cpu_args, cpu_kwargs, cpu_results = tree_map(_on_cpu, (args, kwargs, results))

    def work() -> None:
        computed = tree_leaves(operator(*cpu_args, **cpu_kwargs))
        for result, value in zip(tree_leaves(cpu_results), computed, strict=True):
            if result is not None:
                result.copy_(value)

    launch(device, work)
    return results


def _call_at_once(operator, schema, device, args, kwargs):
    torch.cuda.current_stream(device).synchronize()
    outs = {argument.name for argument in schema.arguments if argument.is_out}
    targets = {name: kwargs[name] for name in outs}
    fresh = {name: torch.empty(0, dtype=tensor.dtype) for name, tensor in targets.items()}
    results = operator(*tree_map(_on_cpu, args), **(tree_map(_on_cpu, kwargs) | fresh))
    for name, target in targets.items():
        target.resize_(fresh[name].shape).copy_(fresh[name])
    if schema.returns and schema.returns[0].alias_info is not None:
        written = _written(schema, args, kwargs)
        return written[0] if len(schema.returns) == 1 else tuple(written)
    return tree_map(lambda x: x.to(device) if _is_tensor(x) else x, results)


def _copy(target, source, non_blocking=False):
    """Copy as PyTorch does, but for the copies that it makes with a kernel."""
    if _on_device(target) and target.device == source.device:
        is_plain = target.dtype == source.dtype and target.shape == source.shape
        if not (is_plain and target.is_contiguous() and source.is_contiguous()):
            launch(target.device, partial(_on_cpu(target).copy_, _on_cpu(source)))
            return target
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)  # one kernel serves all devices
    return torch.ops.aten.copy_.default.redispatch(keys, target, source, non_blocking)


def launch(device: torch.device, work) -> None:
    """Run `work` behind what the current stream of the device has been given."""
    global _last
    number = _last = next(_numbers)
    _launched[number] = work
    stream = torch.cuda.current_stream(device).cuda_stream
    code, is_captured = control.launch(stream, device.index, _kernel, number)
    if code:
        del _launched[number]
        raise torch.AcceleratorError(f"CUDA error: emulated error {code}")
    if is_captured:
        _captured.add(number)  # graphs may run it again and again


def _empty_cache(empty) -> None:
    """Empty PyTorch's cache once no kernel is due.

    It holds a lock while it waits for streams, and a thread that waits for the lock may have the
    GIL, which our kernels need.
    """
    before = None
    while before != _last:  # other threads launch some meanwhile
        before = _last
        control.settle()
    empty()


@control.Kernel
def _kernel(number: int) -> None:
    if not hasattr(_thread, "state"):
        # Else ctypes makes and deletes a thread state for each kernel, without the GIL, and a
        # process forked meanwhile hangs: CPython 3.11 lists those of other threads under a lock.
        _thread.state = ctypes.pythonapi.PyGILState_Ensure()
    work = _launched[number] if number in _captured else _launched.pop(number)
    try:
        with torch.inference_mode():  # may write to what was made in it, and outside of it
            work()
    except BaseException:
        control.violation(f"an operator has failed:\n{traceback.format_exc()}")


def _device_of(schema, tensors) -> torch.device:
    """Return the device of the arguments, and refuse tensors of several as PyTorch does."""
    devices = {x.device for x in tensors if _on_device(x) or x.dim()}
    if "index" in schema.name:  # by tensors on the host as well
        devices.discard(torch.device("cpu"))
    if len(devices) > 1:
        raise RuntimeError(f"Expected all tensors to be on the same device, found {devices}")
    return devices.pop()


def _is_tensor(x) -> bool:
    return isinstance(x, torch.Tensor)


def _on_device(x) -> bool:
    return _is_tensor(x) and x.device.type == "cuda"


def _has_numbers(schema, args) -> bool:
    """Return whether numbers stand for tensors: PyTorch hands over some tensors like that."""
    pairs = zip(schema.arguments, args, strict=False)
    return any(
        isinstance(arg, int | float | complex) and _has_tensors(argument.type)
        for argument, arg in pairs
    )


def _has_tensors(schema_type) -> bool:
    return "Tensor" in str(schema_type)


def _as_meta(x):
    """Return an argument as it takes part in the computation of shapes."""
    if _on_device(x):
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype, device="meta")
    if isinstance(x, torch.device):
        return torch.device("meta")
    return None if isinstance(x, torch.Generator) else x


def _on_cpu(x):
    """Return an argument as the CPU's operator gets it: a tensor on the same memory."""
    if isinstance(x, torch.device):
        return torch.device("cpu")
    if isinstance(x, torch.Generator):
        return _drawing_as(x)
    if not _is_tensor(x):
        return x
    if x.device.type == "cpu":
        return x.clone() if x.dim() else x  # numbers do not change, and clones are no numbers
    storage = x.untyped_storage()
    if storage.nbytes() == 0:
        return torch.empty_strided(x.size(), x.stride(), dtype=x.dtype)
    memory = torch._C._construct_storage_from_data_pointer(
        storage.data_ptr(), torch.device("cpu"), storage.nbytes()
    )
    alias = torch.empty(0, dtype=x.dtype).set_(memory, x.storage_offset(), x.size(), x.stride())
    alias = alias.conj() if x.is_conj() else alias
    return torch._neg_view(alias) if x.is_neg() else alias


def _drawing_as(generator: torch.Generator) -> torch.Generator:
    """Return a generator of the CPU for one operator, and move that of the device on."""
    seed, offset = generator.initial_seed(), generator.get_offset()
    generator.set_offset(offset + 4)
    return torch.Generator().manual_seed(hash((seed, offset)))


def _allocated(device, meta):
    """Return memory for a result."""
    if not _is_tensor(meta):
        return meta
    return torch.empty_strided(meta.size(), meta.stride(), dtype=meta.dtype, device=device)


def _written(schema, args, kwargs) -> list:
    """Return the tensors that an operator writes to, in order."""
    tensors = []
    for position, argument in enumerate(schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            value = args[position] if position < len(args) else kwargs.get(argument.name)
            tensors += [x for x in tree_leaves(value) if _is_tensor(x)]
    return tensors
