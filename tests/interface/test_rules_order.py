"""Does each check find what it is for, and does the earlier of two failing checks answer?"""

from dataclasses import dataclass
from itertools import combinations

import pytest

from ascendsim.rules import TensorDescription as T
from tests.helpers.calls import answer, changed, conv, tbc

# Calls that pass, by rule set and product: every violation below changes one of them.
CONV_3D = conv()
PLAIN = conv((2, 4, 6, 7), (6, 4, 3, 3), groups=1, dtype="float16")
EIGHT = conv(
    (2, 4, 6, 7), (4, 6, 3, 3), groups=1, transposed=True, dtype="hifloat8", mask=(True, False, False)
)
DEPTHWISE = conv((2, 4, 5, 6, 7), (4, 1, 3, 3, 3), groups=4, dtype="bfloat16")
EMPTY = conv((0, 4, 6, 7), (6, 4, 3, 3), groups=1, dtype="float16")
BASES = {
    ("documented", "910B"): CONV_3D,
    ("shipped", "910B"): CONV_3D,
    ("hardware", "910B"): CONV_3D,
    ("documented-004", "910B"): DEPTHWISE,
    ("documented", "910_95"): EIGHT,
    ("shipped", "910_95"): PLAIN,
    ("documented", "310P"): PLAIN,
    ("shipped", "310P"): PLAIN,
    ("documented", "910B empty"): EMPTY,
    ("shipped", "910B empty"): EMPTY,
    ("shipped", "910B tbc"): tbc(),
    ("documented", "910B tbc"): tbc(),
    ("shipped", "910_95 tbc"): tbc(),
}


@dataclass(frozen=True)
class Violation:
    """One check, and the changes that break it alone."""

    rules: str
    base: str
    number: str
    changes: dict
    status: int = 161002

    def __str__(self):
        return f"{self.rules}-{self.base}-{self.number}-{'-'.join(self.changes)}"

    @property
    def call(self):
        return BASES[self.rules, self.base]

    @property
    def product(self):
        return self.base.split()[0]


WRONG_24 = {"dilation": (9, 1, 1)}  # spans 19 over a depth of 5 + 2
UNEQUAL_CHANNELS = {  # 5 filters in 2 groups
    "weight.shape": (5, 2, 3, 3, 3),
    "grad_weight.shape": (5, 2, 3, 3, 3),
    "grad_output.shape": (2, 5, 5, 6, 7),
    "grad_bias.shape": (5,),
}


def everywhere(rules, base):
    """Violations that every convolution of rank 5 on 910B knows."""
    rows = [
        ("0", {"groups": "two"}, 161002),
        ("1", {"weight": None}, 161001),
        ("1", {"output_mask": None}, 161001),
        ("2", {"output_mask": (True, True)}, 161001),
        ("3", {"grad_input": None}, 161001),
        ("3", {"grad_bias": None}, 161001),
        ("4", {"grad_output.dtype": "float64"}, 161002),
        ("5", {"grad_input.dtype": "int8"}, 161002),
        ("6", {"grad_weight.dtype": "complex64"}, 161002),
        ("7", {"grad_bias.dtype": "undefined"}, 161002),
        ("9", {"input.format": "NDHWC"}, 161002),
        ("9", {"grad_input.format": "NCHW"}, 161002),
        ("11", {"stride": (0, 1, 1)}, 161002),
        ("11", {"padding": (1, -1, 1)}, 161002),
        ("11", {"dilation": (1, 1, 0)}, 161002),
        ("12", {"output_padding": (0, 0, 1)}, 161002),
        ("13", {"groups": 0}, 161002),
        ("14", {"cube_math_type": 4}, 161002),
        ("14", {"cube_math_type": -1}, 161002),
        ("16", {"weight": T((6, 2, 3, 3), "float32"), "grad_weight": T((6, 2, 3, 3), "float32")}, 161002),
        ("17", {"grad_output.shape": (0, 6, 5, 6, 7)}, 161002),
        ("18", {"grad_input.shape": (2, 4, 5, 6, 8)}, 161002),
        ("18", {"grad_weight.shape": (6, 2, 3, 3, 4)}, 161002),
        ("19", {"grad_bias.shape": (7,)}, 161002),
        ("20", {"stride": (1, 1)}, 161002),
        ("20", {"dilation": (1, 1, 1, 1)}, 161002),
        ("21", {"padding": (1, 1, 1, 1, 1, 1)}, 161002),
        ("21", {"output_padding": (0,)}, 161002),
        ("22", {"groups": 4}, 161002),
        ("24", WRONG_24, 161002),
    ]
    return [Violation(rules, base, *row) for row in rows]


VIOLATIONS = [
    *everywhere("documented", "910B"),
    Violation("documented", "910B", "1", {"bias_sizes": None}, 161001),
    Violation("documented", "910B", "5", {"grad_input.dtype": "float16"}),
    Violation("documented", "910B", "9a", {"grad_output.shape": (2, 6, 6, 7), "grad_output.format": "NCHW"}),
    Violation("documented", "910B", "10", {"grad_bias.format": "NCL"}),
    Violation("documented", "910B", "10a", {"grad_bias.strides": (2,)}),
    Violation("documented", "910B", "10a", {"grad_weight.strides": (54, 27, 9, 3, 2)}),
    Violation("documented", "910B", "21a", {"bias_sizes": (4,)}),
    Violation("documented", "910B", "23", {**UNEQUAL_CHANNELS, "bias_sizes": (5,)}),
    Violation("documented", "910B", "24a", {"grad_output.shape": (3, 6, 5, 6, 7)}),
    Violation(
        "documented",
        "910B",
        "24b",  # a kernel of 256 over a width of 254 + 2: one placement
        {
            "input.shape": (2, 4, 5, 6, 254),
            "grad_input.shape": (2, 4, 5, 6, 254),
            "weight.shape": (6, 2, 3, 3, 256),
            "grad_weight.shape": (6, 2, 3, 3, 256),
            "grad_output.shape": (2, 6, 5, 6, 1),
        },
    ),
    Violation(
        "documented",
        "910B",
        "31",  # stride 64 along W: (7 + 2 - 3) // 64 + 1 = 1
        {"stride": (1, 1, 64), "grad_output.shape": (2, 6, 5, 6, 1)},
        561103,
    ),
    Violation("documented-004", "910B", "14", {"cube_math_type": 4}),
    Violation("documented-004", "910B", "19", {"grad_bias.shape": (5,)}),
    Violation(
        "documented-004",
        "910B",
        "23a",  # 4 channels in 2 groups
        {"groups": 2, "weight.shape": (4, 2, 3, 3, 3), "grad_weight.shape": (4, 2, 3, 3, 3)},
    ),
    Violation("documented-004", "910B", "24", WRONG_24),
    *everywhere("shipped", "910B"),
    Violation("shipped", "910B", "10", {"grad_bias.format": "NCL"}),
    Violation("shipped", "910B", "29", {"cube_math_type": 2}),
    Violation("shipped", "910B", "31", {"stride": (1, 1, 64), "grad_output.shape": (2, 6, 5, 6, 1)}, 561103),
    Violation("shipped", "910B", "31", {"grad_output.shape": (3, 6, 5, 6, 7)}, 561103),  # batch
    *everywhere("hardware", "910B"),
    # 8 bits: 910_95 alone.
    Violation("documented", "910_95", "8", {"output_mask": (False, True, False)}),
    Violation("documented", "910_95", "8", {"transposed": False}),
    Violation("documented", "910_95", "8", {"weight.dtype": "float16"}),
    Violation("documented", "910_95", "5", {"grad_input.dtype": "float16"}),
    Violation("documented", "910_95", "7", {"grad_bias.dtype": "float16"}),
    Violation("documented", "910_95", "13", {"groups": 0}),
    Violation(
        "documented",
        "910_95",
        "16",
        {"weight": T((4, 6, 3), "hifloat8"), "grad_weight": T((4, 6, 3), "hifloat8")},
    ),
    Violation("shipped", "910_95", "6", {"grad_weight.dtype": "float32"}),
    Violation("shipped", "910_95", "7", {"grad_bias.dtype": "float32"}),
    Violation("shipped", "910_95", "8", {"weight.dtype": "hifloat8", "grad_weight.dtype": "hifloat8"}),
    Violation("shipped", "910_95", "9", {"input.format": "ND"}),
    Violation("shipped", "910_95", "14", {"cube_math_type": 4}),
    Violation("shipped", "910_95", "17", {"grad_output.shape": (0, 6, 6, 7)}),
    Violation(
        "shipped",
        "910_95",
        "30",  # only the bias gradient, so that check 8 has nothing to say
        {
            "output_mask": (False, False, True),
            "grad_output.dtype": "hifloat8",
            "input.dtype": "hifloat8",
            "weight.dtype": "hifloat8",
            "grad_input": None,
            "grad_weight": None,
            "grad_bias.dtype": "hifloat8",
        },
        561103,
    ),
    Violation("shipped", "910_95", "31", {"grad_output.shape": (2, 6, 6, 8)}, 561103),
    # 3-D on a product without it
    *(
        Violation(
            rules,
            "310P",
            "28",
            {
                "grad_output": T((2, 6, 1, 6, 7), "float16"),
                "input": T((2, 4, 1, 6, 7), "float16"),
                "weight": T((6, 4, 1, 3, 3), "float16"),
                "grad_input": T((2, 4, 1, 6, 7), "float16"),
                "grad_weight": T((6, 4, 1, 3, 3), "float16"),
                "stride": (1, 1, 1),
                "padding": (0, 1, 1),
                "dilation": (1, 1, 1),
                "output_padding": (0, 0, 0),
            },
        )
        for rules in ("documented", "shipped")
    ),
    Violation("documented", "310P", "14", {"cube_math_type": 4}),
    Violation("shipped", "310P", "14", {"cube_math_type": 4}),
    Violation("documented", "310P", "4", {"grad_output.dtype": "bfloat16"}),
    Violation("shipped", "310P", "4", {"grad_output.dtype": "bfloat16"}),
    Violation("shipped", "310P", "17", {"grad_output.shape": (0, 6, 6, 7)}),
    # empty tensors
    Violation("documented", "910B empty", "27.1", {"bias_sizes": (5,)}),
    Violation("documented", "910B empty", "10a", {"grad_weight.strides": (1, 6, 24, 72)}),
    Violation("documented", "910B empty", "27.7", {"grad_output.shape": (0, 6, 6, 8)}),
    Violation(
        "documented", "910B empty", "31", {"padding": (1, 256), "grad_output.shape": (0, 6, 6, 517)}, 561103
    ),
    Violation("shipped", "910B empty", "27.1", {"bias_sizes": None}),
    *(
        violation
        for rules in ("documented", "shipped")
        for violation in (
            Violation(rules, "910B empty", "14", {"cube_math_type": 7}),
            Violation(rules, "910B empty", "27.2", {"input.shape": (2, 4, 0, 7)}),
            Violation(rules, "910B empty", "27.3", {"dilation": (1, 1, 1)}),
            Violation(rules, "910B empty", "27.4", {"weight.shape": (7, 2, 3, 3), "groups": 2}),
            Violation(rules, "910B empty", "27.5", {"weight.shape": (6, 5, 3, 3)}),
            Violation(rules, "910B empty", "27.6", {"padding": (0, 0), "input.shape": (0, 4, 1, 7)}),
        )
    ),
    # conv_tbc
    *(
        violation
        for rules in ("documented", "shipped")
        for violation in (
            Violation(rules, "910B tbc", "0", {"pad": 0.5}),
            Violation(rules, "910B tbc", "1", {"bias": None}, 161001),
            Violation(rules, "910B tbc", "1", {"grad_weight": None}, 161001),
            Violation(rules, "910B tbc", "2", {"grad_input.dtype": "hifloat8"}),
            Violation(rules, "910B tbc", "3", {"input.format": "NCHW"}),
            Violation(rules, "910B tbc", "4", {"grad_output.shape": (0, 2, 4)}),
            Violation(rules, "910B tbc", "5", {"pad": -1}),
            Violation(rules, "910B tbc", "5", {"bias.shape": (5,)}),
            Violation(rules, "910B tbc", "5", {"weight.shape": (3, 4, 4)}),
            Violation(rules, "910B tbc", "5", {"grad_weight.shape": (3, 4, 3)}),
            Violation(rules, "910B tbc", "6", {"cube_math_type": 4}),
        )
    ),
    Violation("documented", "910B tbc", "3a", {"grad_input.strides": (7, 3, 1)}),
    Violation("documented", "910B tbc", "2a", {"bias.dtype": "float16", "grad_bias.dtype": "float16"}),
    Violation("documented", "910B tbc", "5a", {"pad": 256, "grad_output.shape": (517, 2, 4)}),
    Violation("documented", "910B tbc", "7", {"grad_weight.dtype": "float16"}),
    Violation("shipped", "910B tbc", "3", {"bias.format": "NCL"}),
    Violation("shipped", "910B tbc", "8", {"pad": 256, "grad_output.shape": (517, 2, 4)}, 561103),
    Violation("shipped", "910_95 tbc", "7", {"grad_weight.dtype": "float16"}),
    Violation("shipped", "910_95 tbc", "4", {"grad_output.shape": (0, 2, 4)}),
]


def place(number):
    """Return a key that sorts check numbers: 9, 9a, 10, 27.1."""
    digits = "".join(c for c in number.partition(".")[0] if c.isdigit())
    return int(digits), number


def test_every_row_that_can_occur_is_here():
    # 15 is a success, 25 and 26 cannot be reached; 0 is ours, of types, not the vendor's lack of an executor.
    rows = {place(violation.number)[0] for violation in VIOLATIONS if "tbc" not in violation.base}
    assert rows == set(range(32)) - {15, 25, 26}
    assert {v.number for v in VIOLATIONS if "tbc" in v.base} >= set("12345678")


@pytest.mark.parametrize("key", BASES, ids="-".join)
def test_the_unbroken_call_passes(key):
    rules, base = key
    assert answer(BASES[key], base.split()[0], rules) == (0, "")


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_a_check_finds_what_it_is_for(violation):
    call = changed(violation.call, violation.changes)
    assert answer(call, violation.product, violation.rules) == (violation.status, violation.number)


def independent(one, other):
    """Tell whether two violations change different things: neither the same field, nor a part of it."""
    return not any(
        a == b or a.startswith(f"{b}.") or b.startswith(f"{a}.") for a in one.changes for b in other.changes
    )


PAIRS = [
    (a, b) if place(a.number) < place(b.number) else (b, a)
    for a, b in combinations(VIOLATIONS, 2)
    if (a.rules, a.base) == (b.rules, b.base) and a.number != b.number and independent(a, b)
]


@pytest.mark.parametrize("rules", ["documented", "documented-004", "shipped", "hardware"])
def test_the_earlier_of_two_failing_checks_answers(rules):
    wrong = []
    for first, second in PAIRS:
        if first.rules == rules:
            call = changed(changed(first.call, second.changes), first.changes)
            got = answer(call, first.product, rules)
            if got != (first.status, first.number):
                wrong.append((str(first), str(second), got))
    assert not wrong


@pytest.mark.parametrize("violation", VIOLATIONS, ids=str)
def test_every_check_meets_another(violation):
    assert any(violation in pair for pair in PAIRS)
