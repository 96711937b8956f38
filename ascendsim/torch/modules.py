"""torch's convolution modules on the simulator: the same parameters and state, and a `setting`."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional

from ascendsim.torch.autograd import convolution
from ascendsim.torch.setting import Setting


class _Simulated:
    """Takes `setting` besides the arguments of the module of torch that comes after it."""

    def __init__(self, *args: Any, setting: Setting | None = None, **keywords: Any) -> None:
        super().__init__(*args, **keywords)
        self.setting = setting or Setting()


class _Plain(_Simulated):
    def _conv_forward(self: Any, input: torch.Tensor, weight: torch.Tensor, bias: Any) -> torch.Tensor:
        """Convolve; the module's `forward` calls this, as torch's own do."""
        padding = self.padding
        # torch keeps its pads from the last axis to the first, before and after each.
        pads = self._reversed_padding_repeated_twice
        if self.padding_mode != "zeros":
            input, padding = functional.pad(input, pads, mode=self.padding_mode), 0
        elif isinstance(padding, str):  # "same" and "valid"; an even kernel needs one pixel more on one side
            before, after = pads[-2::-2], pads[-1::-2]
            if before == after:
                padding = tuple(before)
            else:
                input, padding = functional.pad(input, pads), 0
        attributes = self.stride, padding, self.dilation, False, 0, self.groups
        return convolution(input, weight, bias, *attributes, setting=self.setting)


class _Transposed(_Simulated):
    def forward(self: Any, input: torch.Tensor, output_size: Any = None) -> torch.Tensor:
        """Convolve; `output_size` as torch's module takes it."""
        spare = self._output_padding(
            input,
            output_size,
            self.stride,
            self.padding,
            self.kernel_size,
            len(self.kernel_size),
            self.dilation,
        )
        attributes = self.stride, self.padding, self.dilation, True, spare, self.groups
        return convolution(input, self.weight, self.bias, *attributes, setting=self.setting)


class Conv1d(_Plain, torch.nn.Conv1d):
    """torch.nn.Conv1d on the simulator."""


class Conv2d(_Plain, torch.nn.Conv2d):
    """torch.nn.Conv2d on the simulator."""


class Conv3d(_Plain, torch.nn.Conv3d):
    """torch.nn.Conv3d on the simulator."""


class ConvTranspose1d(_Transposed, torch.nn.ConvTranspose1d):
    """torch.nn.ConvTranspose1d on the simulator."""


class ConvTranspose2d(_Transposed, torch.nn.ConvTranspose2d):
    """torch.nn.ConvTranspose2d on the simulator."""


class ConvTranspose3d(_Transposed, torch.nn.ConvTranspose3d):
    """torch.nn.ConvTranspose3d on the simulator."""
