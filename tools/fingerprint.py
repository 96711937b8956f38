"""Fingerprint of the model's numbers, so that a change of structure can show that it changed none of them.

`python tools/fingerprint.py write FILE` notes cycles, microseconds, bytes and busy cycles of some 400 calls,
and the digests of the gradients of 60 small ones; `python tools/fingerprint.py check FILE` compares.
"""

import hashlib
import json
import random
import sys
from pathlib import Path

import numpy as np

from ascendsim import ConvProblem, Tiling, conv_tbc_backward, convolution_backward, estimate
from ascendsim.errors import AscendSimError
from ascendsim.workloads import load_workload

PRODUCTS = ("910B", "910B1", "910B3", "910_93", "910_95", "950DT_9582", "310P", "910", "910A")
DTYPES = ("float16", "bfloat16", "float32")
STARTS = ("warm", "cold", "handed")


def problem(rng, *, small):
    """Draw a convolution."""
    rank = rng.choice((1, 2, 2, 2, 3))
    groups = rng.choice((1, 1, 1, 2, 4)) if rng.random() < 0.5 else 1
    most = 24 if small else 160
    cin, cout = groups * rng.randint(1, most // groups), groups * rng.randint(1, most // groups)
    kernel = [rng.choice((1, 1, 2, 3, 3, 5)) for _ in range(rank)]
    size = [rng.randint(6, 12 if small or rank == 3 else 40) for _ in range(rank)]
    transposed = rng.random() < 0.3
    weight = (cin, cout // groups, *kernel) if transposed else (cout, cin // groups, *kernel)
    stride = [rng.choice((1, 1, 2, 3)) for _ in range(rank)]
    dilation = [rng.choice((1, 1, 1, 2)) if k > 1 else 1 for k in kernel]
    padding = [rng.randint(0, (k - 1) * d // 2) for k, d in zip(kernel, dilation, strict=True)]
    shape = (rng.randint(1, 3 if small else 8), cin, *size)
    try:
        return ConvProblem(shape, weight, stride, padding, dilation, transposed, 0, groups)
    except AscendSimError:
        return problem(rng, small=small)


def options(rng):
    """Draw the options of a call."""
    product = rng.choice(PRODUCTS)
    dtype = rng.choice(DTYPES)
    if product.startswith(("910_95", "950")) and rng.random() < 0.2:
        dtype = "hifloat8"
    return {
        "dtype": dtype,
        "cube_math_type": rng.choice((0, 0, 1, 2, 3)) if dtype == "float32" else 0,
        "product": product,
        "deterministic": rng.choice((None, None, True, False)),
        "rules": rng.choice(("documented", "hardware", "shipped")),
    }


def timed(result):
    """Return what an estimate says of each kernel."""
    return [
        {
            "name": kernel.name,
            "cycles": kernel.cycles,
            "time_us": kernel.time_us,
            "bytes": dict(kernel.bytes),
            "busy": {pipe: float(cycles) for pipe, cycles in kernel.busy.items()},
            "cores": kernel.cores_used,
        }
        for kernel in result.kernels
    ]


def told(function, *args, **keywords):
    """Return what a call gives, or what it refuses."""
    try:
        return function(*args, **keywords)
    except AscendSimError as error:
        return f"{type(error).__name__}: {error}"


def estimates(count=360):
    """Yield some estimates."""
    rng = random.Random(9)
    for number in range(count):
        p, chosen = problem(rng, small=number % 3 == 0), options(rng)
        mask = rng.choice(
            ((True, True, True), (True, True, False), (True, False, False), (False, True, True))
        )
        chosen |= {"output_mask": mask, "l2_start": rng.choice(STARTS)}
        if number % 9 == 0:
            plan = Tiling(
                *(16 * rng.randint(1, 8), 16 * rng.randint(1, 8), 16 * rng.randint(1, 4), 2, 2),
                cl0_buffers=rng.randint(1, 2),
                k_split=rng.randint(1, 3),
                used_cores=rng.randint(1, 8),
            )
            chosen["tiling"] = {"grad_input": plan, "grad_weight": plan}
        result = told(estimate, p, **chosen)
        chosen.pop("tiling", None)
        yield f"{number} {p} {chosen}", result if isinstance(result, str) else timed(result)


def layers():
    """Yield the estimates of the layers of ResNet-50."""
    network = load_workload("resnet50")
    for product in ("910B", "910_95", "310P", "910"):
        for layer in network.layers:
            yield (
                f"{product} {layer.name}",
                timed(estimate(ConvProblem(**layer.problem_options(1)), product=product)),
            )


def digest(values):
    """Return the digest of an array's bytes."""
    if values is None:
        return None
    codes = values.codes if hasattr(values, "codes") else np.asarray(values)
    return hashlib.sha256(np.ascontiguousarray(codes).tobytes()).hexdigest()


def gradients(count=60):
    """Yield the digests of some gradients."""
    rng = random.Random(10)
    for number in range(count):
        p, chosen = problem(rng, small=True), options(rng)
        dtype = np.dtype("float32" if chosen["dtype"] == "float32" else "float16")
        del chosen["dtype"]
        data = np.random.default_rng(number)
        shapes = p.grad_output, p.input, p.weight
        tensors = [data.standard_normal(shape).astype(dtype) for shape in shapes]
        if number % 5 == 0:
            tensors[0] = np.asfortranarray(tensors[0])
        order = rng.choice(("program", "arrival", 3))
        cube = chosen.pop("cube_math_type")
        given = *tensors, [p.grad_output[1]], p.stride, p.padding, p.dilation, p.transposed, p.output_padding
        result = told(convolution_backward, *given, p.groups, (True,) * 3, cube, order=order, **chosen)
        key = f"{number} {p} {chosen} {order}"
        if isinstance(result, str):
            yield key, result
        else:
            made = [digest(getattr(result, f"grad_{name}")) for name in ("input", "weight", "bias")]
            yield key, [made, timed(result), list(result.notes)]
    for number in range(6):
        data = np.random.default_rng(100 + number)
        shapes = (9, 2, 20), (9, 2, 12), (3, 12, 20), (20,)
        tensors = [data.standard_normal(shape).astype(np.float16) for shape in shapes]
        result = told(conv_tbc_backward, *tensors, 1, 0, product=PRODUCTS[number], rules="hardware")
        yield (
            f"tbc {number}",
            result
            if isinstance(result, str)
            else [[digest(result.grad_input), digest(result.grad_weight)], timed(result)],
        )


def main(verb, path):
    """Write or check."""
    found = json.loads(json.dumps(dict([*estimates(), *gradients(), *layers()])))
    if verb == "write":
        Path(path).write_text(json.dumps(found, indent=0))
        print(len(found), "calls;", sum(isinstance(value, str) for value in found.values()), "refused")
        return 0
    known = json.loads(Path(path).read_text())
    other = [key for key in known | found if known.get(key) != found.get(key)]
    for key in other[:10]:
        print(key, "\n  was", str(known.get(key))[:600], "\n  is ", str(found.get(key))[:600])
    print(f"{len(other)} of {len(known)} differ")
    return 1 if other else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
