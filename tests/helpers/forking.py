"""Fork children beside threads that compute, and see that each ends with the right numbers.

A program of its own, whose process has no other threads: `python -m tests.helpers.forking warm 40`.
"""

import faulthandler
import hashlib
import os
import sys
import warnings
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from random import Random
from threading import Event

import numpy as np
import numpy.random

from ascendsim import ConvProblem, convolution_backward, estimate, matmul

# A child that takes longer hangs: usually it is through in half a second.
SECONDS = 20
THREADS = 4
AT_ONCE = 4


def computed(seed):
    """Return a digest of the answers of four small calls that hardly anybody has made before."""
    draw, values, digest = Random(seed), np.random.default_rng(seed), hashlib.sha256()

    def tensors(*shapes):
        return [values.standard_normal(shape).astype(np.float16) for shape in shapes]

    for timing in (True, False):
        problem = drawn(draw)
        given = tensors(problem.grad_output, problem.input, problem.weight)
        rest = None, problem.stride, problem.padding, 1, False, 0, 1, (True, True, False), 0
        made = convolution_backward(*given, *rest, product="910B2", timing=timing)
        digest.update(made.grad_input.tobytes() + made.grad_weight.tobytes())
        digest.update(str(made.cycles if timing else None).encode())
    digest.update(str(estimate(drawn(draw), product="910B2").cycles).encode())
    m, k, n = (draw.randrange(1, 40) for _ in range(3))
    product = matmul(*tensors((m, k), (k, n)), product="910B2")
    digest.update(product.output.tobytes() + str(product.cycles).encode())
    return digest.hexdigest()


def drawn(draw):
    """Return one of a million small convolutions."""
    kernel, channels = draw.randrange(1, 4), draw.randrange(1, 40)
    image = 1, channels, draw.randrange(kernel, 12), draw.randrange(kernel, 12)
    weight = draw.randrange(1, 40), channels, kernel, kernel
    return ConvProblem(image, weight, stride=draw.randrange(1, 3), padding=draw.randrange(kernel))


def forked(function, *arguments):
    """Return the process of a child that calls a function, and where it writes the answer."""
    reader, writer = os.pipe()
    with warnings.catch_warnings():
        # What Python warns of since 3.12 is what is tried here.
        warnings.filterwarnings("ignore", ".* is multi-threaded, use of fork", DeprecationWarning)
        child = os.fork()
    if child:
        os.close(writer)
        return child, reader
    status = 1
    try:
        # Ends the child, and tells where it was.
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        os.write(writer, function(*arguments).encode())
        status = 0
    except BaseException as error:
        print(f"child: {error!r}", file=sys.stderr, flush=True)
    finally:
        os._exit(status)


def answer_of(child, reader):
    """Return what a child wrote, and its status."""
    with os.fdopen(reader) as file:
        told = file.read()
    return told, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def computing(stop, seeds):
    """Compute until told to stop; return how often."""
    rounds = 0
    while not stop.is_set():
        computed(next(seeds))
        rounds += 1
    return rounds


def wrong(children):
    """Fork so many children beside threads that compute all the time; return those that went wrong."""
    stop, seeds, running, found = Event(), count(10**6), deque(), {}
    with ThreadPoolExecutor(THREADS) as pool:
        threads = [pool.submit(computing, stop, seeds) for _ in range(THREADS)]
        for seed in range(children):
            if len(running) == AT_ONCE:
                first, process = running.popleft()
                found[first] = answer_of(*process)
            running.append((seed, forked(computed, seed)))
        found |= {seed: answer_of(*process) for seed, process in running}
        stop.set()
        assert all(thread.result() for thread in threads), "a thread has computed nothing"
    # Only now: what the parent has computed before a child would know.
    return {seed: got for seed, got in found.items() if got != (computed(seed), 0)}


def main(start, children):
    """Return the number of children that went wrong; print what they answered."""
    if start == "warm":
        computed(10**9)
    found = wrong(int(children))
    for seed, (told, status) in found.items():
        print(f"child {seed}: status {status}, answered {told!r}", file=sys.stderr)
    print(f"{len(found)} of {children} went wrong", file=sys.stderr)
    return min(len(found), 100)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
