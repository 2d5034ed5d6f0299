"""Whether variables fit the parameters they are meant for: all of them are looked at before any is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from throughtime._errors import shape_of
from throughtime._tensors import is_lazy
from throughtime.cells._parameters import LazyCell
from throughtime.interop.checkpoints._parameter_names import ParameterSlot, Targets
from throughtime.interop.checkpoints._partitioned_variables import Shape
from throughtime.interop.checkpoints._variable import Variable


def misfits(found: Targets, coming: Mapping[str, Variable], dtypes: Mapping[str, torch.dtype | None]) -> list[str]:
    """A line for every variable that does not fit."""
    lines = []
    for name, variable in coming.items():
        place = found.places[name]
        if not is_lazy(place.parameter) and shape_of(place.in_tensorflow()) != variable.shape:
            lines.append(f"{name}: got shape {variable.shape}, expected {shape_of(place.in_tensorflow())}")
        elif not _holds(place.parameter.dtype, dtypes[name]):
            lines.append(
                f"{name}: got {variable.dtype}, which {place.parameter.dtype} does not hold; convert after loading"
            )
    shapes = {id(found.places[name].parameter): _here(found.places[name], coming[name]) for name in coming}
    return lines + [line for module in found.modules for line in _unbuilt(module, shapes)]


def _here(place: ParameterSlot, variable: Variable) -> Shape:
    return place.shape_in_torch(variable.shape)


def _holds(dtype: torch.dtype, coming: torch.dtype | None) -> bool:
    """Whether every number of one dtype is one of the other: nothing is rounded in silence."""
    if coming is None or dtype == coming:
        return coming is not None
    if dtype.is_floating_point and coming.is_floating_point:
        ours, theirs = torch.finfo(dtype), torch.finfo(coming)
        return ours.max >= theirs.max and ours.eps <= theirs.eps
    whole = not any(each.is_floating_point or each.is_complex or each == torch.bool for each in (dtype, coming))
    return (
        whole
        and torch.iinfo(dtype).min <= torch.iinfo(coming).min
        and (torch.iinfo(dtype).max >= torch.iinfo(coming).max)
    )


def _unbuilt(root: nn.Module, shapes: Mapping[int, Shape]) -> Iterator[str]:
    """What modules that are not built yet say of the shapes that come: the width of their inputs is free."""
    for path, module in root.named_modules():
        if not any(map(is_lazy, module.parameters())):
            continue
        if isinstance(module, LazyCell):
            yield from _lazy_cell(module, path, shapes)
        else:
            yield from _lazy_layer(module, path, shapes)


def _lazy_cell(cell: LazyCell, path: str, shapes: Mapping[int, Shape]) -> Iterator[str]:
    own = {name: parameter for name, parameter in cell.named_parameters() if name in cell._paths}
    coming = {name: shapes[id(parameter)] for name, parameter in own.items() if id(parameter) in shapes}
    try:
        cell._check_loaded(coming | cell._loaded(), path)
    except ValueError as error:
        yield str(error)


def _lazy_layer(module: nn.Module, path: str, shapes: Mapping[int, Shape]) -> Iterator[str]:
    """A layer of ours says `units`, one of torch `out_features`: the side that does not depend on inputs."""
    layer: Any = module
    for attribute, name, axis in (("units", "kernel", 1), ("out_features", "weight", 0)):
        parameter = module._parameters.get(name)
        if not isinstance(parameter, Tensor) or not is_lazy(parameter) or id(parameter) not in shapes:
            continue
        shape, units = shapes[id(parameter)], getattr(layer, attribute, None)
        if len(shape) != 2 or units not in (None, shape[axis]):
            yield f"`{path}.{name}`: got shape {shape}, expected a matrix for {units} units"
