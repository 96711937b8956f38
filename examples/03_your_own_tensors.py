"""Save tensors as .npz, run them through the command, and read its JSON.

Run it with `python examples/03_your_own_tensors.py`. Your framework's tensors go the same way:
`numpy.savez(file, grad_output=dy.cpu().numpy(), input=x.cpu().numpy(), weight=w.cpu().numpy(), padding=1)`.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

random = np.random.default_rng(0)
tensors = {
    "grad_output": random.standard_normal((1, 24, 10, 10)).astype(np.float32),
    "input": random.standard_normal((1, 16, 10, 10)).astype(np.float32),
    "weight": random.standard_normal((24, 16, 3, 3)).astype(np.float32),
}
with tempfile.TemporaryDirectory() as folder:
    file = Path(folder) / "layer.npz"
    np.savez(file, **tensors, padding=1)
    for cube_math_type in ("0", "1", "2"):
        words = ["run", "--npz", str(file), "--cube-math-type", cube_math_type, "--json"]
        done = subprocess.run([sys.executable, "-m", "ascendsim", *words], check=True, capture_output=True)
        product = json.loads(done.stdout)["products"][0]
        print(f"cube_math_type {cube_math_type}: {product['compute_dtype']} in the cube")
        for gradient in product["gradients"]:
            print(f"  {gradient['name']}: mean relative error {gradient['mere']:.1e}")
