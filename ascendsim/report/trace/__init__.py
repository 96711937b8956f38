"""Write the spans of a call as a Chrome trace, which Perfetto and chrome://tracing open.

One process per core, one thread per pipe in the order in which data flow through them, plus a process for the
host's view (launches, kernels, what crosses L2 and main memory). `docs/traces.md` shows how to read one.
"""

from ascendsim.report.trace.write import write_trace

__all__ = ["write_trace"]
