"""The times of a kernel as the numbers of a report."""

from __future__ import annotations

from ascendsim.ops.results import KernelResult, Retimed
from ascendsim.profile import Profile
from ascendsim.program.kernel import Kernel
from ascendsim.timing.times import KernelTimes, average_busy, bound_by


def summarise(
    kernel: Kernel, profile: Profile, times: KernelTimes, timed: Retimed, engine: str
) -> KernelResult:
    """Return the cycles, microseconds and shares of one kernel."""
    # Read off the times: `Kernel.blocks` and `Kernel.cores_used` would have the work of the cores planned.
    cores = times.cores
    busy = average_busy(times, cores)
    return KernelResult(
        name=kernel.name,
        cycles=times.cycles,
        time_us=times.cycles / profile.clock.cube_mhz + profile.launch_us(kernel.blocks_on(cores)),
        cores_used=len(cores),
        busy=busy,
        bound_by=bound_by(busy),
        bytes=times.bytes,
        macs=kernel.macs,
        cube_utilisation=_cube_utilisation(kernel, profile, times.cycles),
        kernel=kernel,
        times=times,
        timed=timed,
        engine=engine,
    )


def _cube_utilisation(kernel: Kernel, profile: Profile, cycles: int) -> float:
    """Return the share of the chip's peak for the kernel's dtype that the asked-for arithmetic reached."""
    # Of the whole chip's peak: cores without work count as well.
    if not kernel.macs or not cycles:
        return 0.0
    peak = profile.cores.cube * profile.cube.rates[kernel.compute_dtype].macs_per_cycle
    return kernel.macs / (cycles * peak)
