"""Layers and questions of the study of changes, and its answer to one of them, for all tests of it."""

from functools import cache

from ascendsim import ConvProblem, estimate, load_profile
from ascendsim.profile import parse_changes
from ascendsim.studies.engine.run import Budget, Engine, Store
from ascendsim.studies.hardware.gains import study_hardware
from ascendsim.studies.hardware.records import Question, StudiedLayer
from tests.studies.test_study_engine import SMALL

# A layer whose tensors pass L2 once: with nothing in it, memory decides.
STREAM = ConvProblem((8, 64, 28, 28), (64, 64, 1, 1))
# Matrix products: of these, what no kernel before has written is read as it lies, from memory.
DENSE = ConvProblem((256, 2048, 1, 1), (4096, 2048, 1, 1))
BOTH = (True, True, False)
CORES = "cores.cube=x2"
MEMORY = "links.memory.nominal_tb_per_s=x1.5"
L0C = "buffers.L0C.capacity_bytes=x0.25"


LAYERS = (StudiedLayer("stream", STREAM, BOTH),)
SMALL_LAYERS = (StudiedLayer("small", SMALL, BOTH),)


def question(*changes, layers=LAYERS, **options):
    parsed = tuple(change for text in changes for change in parse_changes(text))
    return Question("a test", "910B2", layers, parsed, **({"doubt": False} | options))


def answered(asked, store=None):
    answer, _ = study_hardware(asked, Engine(store or Store(), 1), Budget())
    return answer


def time_us(changes, start, tiling="product", problem=STREAM):
    profile = load_profile("910B2", overrides=changes)
    return estimate(problem, product=profile, output_mask=BOTH, l2_start=start, tiling=tiling)


@cache
def doubtful_answer():
    """Two changes of a small layer, with their doubt: one that changes nothing, and one that costs."""
    layers = (StudiedLayer("small", SMALL, BOTH),)
    return answered(question(MEMORY, "scalar.issue_cycles=x2", layers=layers, starts=("warm",), doubt=True))
