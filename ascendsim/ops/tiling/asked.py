"""What may be asked of a plan: checked where a choice is called directly, and not by a call."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ascendsim.arguments import is_bool, refusal, shown, whole
from ascendsim.errors import UnsupportedError
from ascendsim.ops.problems.convolution import ConvProblem
from ascendsim.profile import Profile

if TYPE_CHECKING:
    from ascendsim.ops.problems.matmul import MatmulProblem

GRADIENTS = ("grad_input", "grad_weight")
# More than any convolution has; sizes are counted in 64 bits.
MOST_GROUPS = 2**31 - 1


def require_asked(
    where: str, problem: ConvProblem | MatmulProblem, gradient: str, dtype: str, profile: Profile
) -> None:
    """Refuse what no plan can be chosen for; `where` is the function that was called.

    Raises   ConfigError for a problem, a gradient or a profile that is none, or a dtype that is no name
    """
    if not isinstance(profile, Profile):
        raise refusal(f"{where}: profile", profile, "a Profile, such as load_profile('910B2')")
    made: tuple[str, ...] = GRADIENTS
    if not isinstance(problem, ConvProblem):
        # Imported here: most calls have no matrix product.
        from ascendsim.ops.problems.matmul import MatmulProblem

        if not isinstance(problem, MatmulProblem):
            rule = "ConvProblem(input=..., weight=...), or MatmulProblem(m, k, n)"
            raise refusal(f"{where}: problem", problem, rule)
        made = ("matmul",)
    if not isinstance(gradient, str) or gradient not in made:
        raise refusal(f"{where}: gradient", gradient, f"{' or '.join(made)} of a {type(problem).__name__}")
    if not isinstance(dtype, str):
        raise refusal(f"{where}: dtype", dtype, "the name of a format, such as 'float16'")


def require_multiplied(where: str, dtype: str, profile: Profile, *, hf32: bool) -> None:
    """Refuse operands that the product's cube does not multiply; hf32: float32 that it rounds to HF32.

    Raises   UnsupportedError with the formats that it does
    """
    if ("hf32" if hf32 else dtype) in profile.cube.rates:
        return
    what = "hf32 is true, and dtype is" if hf32 else "dtype is"
    # HF32 is no format of tensors, but a way to multiply float32.
    does = ", ".join(name for name in profile.cube.rates if name != "hf32")
    raise UnsupportedError(
        f"{where}: {what} {shown(dtype)}, which the cube of {profile.variant} does not multiply; it does "
        f"{does}: take one of them, or another product"
    )


def require_switches(where: str, **given: object) -> None:
    """Refuse switches that are neither true nor false.

    Raises   ConfigError naming the first
    """
    for name, value in given.items():
        if not is_bool(value):
            raise refusal(f"{where}: {name}", value, "true or false")


def require_merge(where: str, group_merge: int) -> int:
    """Return a number of groups that are computed as one; 0 leaves it to the product.

    Raises   ConfigError for what is none
    """
    merge = whole(group_merge)
    if merge is None or not 0 <= merge <= MOST_GROUPS:
        rule = f"a whole number up to {MOST_GROUPS}, 0 for as many as the product's operator takes"
        raise refusal(f"{where}: group_merge", group_merge, rule)
    return merge
