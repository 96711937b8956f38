"""Points computed by the workers of a Dask scheduler (an extra)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from ascendsim.errors import ConfigError, UnsupportedError, install_hint
from ascendsim.parallel import arriving
from ascendsim.studies.engine.measure import Answer
from ascendsim.studies.engine.point import Point, code_version

Key = TypeVar("Key")
# Seconds in which a scheduler has to answer at all.
PATIENCE = 10
# Points on their way to each thread of a worker: the next is there when one is done.
AHEAD = 2


def on_dask(
    address: str, compute: Callable[[Point], Answer], tasks: Iterable[tuple[Key, Point]]
) -> Iterator[tuple[tuple[Key, Point], Answer]]:
    """Compute points on the workers of a scheduler.

    Raises   UnsupportedError without Dask, ConfigError where no scheduler answers, or its workers run other
             code than this process: their answers would be kept under the wrong key
    """
    try:
        from distributed import Client
    except ImportError:
        raise UnsupportedError(
            f"--scheduler sends points to Dask, which is not installed; {install_hint('dask')}, or leave it "
            "out and give --jobs"
        ) from None
    try:
        client = Client(address, timeout=PATIENCE)
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"--scheduler {address}: no scheduler answers: {error}; start one with `dask scheduler`, or "
            "leave it out and give --jobs"
        ) from None
    with client:
        versions = client.run(code_version)
        other = [worker for worker, version in versions.items() if version != code_version()]
        if other or not versions:
            said = f"worker {other[0]} runs other code of ascendsim" if other else "it has no worker"
            raise ConfigError(f"--scheduler {address}: {said}; start workers with the code of this process")
        threads = sum(client.nthreads().values())
        executor = client.get_executor(pure=False)
        yield from arriving(lambda task: executor.submit(compute, task[1]), tasks, AHEAD * threads)
