"""The plan of one product: which loop nest, and its tiling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import MISSING, dataclass, field, fields, replace
from itertools import accumulate, pairwise
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ascendsim.errors import CapacityError, ConfigError, did_you_mean, shown, whole

if TYPE_CHECKING:
    from ascendsim.profile import Profile


SWITCHES = ("reuse_l1", "unit_flag", "transpose_first")
# What some fields may say.
WORDS = {
    "panels": ("rows", "columns"),
    "fractals_first": ("", "a", "b", "ab"),
    "mapping": ("contiguous", "interleaved"),
    "stream_axis": ("", "batch_depth", "height"),
    "kernel_split": ("", "h", "hw"),
    "tap_loop": ("", "kh", "khkw"),
}
# Sizes for which 0 means what no default value could say: as large as one base block, or no cut at all.
OF_ONE_BASE_BLOCK = ("single_core_m", "single_core_n")
# Parts along the axes of a grid; 0, all of them: none.
GRID = ("batch_dim", "m_dim", "n_dim", "k_dim")
# What every loop nest over base blocks reads: a plan that says less leaves something open.
WHOLE = (
    *("base_m", "base_n", "base_k", "step_ka", "step_kb", "used_cores"),
    *("al1_buffers", "bl1_buffers", "al0_buffers", "bl0_buffers", "cl0_buffers"),
)
UNCUT = ("single_core_k", "single_core_batch", "depth_dim", "group_dim", "strip_w", "pixel_dim", *GRID)
# Who chose a plan that no strategy did.
USER = "user"


@dataclass(frozen=True)
class Tiling:
    """The tiles into which one product is cut; names are the vendor's, in elements unless said otherwise.

    A schedule obeys the fields that it names in `reads`, and refuses a tiling that sets another one.

    base_m, base_n, base_k
                   one L0C tile and the reduction of one Mmad. grad_input: m = pixels, n = channels,
                   k = (channel, tap); grad_weight: m = channels, n = (channel, tap), k = pixels
    step_ka, step_kb
                   slices of base_k that one L1 tile of the left and the right operand holds
    step_m, step_n
                   `wgrad_fractals`: base blocks of rows that one L1 tile of the left operand serves, and of
                   columns that one of the right operand does
    al1_buffers, bl1_buffers, al0_buffers, bl0_buffers, cl0_buffers
                   copies of each tile: 1, 2 for ping-pong, or more
    k_split        grad_weight: parts of the reduction that go to different cores; grad_input: parts of it,
                   cut by channel groups, that one core adds in float32 in global memory, one after the other
    used_cores     cores that the kernel runs on; with fewer tasks, or cells that have any, the last ones get
                   none. Of a matrix product, block i in order goes to core i modulo them
    single_core_m, single_core_n
                   the block that a core takes at a time, of a matrix product its tiles along n first;
                   0: one base block
    single_core_k  grad_weight: pixels of one image that a task reduces; 0: all of them. grad_input: channels
                   of each of its `k_split` parts but the last; 0: even parts
    single_core_batch
                   grad_weight: images and depths of each of its `batch_dim` parts but the last; 0: even parts
    depth_dim      grad_input: parts into which depths are cut, each a part of a task; 0: every one is a task
                   of its own. grad_weight on a grid: parts into which kernel depths are cut, so that columns
                   are cut at each of them by itself; 0: columns go through all of them, one after the other
    mapping        grad_input, grad_weight: "contiguous" ranges of tasks go to the cores, or task t to core t
                   modulo them ("interleaved")
    task_order     the axes by which tasks are numbered, slowest first, with a blank between: "batch", "d",
                   "m", "n", and "group" or "k"
    stream_axis    grad_weight: what the tasks of the last round are cut along, into `k_split` parts each:
                   "batch_depth" (images and depths) or "height" (rows of each image)
    group_merge    groups of the convolution that are computed as one, with weights that are block-diagonal;
                   every nest takes it, as it is given the merged product
    strip_w        grad_weight by stream-K: columns of an image that a tile in L1 stays within, so that all of
                   its rows are reduced in strips of this many columns, one after the other; 0: no strips
    kernel_split   grad_input: the axes along which the stride splits the kernel, so that no zeros are
                   inserted: "h", or "hw"
    tap_loop       the taps over which a loop goes outside of the products: "kh", a row of them at a time, or
                   "khkw", one; "": none, a tile in L1 serves all taps
    swizzle        matrix products: rows of blocks that form a panel, taken column by column, so that what the
                   cores read at one time is nearly square
    panels         "rows" for that, or "columns" for panels of columns, taken row by row
    fractals_first matrix products: the operands that vector cores bring into fractals (NZ) before the cube
                   begins: "a", "b", "ab", or "", none
    reuse_l1       matrix products: whether what L1 holds stays for the next tile of the core that needs it
    unit_flag      whether Fixpipe takes a tile piece by piece while the last product is added to it, and the
                   next tile's first product waits for the reading of L0C alone
    batch_dim, m_dim, n_dim, k_dim
                   the grid that a convolution is cut into: parts of the images, of the tiles along m and n,
                   and in grad_weight of the rows of an image; in `wgrad_fractals` of its fractals, 16 pixels
                   each. Parts are equal but for the last, so that
                   fewer may come out; cell i in order, the batch slowest, goes to core i modulo
                   used_cores. 0 beside another one is 1; all of them 0: no grid, tasks in contiguous ranges.
                   Nests that deal shares (`dgrad_shares`, `wgrad_shares`) know batch_dim alone: parts of the
                   images, in grad_weight of images and depths; 0: every one is a task of its own
    group_dim      `wgrad_fractals`: parts of the groups beside those of its grid, slower than the batch; 0: a
                   cell has all groups
    pixel_dim      grad_input: even parts of the pixels of all images, counted on from image to image; parts
                   of a grid instead of `batch_dim` and `m_dim`, with `n_dim` beside it. A part cuts its
                   pixels of an image into base blocks of nearly equal length, base_m at most; 0: no parts
    transpose_first
                   grad_input of 910_95: whether vector cores bring all weights into the cube's layout in a
                   phase of its own, so that copies into L1 need not turn them

    Raises   ConfigError if a size is not a positive integer, a word none of those named here, or a switch
             no bool
    """

    base_m: int
    base_n: int
    base_k: int
    step_ka: int = 1
    step_kb: int = 1
    al1_buffers: int = 2
    bl1_buffers: int = 2
    al0_buffers: int = 2
    bl0_buffers: int = 2
    cl0_buffers: int = 1
    k_split: int = 1
    used_cores: int = 1
    single_core_m: int = 0
    single_core_n: int = 0
    swizzle: int = 1
    panels: str = "rows"
    reuse_l1: bool = True
    unit_flag: bool = False
    batch_dim: int = 0
    m_dim: int = 0
    n_dim: int = 0
    k_dim: int = 0
    single_core_k: int = 0
    depth_dim: int = 0
    mapping: str = "contiguous"
    task_order: str = ""
    stream_axis: str = ""
    kernel_split: str = ""
    strip_w: int = 0
    group_merge: int = 1
    pixel_dim: int = 0
    transpose_first: bool = False
    tap_loop: str = ""
    step_m: int = 1
    step_n: int = 1
    single_core_batch: int = 0
    group_dim: int = 0
    fractals_first: str = ""

    def __post_init__(self) -> None:
        """Refuse what no schedule could execute."""
        for name, words in WORDS.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in words:
                known = " or ".join(word if word else repr(word) for word in words)
                raise ConfigError(f"tiling: {name} is {shown(value)}; it must be {known}")
        # Neither 0 nor 1 passes for a switch: a size in the wrong place would be taken for one.
        for name in SWITCHES:
            if not isinstance(getattr(self, name), bool):
                raise ConfigError(f"tiling: {name} is {shown(getattr(self, name))}; it must be True or False")
        for name, least in _SIZES:
            value = getattr(self, name)
            # A search makes thousands of tilings, all of plain integers.
            if type(value) is int and value >= least:
                continue
            number = whole(value)
            if number is None or number < least:
                raise ConfigError(f"tiling: {name} is {shown(value)}; it must be a positive integer")
            object.__setattr__(self, name, number)

    @property
    def has_grid(self) -> bool:
        """Whether a grid says which core makes what."""
        return any(getattr(self, name) for name in (*GRID, "pixel_dim"))

    @property
    def cells(self) -> int:
        """Cells of the grid, if every part of it has work; 1 without a grid."""
        return prod(max(1, getattr(self, name)) for name in (*GRID, "pixel_dim", "group_dim"))

    @property
    def base(self) -> tuple[int, int, int]:
        """The sides m, n and k of a base block and a slice."""
        return self.base_m, self.base_n, self.base_k

    @property
    def block_m(self) -> int:
        """Rows of the block that a core takes at a time."""
        return self.single_core_m or self.base_m

    @property
    def block_n(self) -> int:
        """Columns of the block that a core takes at a time."""
        return self.single_core_n or self.base_n

    def set_fields(self) -> dict[str, Any]:
        """Return the fields that have a default and do not stand at it."""
        # What has no default is set in every tiling, and every schedule reads it.
        optional = [field for field in fields(self) if field.default is not MISSING]
        return {f.name: value for f in optional if (value := getattr(self, f.name)) != f.default}


_SIZES = tuple(
    (field.name, 0 if field.name in OF_ONE_BASE_BLOCK + UNCUT else 1)
    for field in fields(Tiling)
    if field.type == "int"
)


@dataclass(frozen=True)
class Plan:
    """The way to compute one product of a call: a loop nest, and its tiles.

    schedule   name of a schedule (`ops/schedules/base.py`), or a `Schedule` class of the user's own
    tiling     its tiling
    chosen_by  of a plan that a call follows: "product", "tuned" or "search", the strategy that chose it;
               "user", who gave it; "user, rest product" or similar for a plan whose nest or some fields
               are given. Plans with equal fields are equal, whoever chose them
    instead    of a search: why the product's own plan was not taken, where that is known
    rule       of a plan of the product's own: the rule of its operator that made it, by the name that
               docs/plans.md has it under, and of a matrix product what it leaves out
    file       the file of plans that it was read from; "": none

    Raises     ConfigError for a schedule or a tiling that is none
    """

    schedule: str | type
    tiling: Tiling
    chosen_by: str = field(default="", compare=False)
    instead: str = field(default="", compare=False)
    rule: str = field(default="", compare=False)
    file: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        """Refuse values that are no schedule and no tiling."""
        if not isinstance(self.schedule, str | type):
            raise ConfigError(f"plan: schedule is {shown(self.schedule)}; it must be a name or a class")
        if not isinstance(self.tiling, Tiling):
            raise ConfigError(
                f"plan: tiling is {shown(self.tiling)}; it must be a Tiling; a plan that leaves some of its "
                "fields open may be passed as a dict"
            )

    @property
    def nest(self) -> str:
        """The name of the schedule, that of a class among them."""
        nest = self.schedule
        return nest if isinstance(nest, str) else str(getattr(nest, "name", nest.__name__))

    @property
    def by_rule(self) -> bool:
        """Whether a strategy chose all of it, and the user nothing."""
        return self.chosen_by in ("product", "tuned", "search")

    def given_in_part(self) -> Plan:
        """Return the plan marked as given in part by the user, with the rest from its own chooser."""
        return replace(self, chosen_by=f"{USER}, rest {self.chosen_by}")

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain values: its schedule, what every nest reads, and what else is set.

        Raises   ConfigError for a schedule that is a class, which only Python can name
        """
        if not isinstance(self.schedule, str):
            raise ConfigError(
                f"plan: schedule is the class {self.schedule.__name__}, which has no name outside Python; "
                "keep its tiling, and pass the class as schedule="
            )
        named = {name: getattr(self.tiling, name) for name in WHOLE}
        return {"schedule": self.schedule, **named, **self.tiling.set_fields()}

    @staticmethod
    def from_dict(values: Mapping[str, Any]) -> Plan:
        """Return the plan of these values; missing fields have their defaults.

        Raises   ConfigError for an unknown field, with the nearest name, and for one that every nest reads
                 and that is missing
        """
        if not isinstance(values, Mapping):
            rule = 'its fields by name, such as {"schedule": "dgrad", "base_m": 64, ...}'
            raise ConfigError(f"plan: values is {shown(values)}; it must be {rule}")
        fields = dict(values)
        schedule = fields.pop("schedule", None)
        lacking = [name for name in ("schedule", *WHOLE) if name not in values]
        require_fields("plan", fields, ("schedule",))
        if lacking or not isinstance(schedule, str):
            what = f"lacks {', '.join(lacking)}" if lacking else f"has schedule {shown(schedule)}"
            raise ConfigError(
                f"plan: it {what}; a whole plan names its schedule and {', '.join(WHOLE)}. One that leaves "
                "some of them open may be passed as tiling=, and is filled in"
            )
        return Plan(schedule, Tiling(**fields))


def require_fields(where: str, given: Iterable[str], others: Sequence[str] = ()) -> None:
    """Refuse names that no field of a tiling has; `others` are known besides.

    Raises   ConfigError naming the place, with the nearest name
    """
    known = [*others, *(field.name for field in fields(Tiling))]
    for name in given:
        if name not in known:
            # The vendor writes baseM, which letter by letter is as near to base_n.
            hint = did_you_mean(str(name).lower(), known, f"it takes {', '.join(known)}")
            raise ConfigError(f"{where} has the field {shown(name)}, which no tiling has; {hint}")


def shares(tasks: int, cores: int) -> list[range]:
    """Deal tasks to cores in contiguous ranges; the first cores take one more where it is not even."""
    # Contiguous, so that neighbours, which share operands, are on one core; the rest is one task on some.
    each, more = divmod(tasks, cores)
    counts = (each + (core < more) for core in range(min(tasks, cores)))
    return [range(first, end) for first, end in pairwise(accumulate(counts, initial=0))]


def chunks(total: int, parts: int) -> list[range]:
    """Cut a range into parts of equal length but for the last; fewer parts where that uses it up."""
    each = -(-total // max(1, parts))
    return [range(first, min(first + each, total)) for first in range(0, total, max(1, each))]


def even_parts(total: int, step: int, most: int) -> list[int]:
    """Return the sizes, multiples of `step` and at most `most`, that cut `total` into equally large parts.

    One size for each number of parts, largest first; the last part may be smaller.
    """
    # Many numbers of parts have the same largest part; only the least of them is worth a tile of this size.
    found: list[int] = []
    units = -(-total // step)
    parts = -(-units // max(1, most // step))
    while parts <= units:
        size = -(-units // parts)
        found.append(size * step)
        # The next number of parts that gives a smaller size.
        parts = -(-units // (size - 1)) if size > 1 else units + 1
    return found


def require_whole_units(owner: str, tiling: Tiling, units: Mapping[str, int], profile: Profile) -> None:
    """Refuse a tiling that cuts through a unit of the machine, or wants cores that are not there.

    Units    field -> elements of one unit: channels of a group of C0, pixels of a fractal
    Raises   ConfigError naming the field
    """
    for name, unit in units.items():
        value = getattr(tiling, name)
        if value % unit:
            raise ConfigError(
                f"tiling of {owner}: {name} is {value}, which is no multiple of {unit}; take "
                f"{-(-value // unit) * unit}"
            )
    if tiling.used_cores > profile.cores.cube:
        raise ConfigError(
            f"tiling of {owner}: used_cores is {tiling.used_cores}, but {profile.variant} has "
            f"{profile.cores.cube} cores; take no more"
        )


def require_obeyed(owner: str, schedule: str, tiling: Tiling, reads: frozenset[str]) -> None:
    """Refuse a tiling that sets a field which the schedule does not read.

    Raises   ConfigError naming the field and the schedule
    """
    for name, value in tiling.set_fields().items():
        if name not in reads:
            raise ConfigError(
                f"tiling of {owner}: {name} is {shown(value)}, but schedule {schedule} does not read it; "
                "leave it out"
            )


# Fields of a plan by name, by what they make ("grad_input", "grad_weight", "matmul"), by layer of a network;
# "" is the layer of a single call.
Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]
FORMS = ("toml", "json")


def form_of(path: Path | str) -> str:
    """Return the form in which a file of plans is written, by its ending.

    Raises   ConfigError for another ending
    """
    ending = Path(path).suffix
    if ending.removeprefix(".") not in FORMS:
        raise ConfigError(f"{path}: a file of plans ends in .toml or .json, not in {ending or 'nothing'}")
    return ending[1:]


def plans_text(tables: Tables, form: str, about: str = "") -> str:
    """Return the text of a file of plans.

    tables   texts, whole numbers and truth values by field; "chosen_by" among them becomes a comment
    form     one of FORMS
    about    a comment at the top; JSON has none
    """
    # Imported here: few calls write a file, and every call imports this module.
    import json

    if form == "json":
        plain = {
            layer: {made: plan_fields(values) for made, values in each.items()}
            for layer, each in tables.items()
        }
        return json.dumps({**plain.pop("", {}), **plain}, indent=1) + "\n"
    lines = [f"# {about}"] if about else []
    for layer, each in tables.items():
        for made, values in each.items():
            heading = f"[{json.dumps(layer)}.{made}]" if layer else f"[{made}]"
            by = f"  # chosen by {values['chosen_by']}" if values.get("chosen_by") else ""
            # JSON and TOML write texts, whole numbers and truth values alike.
            written = [f"{name} = {json.dumps(value)}" for name, value in plan_fields(values).items()]
            lines += ["", heading + by, *written]
    return "\n".join(lines).lstrip("\n") + "\n"


def plan_fields(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a plan, without who chose it."""
    return {name: value for name, value in values.items() if name != "chosen_by"}


@contextmanager
def saying_whose(made: str, plan: Any) -> Iterator[None]:
    """Say of errors about a plan which gradient it is for (`made`), and the file that it was read from.

    plan   a plan, whole or in part; None: one without a file
    """
    try:
        yield
    except (CapacityError, ConfigError) as error:
        text, file = str(error), plan.file if plan else ""
        if plan and not text.startswith(("tiling", file or "tiling")):
            text = f"tiling of {made}: {text}"
        if not text.startswith(file):
            text = f"{file}: {text}"
        # Its class and its fields stay.
        error.args = (text,)
        raise
