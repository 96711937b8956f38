"""The calls whose figures and bits `tools/fingerprint.py` takes: a list of plain data.

A case has a name, KIND/PRODUCT/WHAT, and holds nothing of the package, so that two revisions can run the same
list. What is drawn follows from the number of a case alone, so that a new case moves no other.
"""

from collections.abc import Iterator, Mapping
from itertools import product as pairs
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

PRODUCTS = ("910B", "910_93", "910_95", "310P", "910")
SPLIT = PRODUCTS[:3]
OLD = PRODUCTS[3:]
# Under these names an 8-bit format and its rule set are known.
EIGHT_BITS = {"dtype": "hifloat8", "rules": "hardware"}
INPUT, WEIGHT = (True, False, False), (False, True, False)
BOTH = (True, True, False)
GRADIENTS = {"grad_input": INPUT, "grad_weight": WEIGHT}


class Case(NamedTuple):
    """One call: the door that it goes through, and what it asks for as JSON can say it."""

    name: str
    door: str
    asks: Mapping[str, Any]


def conv(image: tuple[int, ...], weight: tuple[int, ...], *attributes: Any, **more: Any) -> dict[str, Any]:
    """Return the fields of a ConvProblem; attributes are stride, padding, dilation in this order."""
    return {
        "input": image,
        "weight": weight,
        **dict(zip(("stride", "padding", "dilation"), attributes, strict=False)),
        **more,
    }


# Layers of networks and others, each for one image.
LAYERS = {
    "conv1": conv((1, 3, 224, 224), (64, 3, 7, 7), 2, 3),
    "s2b0_3x3": conv((1, 64, 56, 56), (64, 64, 3, 3), 1, 1),
    "s2b1_1x1a": conv((1, 256, 56, 56), (64, 256, 1, 1)),
    "s3b0_3x3": conv((1, 128, 56, 56), (128, 128, 3, 3), 2, 1),
    "s3b0_proj": conv((1, 256, 56, 56), (512, 256, 1, 1), 2),
    "s3b1_3x3": conv((1, 128, 28, 28), (128, 128, 3, 3), 1, 1),
    "s4b0_1x1b": conv((1, 256, 14, 14), (1024, 256, 1, 1)),
    "s4b1_3x3": conv((1, 256, 14, 14), (256, 256, 3, 3), 1, 1),
    "s5b0_3x3": conv((1, 512, 14, 14), (512, 512, 3, 3), 2, 1),
    "s5b1_3x3": conv((1, 512, 7, 7), (512, 512, 3, 3), 1, 1),
    "depthwise": conv((1, 96, 28, 28), (96, 1, 3, 3), 1, 1, groups=96),
    "upconv": conv((1, 64, 14, 14), (64, 32, 2, 2), 2, transposed=True),
    "volume": conv((1, 32, 8, 14, 14), (32, 32, 3, 3, 3), 1, 1),
    "line": conv((1, 48, 200), (32, 48, 5), 1, 2),
    "small": conv((2, 32, 14, 14), (48, 32, 3, 3), 1, 1),
}


def layer(name: str, batch: int = 1) -> dict[str, Any]:
    """Return a layer for a number of images."""
    found = dict(LAYERS[name])
    return found | {"input": (batch * found["input"][0], *found["input"][1:])}


def estimated(kind: str, product: str, what: str, problem: Mapping[str, Any], **asks: Any) -> Case:
    """Return a case of `estimate`, with L2 warm unless it says otherwise: a default may change."""
    asked = {"problem": problem, "product": product, "l2_start": "warm", **asks}
    return Case(f"{kind}/{product}/{what}", "estimate", asked)


def layers() -> Iterator[Case]:
    """Yield layers of ResNet-50, under the plans that the product's operators choose."""
    names = [name for name in LAYERS if name.startswith(("conv1", "s"))]
    for product, name in pairs(PRODUCTS, names):
        for batch in (1, 8, 32) if name != "conv1" else (1,):
            yield estimated("layers", product, f"{name} batch {batch}", layer(name, batch))
    for product in PRODUCTS:
        yield estimated("layers", product, "s3b1_3x3 batch 256", layer("s3b1_3x3", 256), output_mask=BOTH)


def variants() -> Iterator[Case]:
    """Yield other variants of the products."""
    names = ("910B1", "910B3", "910B4", "910_9391", "910_9372", "950DT_9582", "950PR_9599", "950DT_9571")
    for product in (*names, "310P1", "310P5", "910ProA", "910PremiumA", "910B_old_1001"):
        yield estimated("variants", product, "s4b1_3x3 batch 4", layer("s4b1_3x3", 4))


def formats() -> Iterator[Case]:
    """Yield formats and cubeMathTypes."""
    modes = [("bfloat16", 0), *(("float32", number) for number in range(4)), ("float16", 1)]
    names = ("s3b1_3x3", "s3b0_3x3", "volume", "depthwise")
    for product, (dtype, number), name in pairs(SPLIT, modes, names):
        what = f"{dtype} cubeMathType {number} {name}"
        yield estimated("formats", product, what, layer(name, 2), dtype=dtype, cube_math_type=number)
    for product, number, name in pairs(OLD, (1, 2), ("s3b1_3x3", "s3b0_3x3")):
        what = f"float32 cubeMathType {number} {name}"
        yield estimated("formats", product, what, layer(name, 2), dtype="float32", cube_math_type=number)
    for dtype, name in pairs(("hifloat8", "float8_e4m3fn", "float8_e5m2"), ("s3b1_3x3", "upconv")):
        yield estimated("formats", "910_95", f"{dtype} {name}", layer(name), **EIGHT_BITS | {"dtype": dtype})
    mixed = ("float16", "float32", "float16")
    yield estimated("formats", "910B", "mixed small", layer("small"), dtype=mixed)


def shapes() -> Iterator[Case]:
    """Yield ranks, groups, transposed convolutions and uneven attributes, of which some are drawn."""
    own = {
        "line": layer("line", 4),
        "volume": layer("volume", 2),
        "depthwise": layer("depthwise", 4),
        "upconv": layer("upconv", 4),
        "groups of 16": conv((2, 64, 28, 28), (64, 16, 3, 3), 1, 1, groups=4),
        "groups of 3": conv((2, 15, 14, 14), (20, 3, 3, 3), 1, 1, groups=5),
        "depthwise stride 2": conv((4, 64, 28, 28), (64, 1, 5, 5), 2, 2, groups=64),
        "four paddings": conv((2, 32, 20, 20), (32, 32, 3, 3), 1, (0, 1, 2, 1)),
        "dilation 2": conv((2, 64, 28, 28), (64, 64, 3, 3), 1, 2, 2),
        "stride 3": conv((2, 32, 30, 30), (48, 32, 5, 5), 3, 2),
        "stride 2 along one axis": conv((2, 32, 28, 28), (32, 32, 3, 3), (1, 2), 1),
        "upconv line": conv((2, 32, 50), (32, 16, 4), 2, 1, transposed=True),
        "upconv groups": conv(
            (2, 32, 14, 14), (32, 8, 3, 3), 2, 1, transposed=True, groups=4, output_padding=1
        ),
        "upconv volume": conv((1, 32, 4, 7, 7), (32, 16, 2, 2, 2), 2, transposed=True),
        "volume stride 2": conv((1, 16, 8, 16, 16), (32, 16, 3, 3, 3), 2, 1),
        "one tap": conv((8, 1000, 1, 1), (256, 1000, 1, 1)),
    }
    for product, (name, problem) in pairs(PRODUCTS, own.items()):
        if fits(product, problem):
            yield estimated("shapes", product, name, problem)
    for number in range(60):
        product = PRODUCTS[number % len(PRODUCTS)]
        problem = drawn_problem(f"shape {number}", product, most=40, sizes=33)
        yield estimated("drawn", product, f"{number:02}", problem)


def fits(product: str, problem: Mapping[str, Any]) -> bool:
    """Tell whether a product has convolutions of so many axes."""
    return product not in OLD or len(problem["input"]) < 5


def drawn_problem(seed: str, product: str, most: int, sizes: int) -> dict[str, Any]:
    """Draw a convolution; `most` bounds the channels of a group, `sizes` the image."""
    pick = Random(seed)
    rank = pick.choice((1, 2, 2) if product in OLD else (1, 2, 2, 2, 3))
    transposed, groups = pick.random() < 0.3, pick.choice((1, 1, 1, 2, 3))
    taps = [pick.choice((1, 2, 3, 3, 5)) for _ in range(rank)]
    dilation = [pick.choice((1, 1, 2)) for _ in range(rank)]
    stride = [pick.choice((1, 1, 2, 3)) for _ in range(rank)]
    reach = [step * (tap - 1) + 1 for step, tap in zip(dilation, taps, strict=True)]
    padding = [pick.randint(0, min(2, (each - 1) // 2)) for each in reach]
    sizes = sizes if rank < 3 else min(sizes, 9)
    image = [pick.randint(each, max(each, sizes)) for each in reach]
    first, second = (groups * pick.choice([n for n in (1, 3, 7, 16, 17, 40) if n <= most]) for _ in range(2))
    more = {}
    if transposed:
        more = {"transposed": True, "output_padding": [pick.randrange(step) for step in stride]}
    weight = (first, second // groups, *taps) if transposed else (second, first // groups, *taps)
    batch = pick.choice((1, 2, 3))
    return conv((batch, first, *image), weight, stride, padding, dilation, groups=groups, **more)


def options() -> Iterator[Case]:
    """Yield orders of addition, starts of L2, views and the formats of outputs."""
    for product, name, fixed in pairs(PRODUCTS, ("s4b1_3x3", "s3b0_proj", "volume"), (True, False)):
        words = "fixed" if fixed else "any"
        asks = {"output_mask": WEIGHT, "deterministic": fixed}
        if fits(product, LAYERS[name]):
            yield estimated("order", product, f"{words} {name}", layer(name, 2), **asks)
    starts = ("warm", "cold", "handed", "chained")
    for product, name, start in pairs(PRODUCTS, ("s2b0_3x3", "s5b1_3x3"), starts):
        yield estimated("l2", product, f"{start} {name}", layer(name, 4), l2_start=start)
    for product, start in pairs(("910B", "910_95"), starts):
        # Larger than any L2.
        yield estimated("l2", product, f"{start} large", layer("s2b1_1x1a", 64), l2_start=start)
    turned = {"input": (6272, 1, 448, 32), "weight": (288, 1, 96, 32)}
    back = {"grad_input": turned["input"]}
    for product in PRODUCTS:
        yield estimated("views", product, "channels last", layer("small"), strides=turned)
        asks = {"output_strides": back, "rules": "shipped"}
        yield estimated("views", product, "output channels last", layer("small"), **asks)
        outputs = ("float16", "float32", "float16")
        yield estimated("views", product, "float32 grad_weight", layer("small"), output_dtypes=outputs)


# Plans of one's own: in part, by a search, other nests.
OWN_PLANS: Mapping[str, Mapping[str, Any]] = {
    "search": {"tiling": "search"},
    "block_dim 8": {"tiling": {"block_dim": 8}},
    "base_m 32": {"tiling": {"base_m": 32}},
    "one copy": {"tiling": {"al1_buffers": 1, "bl1_buffers": 1}},
    "base_k 16": {"tiling": {"base_k": 16, "step_ka": 1, "step_kb": 1}},
}
NESTS = {
    "grad_input": ("dgrad", "dgrad_columns_outer", "dgrad_shares", "dgrad_split", "dgrad_passes"),
    "grad_weight": ("wgrad", "wgrad_fractals", "wgrad_shares", "wgrad_stream", "wgrad_taps"),
}
# Layers for which the operators of 910_95 choose special nests.
SPECIAL = {
    "winograd": (conv((1, 256, 16, 16), (256, 256, 3, 3), 1, 1), {"dtype": "float32"}),
    "winograd wide": (conv((2, 512, 14, 14), (256, 512, 3, 3), 1, 1), {"dtype": "float32"}),
    "four channels": (conv((2, 64, 56, 56), (4, 64, 3, 3), 1, 1), {"output_mask": INPUT}),
    "rows of taps": (conv((1, 32, 32, 32), (32, 32, 31, 31), 1, 15), {"output_mask": INPUT}),
    "rows far apart": (conv((1, 64, 64, 64), (64, 64, 3, 3), 1, (260, 1), (260, 1)), {}),
    "single taps": (conv((1, 3, 2, 604), (64, 3, 2, 1), 1, (300, 0), (300, 1)), {}),
    "strips": (conv((1, 8, 64, 1024), (16, 8, 3, 3), 1, 1), {"output_mask": WEIGHT}),
    "stride 64": (conv((2, 64, 512, 16), (64, 64, 3, 3), (64, 1), 1), {"output_mask": WEIGHT}),
    "split hw": (conv((2, 64, 56, 56), (64, 64, 3, 3), 2, 1), {"output_mask": INPUT}),
    "split h": (conv((1, 32, 16, 400), (32, 32, 3, 3), (2, 1), 1), {"output_mask": INPUT}),
    "segments": (conv((1, 64, 14, 14), (4096, 64, 3, 3), 1, 1), {"output_mask": INPUT}),
    "turned weights": (conv((1, 128, 8, 14, 14), (128, 128, 3, 3, 3), 1, 1), {"output_mask": INPUT}),
    "merged groups": (conv((2, 144, 14, 14), (144, 1, 5, 5), 1, 2, groups=144), {}),
}
# Rules and tilings of its own, with what no search chooses.
FIELDS = {
    "even parts": ("grad_input", {"pixel_dim": 6, "n_dim": 2}),
    "parts of k": ("grad_input", {"k_split": 2, "used_cores": 4}),
    "grid": ("grad_weight", {"batch_dim": 2, "m_dim": 2, "n_dim": 3, "k_dim": 1}),
    "parts of pixels": ("grad_weight", {"k_split": 5}),
    "two in L0C": ("grad_input", {"cl0_buffers": 2}),
}
BLOCK = {"base_m": 64, "base_n": 32, "base_k": 32, "used_cores": 8}


def plans() -> Iterator[Case]:
    """Yield plans of the user's own: in part, whole, by a search, of other nests, and a nest of one's own."""
    for product, (name, asks) in pairs(PRODUCTS, OWN_PLANS.items()):
        # Fields without a gradient stand for the one gradient that is asked for.
        yield estimated("plans", product, name, layer("s4b1_3x3", 2), output_mask=INPUT, **asks)
        yield estimated("plans", product, f"{name} weight", layer("s4b1_3x3", 2), output_mask=WEIGHT, **asks)
    for product, (name, (gradient, fields)) in pairs(("910B", "910_95", "310P"), FIELDS.items()):
        nest = {"grad_input": "dgrad", "grad_weight": "wgrad"}[gradient]
        whole = {gradient: {"schedule": nest, **BLOCK, **fields}}
        mask = GRADIENTS[gradient]
        yield estimated("plans", product, name, layer("s3b1_3x3", 2), output_mask=mask, tiling=whole)
    for product, gradient in pairs(("910B", "910_95", "910"), NESTS):
        for nest, name in pairs(NESTS[gradient], ("s4b1_3x3", "s3b0_3x3")):
            mask = GRADIENTS[gradient]
            yield estimated("nests", product, f"{nest} {name}", layer(name), output_mask=mask, schedule=nest)
    for product in SPLIT:
        own = "examples/04_your_own_schedule.py:WeightsStay"
        asks = {"own_nest": own, "tiling": "search", "output_mask": INPUT}
        yield estimated("nests", product, "own", layer("s4b1_3x3"), **asks)
    for variant, (name, (problem, asks)) in pairs(("910_95", "950PR_9599"), SPECIAL.items()):
        yield estimated("special", variant, name, problem, **asks)


def tilings() -> Iterator[Case]:
    """Yield legal tilings, each drawn with its own seed."""
    names = ("s3b1_3x3", "s3b0_3x3", "s4b0_1x1b", "volume", "line", "small")
    for product, gradient, number in pairs(PRODUCTS, GRADIENTS, range(20)):
        name = [each for each in names if each != "volume" or product in SPLIT][number % 5]
        asks = {"draws": gradient, "seed": number, "output_mask": GRADIENTS[gradient]}
        what = f"{gradient} {name} {number:02}"
        yield estimated("tilings", product, what, layer(name, 1 + number % 3), **asks)


def products() -> Iterator[Case]:
    """Yield matrix products."""
    sizes = {
        "square": {"m": 1024, "k": 1024, "n": 1024},
        "long": {"m": 64, "k": 4096, "n": 96},
        "odd": {"m": 333, "k": 77, "n": 1001},
        "batch": {"m": 128, "k": 200, "n": 64, "batch": 6},
        "turned": {"m": 512, "k": 256, "n": 300, "transpose_a": True, "transpose_b": True},
        "NZ": {"m": 256, "k": 512, "n": 256, "layout": "NZ"},
        "shared": {"m": 200, "k": 128, "n": 256, "batch": 4, "shared_a": True},
    }
    for product, (name, problem) in pairs(PRODUCTS, sizes.items()):
        yield matmul(product, name, problem)
    small = {"m": 384, "k": 256, "n": 512}
    for product, (dtype, number) in pairs(SPLIT, (("bfloat16", 0), ("float32", 0), ("float32", 1))):
        yield matmul(product, f"{dtype} {number}", small, dtype=dtype, cube_math_type=number)
    for product in PRODUCTS:
        yield matmul(product, "int8", small, dtype="int8")
        yield matmul(product, "float32 out", small, out_dtype="float32")
        yield matmul(product, "cold", small, l2_start="cold")
        pick = Random(f"matmul {product}")
        for number in range(4):
            fields = {name: 16 * pick.randint(1, 8) for name in ("base_m", "base_n", "base_k")}
            fields |= {name: pick.randint(1, 3) for name in ("step_ka", "step_kb", "swizzle", "cl0_buffers")}
            fields |= {"used_cores": pick.randint(1, 8), "reuse_l1": pick.random() < 0.5}
            yield matmul(product, f"tiling {number}", small, tiling={"schedule": "matmul", **fields})


def matmul(product: str, what: str, problem: Mapping[str, Any], **asks: Any) -> Case:
    """Return a case of `estimate_matmul`, as `estimated` does."""
    asked = {"problem": problem, "product": product, "l2_start": "warm", **asks}
    return Case(f"matmul/{product}/{what}", "estimate_matmul", asked)


def simpy() -> Iterator[Case]:
    """Yield small calls for the engine that is the definition."""
    names = ("small", "line", "volume", "upconv")
    tiny = {name: layer(name) for name in names} | {"odd": conv((1, 20, 9, 9), (12, 20, 3, 3), 2, 1)}
    tiny["volume"] = conv((1, 16, 3, 6, 6), (16, 16, 3, 3, 3), 1, 1)
    for product, (name, problem) in pairs(PRODUCTS, tiny.items()):
        if fits(product, problem):
            yield estimated("simpy", product, name, problem, engine="simpy")
    for product, start in pairs(("910B", "910_95"), ("cold", "handed", "chained")):
        yield estimated("simpy", product, start, layer("small"), engine="simpy", l2_start=start)
    for product, gradient, number in pairs(("910B", "910_95", "310P"), GRADIENTS, range(3)):
        asks = {"draws": gradient, "seed": number, "output_mask": GRADIENTS[gradient], "engine": "simpy"}
        yield estimated("simpy", product, f"{gradient} {number}", layer("small"), **asks)
    for product in PRODUCTS:
        own = matmul(product, "simpy", {"m": 100, "k": 200, "n": 150}, engine="simpy")
        yield own._replace(name=f"simpy/{product}/matmul")
    for name in ("winograd", "split h", "four channels"):
        problem, asks = SPECIAL[name]
        yield estimated("simpy", "910_95", name, problem, engine="simpy", **asks)


def bits() -> Iterator[Case]:
    """Yield small calls with tensors: their bits, with and without timing, in several orders."""
    for number in range(100):
        product = PRODUCTS[number % len(PRODUCTS)]
        pick = Random(f"bits {number}")
        modes = [("float16", 0), ("bfloat16", 0), *(("float32", each) for each in range(4))]
        dtype, math = pick.choice(modes if product in SPLIT else [("float16", 0), ("float32", 2)])
        asks = {
            "problem": drawn_problem(f"bits {number}", product, most=17, sizes=8),
            "dtype": dtype,
            "cube_math_type": math,
            "deterministic": pick.choice((None, True, False)),
            "order": pick.choice(("program", "program", "arrival", number)),
            "timing": number % 3 != 2,
            "seed": number,
        }
        yield Case(f"bits/{product}/{number:02}", "convolution_backward", {"product": product, **asks})
    problem = conv((2, 20, 9, 7), (18, 20, 3, 3), 1, 1)
    models = ("seq:RNE", "block:cube_k:RZ", "block-add:cube_k:RNE:RNE", "tree:8:adjacent:RNE", "exact:RNE")
    for product, model in pairs(("910B", "910_95"), (*models, "align:cube_k:F24:RZ:acc", "exact-mmad:RNE")):
        yield gradients("models", product, model, problem, accumulation=model)
    for dtype, timing in pairs(("hifloat8", "float8_e4m3fn", "float8_e5m2"), (True, False)):
        what = f"{dtype} {'timed' if timing else 'bits alone'}"
        yield gradients("bits", "910_95", what, problem, **EIGHT_BITS | {"dtype": dtype}, timing=timing)
    for gradient, nest in ((gradient, nest) for gradient, nests in NESTS.items() for nest in nests):
        for product in ("910B", "910_95"):
            asks = {"schedule": nest, "output_mask": GRADIENTS[gradient]}
            yield gradients("bits", product, nest, problem, **asks)
    for name in ("winograd", "split h", "four channels"):
        special, asks = SPECIAL[name]
        yield gradients("bits", "910_95", name, special, **asks)
    # Other products do not have it.
    for product, number in pairs(("910B", "910_93"), range(5)):
        asks = {
            "time": 9,
            "batch": 2,
            "channels": (20, 18),
            "taps": 3,
            "pad": number % 3,
            "timing": number < 4,
        }
        yield Case(f"bits/{product}/tbc {number}", "conv_tbc_backward", {"product": product, **asks})
    sizes = {"m": 70, "k": 45, "n": 33}
    for product, dtype in pairs(PRODUCTS, ("float16", "int8", "float32", "bfloat16")):
        if product in SPLIT or dtype in ("float16", "int8"):
            asks = {"product": product, **sizes, "dtype": dtype}
            yield Case(f"bits/{product}/matmul {dtype}", "matmul", asks)


def gradients(kind: str, product: str, what: str, problem: Mapping[str, Any], **asks: Any) -> Case:
    """Return a case of `convolution_backward`."""
    own = {"problem": problem, "product": product, **asks}
    return Case(f"{kind}/{product}/{what}", "convolution_backward", own)


EXAMPLE = "{root}/examples/04_your_own_schedule.py:WeightsStay"
SMALL = "run --input 1,16,6,6 --weight 32,16,3,3 --padding 1"
TWO = """layers = [
    { name = "a", input = [16, 6, 6], weight = [16, 16, 3, 3], padding = 1, count = 3 },
    { name = "b", input = [16, 6, 6], weight = [32, 16, 1, 1] },
]"""
WIDE = """base = "910B2"
variant = "wide"
[cores]
cube = { value = 30, source = "a study", confidence = "assumed", range = [24, 30] }
"""
CHANGES = ("NCHW->NC1HWC0", "NC1HWC0->NCHW", "NCHW->FRACTAL_Z", "FRACTAL_Z->NCHW")
MEASURED = (
    "id,variant,kernel,source,compute_dtype,input_shape,weight_shape,padding,change,measured_us\n"
    + "".join(
        f"{variant} {number},{variant},{columns}\n"
        for variant in ("910B2", "910A", "310P3", "910_9391")
        for number, columns in enumerate(
            (
                *(f"transdata,a table,float16,4x100x30x20,,,{change},9" for change in CHANGES),
                *(f"transdata,a table,float32,16x3x64x64,,,{change},9" for change in CHANGES),
                *(
                    f"{name},a table,float16,2x32x12x10,48x32x3x3,1x1x1x1,,20"
                    for name in ("grad_input", "grad_weight")
                ),
                "forward,a table,float16,2x32x12x10,48x32x3x3,1x1x1x1,,20",
                "grad_bias,a table,float16,2x32x12x10,,,,6",
                "grad_weight_call,a table,float16,2x32x12x10,48x32x3x3,1x1x1x1,,20",
            )
        )
    )
)
PROFILE = """Op Name,OP Type,Task Duration(us),Block Dim,Input Shapes,Input Data Types,Output Shapes
mine,MatMulV2,10.0,20,"512,512;512,512",FLOAT16;FLOAT16,"512,512"
"""
STUDIED = "--jobs 1 --store kept --out page"
# Lines of a case are commands, run one after the other in one folder.
COMMANDS = {
    "version": "--version",
    "help": "--help",
    "help of run": "run --help",
    "no command": "compare",
    "run": f"{SMALL}\n{SMALL} --json",
    "run bits": f"{SMALL} --dtype bfloat16 --order 7 --seed 3 --json",
    "run details": f"{SMALL} --cycles-only --details",
    "run arrival": f"{SMALL} --order arrival --no-deterministic --accumulation seq:RNE",
    "run products": f"{SMALL} --cycles-only --product 910B --product 910_95 --product 310P --details",
    "run report": f"{SMALL} --product 910_95 --out report",
    "run report bits": f"{SMALL} --dtype float32 --cube-math-type 1 --out report --no-trace",
    "run simpy": f"{SMALL} --cycles-only --engine simpy --json",
    "run interval": f"{SMALL} --cycles-only --interval --product 910_95\n"
    f"{SMALL} --cycles-only --interval --json",
    "run cold": f"{SMALL} --cycles-only --l2-start cold\n{SMALL} --cycles-only --l2-start chained",
    "run layer": "run s5b1_3x3 --batch 2 --cycles-only\nrun s5b1_3x3 --batch 2 --cycles-only --json",
    "run search": "run s4b1_3x3 --cycles-only --tiling search --details",
    "run nest": "run s4b1_3x3 --mask input --cycles-only --schedule dgrad_columns_outer",
    "run own nest": f"run s5b1_3x3 --mask input --cycles-only --schedule {EXAMPLE}",
    "run network": "run --network two.toml --batch 2 --details\nrun --network two.toml --json",
    "run resnet50": "run --batch 4 --product 910_95 --details --out report",
    "run alexnet": "run --network alexnet --product 910 --product 310P --json",
    "run own product": f"{SMALL} --cycles-only --product wide.toml",
    "run refused": f"{SMALL} --product 310P --dtype bfloat16\nrun s9\n{SMALL} --tiling other.toml",
    "plans": f"{SMALL} --cycles-only --write-tiling p.toml\n{SMALL} --cycles-only --tiling p.toml --json",
    "plans vendor": f"{SMALL} --cycles-only --product 910_95 --write-tiling p.json --tiling-names vendor\n"
    f"{SMALL} --cycles-only --product 910_95 --tiling p.json --details",
    "profiles": "profiles\nprofiles --json",
    "profiles one": "profiles 910B3\nprofiles 950PR_9589 --json\nprofiles wide.toml",
    "check": "check --input 2,16,14,14 --weight 32,16,3,3 --padding 1 --dtype bfloat16 --cube-math-type 2\n"
    "check --input 8,16,9,9 --weight 16,32,3,3 --transposed --stride 2 --product 910_95 --rules shipped\n"
    "check --tbc --input 20,4,8 --weight 3,8,16 --pad 1 --rules all --json",
    "validate": "validate\nvalidate --class matmul --json\nvalidate --class primitives --rows all",
    "validate data": "validate --data measured.csv --rows all\n"
    "validate --data measured.csv --json --out page",
    "calibrate": "calibrate measured.csv --product 910B2 --out mine.toml --timings 200",
    "validate msprof": "validate --msprof profile.csv --product 910B3",
    "probe": "probe --out probe --dtype float16 --simulate block:16:RZ\n"
    "identify probe\nidentify probe --json",
    "study tiling": f"study tiling s5b1_3x3 --gradient weight --tilings 8 --no-interval {STUDIED}\n"
    "study tiling s5b1_3x3 --gradient weight --tilings 8 --no-interval --json --jobs 1 --store kept",
    "study tiling export": "study tiling s5b1_1x1a --product 910_95 --gradient input --tilings 6 "
    f"--export-top 3 --export plans --write-plan best.toml --table t.csv {STUDIED}",
    "study beside": "run s5b1_3x3 --mask input --cycles-only --tiling search --write-tiling p.toml\n"
    f"study tiling s5b1_3x3 --gradient input --plan p.toml {STUDIED}",
    "study hardware": "study hardware s5b1_3x3 --change links.memory.nominal_tb_per_s=x1.5 "
    f"--change cores.cube=20 --table t.csv {STUDIED}",
    "study hardware json": "study hardware s5b1_3x3 --product 910_95 --json --jobs 1 --store kept "
    "--change buffers.L0C.capacity_bytes=x2 --no-interval --tuned 3",
    "study precision": "study precision --input 1,16,6,6 --weight 16,16,3,3 --padding 1 "
    f"--dtype float16,float32 --cube-math-type 0,1 --accumulation default,seq:RNE {STUDIED}",
    "study precision json": "study precision --input 1,16,6,6 --weight 16,16,3,3 --dtype float16 "
    "--cube-math-type 0 --json --jobs 1 --store kept",
    "study codesign": "study codesign s5b1_3x3 --cost cores.cube --change cores.cube=20,28 "
    f"--tilings 3 {STUDIED}",
    "study codesign json": "study codesign s5b1_3x3 --cost cores.cube --change cores.cube=20 --tilings 2 "
    "--json --jobs 1 --store kept",
    "study traffic": "study traffic s5b1_3x3 --table t.csv --out page\nstudy traffic s5b1_3x3 --json",
    "study why": "study why s5b1_3x3 --gradient weight --json --jobs 1",
    "study devices": f"study devices alexnet --product 910C {STUDIED}",
    "completion": "completion bash\ncompletion zsh",
}


def commands() -> Iterator[Case]:
    """Yield commands with what they print and write."""
    files = {"two.toml": TWO, "wide.toml": WIDE, "measured.csv": MEASURED, "profile.csv": PROFILE}
    for name, words in COMMANDS.items():
        asks = {"words": words.split("\n"), "files": {file: files[file] for file in files if file in words}}
        yield Case(f"command/any/{name}", "command", asks)


def rules() -> Iterator[Case]:
    """Yield calls about the sizes at which the rules of the products' operators decide (`plan_calls.txt`)."""
    for call in Path(__file__).with_name("plan_calls.txt").read_text().splitlines():
        product, _, what = call.partition(" ")
        yield Case(f"rules/{product}/{what}", "plan", {"call": call})


def cases() -> list[Case]:
    """Return all cases."""
    kinds = (
        commands,
        simpy,
        layers,
        variants,
        formats,
        shapes,
        options,
        plans,
        tilings,
        products,
        bits,
        rules,
    )
    found = [case for kind in kinds for case in kind()]
    names = [case.name for case in found]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise ValueError(
            f"fingerprint: two cases are called {', '.join(sorted(twice))}; give each its own name"
        )
    return found
