"""Networks, layers and doors of torch for tests, which are skipped where torch is missing."""

import numpy as np
import pytest

from ascendsim.numerics.dtypes import dtype as lookup_dtype

# -------------------------------------------------------------------------------------------------------
# Small convolutions and networks of torch, shared by tests; they are skipped where torch is missing.
# -------------------------------------------------------------------------------------------------------

torch = pytest.importorskip("torch", reason="torch is not installed: its door cannot be opened")
cat, nn = torch.cat, torch.nn

door = pytest.importorskip("ascendsim.torch")

torch.set_num_threads(1)  # small tensors: handing them to threads takes longer than the arithmetic

KINDS = {
    "float32": torch.float32,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


def ones_and_zeros(shape, seed=0):
    """Draw -1, 0 and 1: sums of their products are exact in float32, so every order gives one result."""
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float32)


def normal(shape, dtype="float32", seed=0):
    """Draw a tensor of a type."""
    values = np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
    return torch.from_numpy(values).to(KINDS[dtype])


def same_bits(a, b):
    """Tell whether two tensors have one type and the same bits."""
    kinds = {1: torch.uint8, 2: torch.int16, 4: torch.int32}
    bits = (t.detach().contiguous().view(kinds[t.element_size()]) for t in (a, b))
    return a.dtype == b.dtype and torch.equal(*bits)


def attributes(problem):
    """Return stride, padding, dilation, transposed, output_padding and groups as torch takes them."""
    spread = (problem.stride, problem.padding, problem.dilation, problem.output_padding)
    *sizes, spare = (np.broadcast_to(value, problem.rank).tolist() for value in spread)
    return *sizes, problem.transposed, spare, problem.groups


def small_network():
    """A network with every kind of layer: grouped, strided, transposed, with a bias and without."""
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Conv2d(1, 4, 3, padding=1),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 8, 3, stride=2, padding=1, groups=2, bias=False),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(8, 4, 2, stride=2),
        torch.nn.ReLU(),
        torch.nn.Conv2d(4, 1, 3, padding="same", bias=False),
    )


def train(network, steps):
    """Train as any script does, and return the losses: nothing here knows of a simulator."""
    images = torch.randn(4, 1, 8, 8, generator=torch.Generator().manual_seed(1))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(network(images), images.roll(1, -1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


# -------------------------------------------------------------------------------------------------------
# Gradients by PyTorch in float64, and how far from them a gradient in ordered float32 arithmetic may be.
# -------------------------------------------------------------------------------------------------------

float64_torch = pytest.importorskip(
    "torch", reason="torch is not installed: no independent convolution to compare with"
)

float64_torch.set_num_threads(1)  # small tensors: handing them to threads takes longer than the arithmetic

UNIT = 2.0**-24  # half the distance of neighbouring float32 values, relative
TINY = 2.0**-149


def torch_gradients(problem, grad_output, input, weight, mask=(True, True, True)):
    """Return grad_input, grad_weight and grad_bias as float64 arrays, None where masked.

    Four paddings are applied to the big side by hand, and cut off its gradient again.
    """
    given = [np.asarray(array, np.float64) for array in (grad_output, input, weight)]
    rank = problem.rank
    pads = problem.pads[3 - rank :]
    symmetric = all(before == after for before, after in pads)
    if not symmetric:
        big = 0 if problem.transposed else 1
        given[big] = np.pad(given[big], ((0, 0), (0, 0), *pads))
    made = float64_torch.ops.aten.convolution_backward(
        *(float64_torch.from_numpy(np.ascontiguousarray(array)) for array in given),
        [problem.grad_output[1]],
        list(problem.strides[3 - rank :]),
        [before if symmetric else 0 for before, _ in pads],
        list(problem.dilations[3 - rank :]),
        problem.transposed,
        [0] * rank if not problem.transposed else list(np.broadcast_to(problem.output_padding, rank)),
        problem.groups,
        list(mask),
    )
    grad_input, grad_weight, grad_bias = (
        gradient.numpy() if wanted else None for gradient, wanted in zip(made, mask, strict=True)
    )
    if grad_input is not None and not symmetric and not problem.transposed:
        inner = tuple(
            slice(before, before + size) for (before, _), size in zip(pads, problem.input[2:], strict=True)
        )
        grad_input = grad_input[(slice(None), slice(None), *inner)]
    return grad_input, grad_weight, grad_bias


def terms(problem):
    """Return at least as many roundings as an element of each gradient meets.

    Every product may round twice (itself and its sum), zeros of the padding and of a last group of 32
    channels included, and there are no more parts and lanes than terms.
    """
    taps = int(np.prod(problem.kernel))
    pixels = problem.batch * int(np.prod(problem.small_size))
    channels = max(problem.small_channels, problem.big_channels) + 32
    return (2 * taps * channels + 64, 2 * pixels + 64, 2 * int(np.prod(problem.grad_output)) + 64)


def rounded_by(fmt, values):
    """Return what one rounding of these values into a format may add, nearest or half a unit away."""
    fmt = lookup_dtype(fmt)
    if fmt.bits == 32:
        return np.zeros_like(values)
    least = 2.0**-22 if fmt.tapered else np.ldexp(1.0, fmt.min_exponent - fmt.mantissa_bits)
    # hifloat8 keeps at least one mantissa bit up to 2**15, and none below 2**-15
    unit = 0.5 if fmt.tapered else 2.0 ** -(fmt.mantissa_bits + 1)
    return np.abs(values) * unit + least


def bounds(problem, call, cube, given):
    """Return the largest difference from float64 of each gradient.

    Derivation   a sum of n terms with n roundings is off by at most n u / (1 - n u) times the sum of their
                 magnitudes (u = 2**-24; 2 u where a model rounds toward zero, or cuts terms 24 bits below the
                 largest), plus n times the smallest subnormal; each format on the way out rounds once more
    cube, given  the tensors as the cube multiplies them, and grad_output as it came
    """
    magnitudes = torch_gradients(problem, *(np.abs(array) for array in cube))
    magnitudes = (*magnitudes[:2], np.abs(np.asarray(given, np.float64)).sum(axis=bias_axes(problem)))
    ways = (
        (call.leaves_in("grad_input"), call.dtypes["grad_input"]),
        ("float16" if call.squeezed else "float32", call.dtypes["grad_weight"]),
        (call.leaves_in("grad_bias"), call.dtypes["grad_bias"]),
    )
    result = []
    for count, size, formats in zip(terms(problem), magnitudes, ways, strict=True):
        n = 2 * count * UNIT
        error = n / (1 - n) * size + count * TINY
        for fmt in formats:
            error = error + rounded_by(fmt, size + error)
        result.append(error)
    return result


def bias_axes(problem):
    return (0, *range(2, 2 + problem.rank))


# -------------------------------------------------------------------------------------------------------
# The built-in networks as modules of PyTorch, written from the papers, to hold the tables of layers
# against.
# -------------------------------------------------------------------------------------------------------
# Only what decides the shapes of layers is here: normalisations and activations keep shapes and are left out.


def add_classifier(model, features):
    """Add the three linear layers of AlexNet and VGG."""
    model.flat = nn.Flatten()
    for number, (inputs, outputs) in enumerate(((features, 4096), (4096, 4096), (4096, 1000)), 6):
        model.add_module(f"fc{number}", nn.Linear(inputs, outputs))


class AlexNet(nn.Sequential):
    """Krizhevsky et al. 2012: the two halves that ran on two GPUs are two groups of layers 2, 4 and 5."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 96, 11, stride=4)
        self.pool1 = nn.MaxPool2d(3, 2)
        self.conv2 = nn.Conv2d(96, 256, 5, padding=2, groups=2)
        self.pool2 = nn.MaxPool2d(3, 2)
        self.conv3 = nn.Conv2d(256, 384, 3, padding=1)
        self.conv4 = nn.Conv2d(384, 384, 3, padding=1, groups=2)
        self.conv5 = nn.Conv2d(384, 256, 3, padding=1, groups=2)
        self.pool5 = nn.MaxPool2d(3, 2)
        add_classifier(self, 256 * 6 * 6)


class Vgg16(nn.Sequential):
    """Simonyan and Zisserman 2014, configuration D."""

    def __init__(self):
        super().__init__()
        channels = 3
        for stage, (width, depth) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], 1):
            for number in range(1, depth + 1):
                self.add_module(f"conv{stage}_{number}", nn.Conv2d(channels, width, 3, padding=1))
                channels = width
            self.add_module(f"pool{stage}", nn.MaxPool2d(2))
        add_classifier(self, 512 * 7 * 7)


class MobileNetV2(nn.Sequential):
    """Sandler et al. 2018, table 2; rows are expansion, channels, repeats, stride."""

    ROWS = (
        *((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2)),
        *((6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)),
    )

    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 32, 3, stride=2, padding=1, bias=False)
        channels, block = 32, 0
        for expansion, width, repeats, stride in self.ROWS:
            for number in range(repeats):
                inner = expansion * channels
                if expansion > 1:
                    self.add_module(f"b{block}_expand", nn.Conv2d(channels, inner, 1, bias=False))
                step = stride if number == 0 else 1
                depthwise = nn.Conv2d(inner, inner, 3, step, 1, groups=inner, bias=False)
                self.add_module(f"b{block}_depthwise", depthwise)
                self.add_module(f"b{block}_project", nn.Conv2d(inner, width, 1, bias=False))
                channels, block = width, block + 1
        self.last = nn.Conv2d(channels, 1280, 1, bias=False)
        self.pool, self.flat = nn.AdaptiveAvgPool2d(1), nn.Flatten()
        self.classifier = nn.Linear(1280, 1000)


class UNet3d(nn.Module):
    """Cicek et al. 2016, figure 2: no padding, so that the skipped tensors are cropped in the middle."""

    def __init__(self):
        super().__init__()
        # (in, first width, second width) of a level; what goes up keeps its channels.
        down = [(3, 32, 64), (64, 64, 128), (128, 128, 256), (256, 256, 512)]
        up = [(256 + 512, 256, 256), (128 + 256, 128, 128), (64 + 128, 64, 64)]
        for side, levels in (("down", down), ("up", up)):
            for level, (given, first, second) in enumerate(levels, 1):
                self.add_module(f"{side}{level}_conv1", nn.Conv3d(given, first, 3))
                self.add_module(f"{side}{level}_conv2", nn.Conv3d(first, second, 3))
        for level, width in enumerate((512, 256, 128), 1):
            self.add_module(f"up{level}_upconv", nn.ConvTranspose3d(width, width, 2, 2, bias=False))
        self.last = nn.Conv3d(64, 3, 1)

    def forward(self, x):
        skipped = []
        for level in range(1, 5):
            if level > 1:
                skipped.append(x)
                x = nn.functional.max_pool3d(x, 2)
            x = self._twice(f"down{level}", x)
        for level in range(1, 4):
            x = self.get_submodule(f"up{level}_upconv")(x)
            other = skipped.pop()
            cut = [(big - small) // 2 for big, small in zip(other.shape[2:], x.shape[2:], strict=True)]
            for axis, (first, length) in enumerate(zip(cut, x.shape[2:], strict=True), 2):
                other = other.narrow(axis, first, length)
            x = self._twice(f"up{level}", cat((other, x), 1))
        return self.last(x)

    def _twice(self, name, x):
        return self.get_submodule(f"{name}_conv2")(self.get_submodule(f"{name}_conv1")(x))


def conv(given, width, kernel=1, stride=1, padding=None):
    padding = kernel // 2 if padding is None else padding
    return nn.Conv2d(given, width, kernel, stride, padding, bias=False)


class Bottleneck(nn.Module):
    def __init__(self, width, shortcut):
        super().__init__()
        self.cv1, self.cv2, self.shortcut = conv(width, width), conv(width, width, 3), shortcut

    def forward(self, x):
        return x + self.cv2(self.cv1(x)) if self.shortcut else self.cv2(self.cv1(x))


class C3(nn.Module):
    """The block of YOLOv5 with three 1x1 convolutions around its bottlenecks."""

    def __init__(self, given, width, repeats=1, shortcut=True):
        super().__init__()
        half = width // 2
        self.cv1, self.cv2, self.cv3 = conv(given, half), conv(given, half), conv(2 * half, width)
        self.m = nn.Sequential(*(Bottleneck(half, shortcut) for _ in range(repeats)))

    def forward(self, x):
        return self.cv3(cat((self.m(self.cv1(x)), self.cv2(x)), 1))


class Sppf(nn.Module):
    """Three poolings one after the other, and all of them side by side."""

    def __init__(self, width):
        super().__init__()
        self.cv1, self.cv2 = conv(width, width // 2), conv(2 * width, width)

    def forward(self, x):
        parts = [self.cv1(x)]
        for _ in range(3):
            parts.append(nn.functional.max_pool2d(parts[-1], 5, 1, 2))
        return self.cv2(cat(parts, 1))


class Yolov5s(nn.Module):
    """Ultralytics YOLOv5 v6.0, small: depths 0.33 and widths 0.5 of its table; 80 classes, 3 anchors."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(
            *(conv(3, 32, 6, 2, 2), conv(32, 64, 3, 2), C3(64, 64), conv(64, 128, 3, 2), C3(128, 128, 2)),
            *(conv(128, 256, 3, 2), C3(256, 256, 3), conv(256, 512, 3, 2), C3(512, 512), Sppf(512)),
        )
        self.p5, self.p4 = conv(512, 256), conv(256, 128)
        self.c3_p4, self.c3_p3 = C3(512, 256, 1, False), C3(256, 128, 1, False)
        self.down3, self.down4 = conv(128, 128, 3, 2), conv(256, 256, 3, 2)
        self.c3_n4, self.c3_n5 = C3(256, 256, 1, False), C3(512, 512, 1, False)
        self.detect = nn.ModuleList(nn.Conv2d(width, 3 * (80 + 5), 1) for width in (128, 256, 512))

    def forward(self, x):
        kept = {}
        for number, module in enumerate(self.backbone):
            x = kept[number] = module(x)
        p5 = self.p5(x)
        p4 = self.p4(self.c3_p4(cat((double(p5), kept[6]), 1)))
        n3 = self.c3_p3(cat((double(p4), kept[4]), 1))
        n4 = self.c3_n4(cat((self.down3(n3), p4), 1))
        n5 = self.c3_n5(cat((self.down4(n4), p5), 1))
        return [head(x) for head, x in zip(self.detect, (n3, n4, n5), strict=True)]


def double(x):
    return nn.functional.interpolate(x, scale_factor=2, mode="nearest")


# The network, and the size of one of its images.
NETWORKS = {
    "alexnet": (AlexNet, (3, 227, 227)),
    "vgg16": (Vgg16, (3, 224, 224)),
    "mobilenet_v2": (MobileNetV2, (3, 224, 224)),
    "unet3d": (UNet3d, (3, 116, 132, 132)),
    "yolov5s": (Yolov5s, (3, 640, 640)),
}
