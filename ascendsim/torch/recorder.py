"""A few training steps on torch, and the tensors of each layer's backward in files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ascendsim.arguments import whole
from ascendsim.errors import ConfigError
from ascendsim.torch.dispatch import ByTorch, ConvolutionMode
from ascendsim.torch.layers import Filter, Layer, checked_filter, wanted
from ascendsim.torch.tensors import array_of

Loss = Callable[[torch.Tensor, Any], torch.Tensor]


def record(
    model: torch.nn.Module,
    loader: Iterable[Any],
    steps: int,
    folder: str | Path = "recorded",
    *,
    loss: Loss | None = None,
    optimizer: Any = None,
    layers: Filter = None,
) -> tuple[Path, ...]:
    """Train for some steps, and write what the backward of each convolution takes.

    loader     batches (input, target); `steps` of them are taken, or as many as there are
    folder     is made if it is missing; files of the same names in it are replaced
    loss       function of output and target; None: cross entropy
    optimizer  takes a step after each batch; None: the weights stay as they are
    layers     as of a `Simulation`
    Returns    the files, LAYER.stepN.npz, in the order in which they were written: activations (input),
               gradients (grad_output), weight, attributes and output_mask, as `ascendsim run --npz` reads
               them. bfloat16 and 8-bit tensors are there as codes, which `--dtype` names
    Raises     ConfigError for a folder that cannot be made, batches that are no pairs, no number of steps;
               UnsupportedError for tensors of other types than the simulator's
    """
    count = whole(steps)
    if count is None or count < 1:
        raise ConfigError(f"record: steps is {steps!r}; it must be a positive whole number")
    writer = _Writer(_made(folder), checked_filter(layers))
    for number, batch in enumerate(islice(loader, count)):
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            kind = type(batch).__name__
            raise ConfigError(f"record: batch {number} is a {kind}; it must be (input, target)")
        writer.step = number
        model.zero_grad()
        with writer:
            (loss or torch.nn.functional.cross_entropy)(model(batch[0]), batch[1]).backward()
        if optimizer is not None:
            optimizer.step()
    return tuple(writer.written)


class _Writer(ConvolutionMode):
    """Writes the tensors of every backward that it sees; torch computes all of them."""

    def __init__(self, folder: Path, layers: Filter) -> None:
        super().__init__()
        self._folder, self._layers = folder, layers
        self.step, self.written = 0, list[Path]()

    def take(self, layer: Layer, tensors: tuple[Any, ...], by_torch: ByTorch) -> Any:
        if layer.direction == "backward" and wanted(layer, self._layers):
            p = layer.problem
            names = ("grad_output", "input", "weight")
            attributes: dict[str, Any] = {
                "stride": p.stride,
                "padding": p.padding,
                "dilation": p.dilation,
                "transposed": p.transposed,
                "output_padding": p.output_padding,
                "groups": p.groups,
                "output_mask": layer.mask,
            }
            arrays = {name: _plain(array_of(t)) for name, t in zip(names, tensors, strict=True)}
            np.savez(self._path(layer.name), **arrays, **attributes)
        return by_torch()

    def _path(self, name: str) -> Path:
        """Return a file for a backward of this step; a module that runs twice has two."""
        safe = re.sub(r"[^\w.#-]+", "_", name).strip("_")
        stem = f"{safe}.step{self.step}"
        path, number = self._folder / f"{stem}.npz", 1
        while path in self.written:
            number += 1
            path = self._folder / f"{stem}.{number}.npz"
        self.written.append(path)
        return path


def _made(folder: str | Path) -> Path:
    path = Path(folder)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigError(f"record: folder {path} cannot be made ({error.strerror or error})") from error
    return path


def _plain(array: Any) -> Any:
    """Return an array of numpy's own types: bits, where the format is another library's."""
    if array.dtype in (np.float32, np.float16):
        return array
    return array.view(np.uint8 if array.itemsize == 1 else np.uint16)
