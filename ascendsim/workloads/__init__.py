"""Networks as data: the shapes of their convolutions and how often each occurs."""

from ascendsim.workloads.loader import Layer, Workload, load_workload, workload_names

__all__ = ["Layer", "Workload", "load_workload", "workload_names"]
