"""Networks as data: the shapes of their convolutions and how often each occurs.

records     a layer, a network
loader      from a TOML file, one of ours by name
onnx_model  from an ONNX model
writer      to a TOML file
"""

from ascendsim.workloads.loader import load_workload, workload_names
from ascendsim.workloads.records import Layer, Workload, merged, toml_text

__all__ = ["Layer", "Workload", "load_workload", "merged", "toml_text", "workload_names"]
