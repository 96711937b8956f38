"""Would a wrong number of L2 be noticed?  Change one line in a copy: some test must fail.

A row names the file, the text to change (it must occur exactly once) and what it becomes. Rows whose change
cannot alter any number do not belong here, nor those that let compiled code write beyond an array.
"""

from tests.helpers.mutating import Mutation, checks_of

TESTS = "test_l2_stack test_l2 test_l2_cores test_l2_walk"

ON_TOP = "        put_on_top(rows, number, ends)\n        state[USED] += missing"
FIRST_IN = "        if rows[row + BELOW] < 0:\n    " + ON_TOP
ROUNDED_UP = "resident - share_of(resident, old - gone, old)"
DEEPEST, LATEST = [f"        number = rows[ROW * ends + {end}]\n" for end in ("ABOVE", "BELOW")]
BY_DIRECTION = "moved[L2_WRITTEN if out else L2_READ] += cores *"

STACK = [
    Mutation("timing/l2/lru", ON_TOP, FIRST_IN),
    Mutation("timing/l2/lru", "            rows[row + DIRTY] = size", "            rows[row + DIRTY] = 0"),
    Mutation("timing/l2/lru", "fetched = 0 if kind == WRITE else missing", "fetched = missing"),
    Mutation("timing/l2/lru", "before[old + OLD] -= found", "pass"),
    Mutation("timing/l2/lru", "size - (untouched - kept)", "size - (untouched - kept - 1)"),
    Mutation("timing/l2/lru", "share_of(size, min(kept, untouched), untouched)", "min(size, kept)"),
    Mutation("timing/l2/lru", "before[BEFORE * tensor + EVEN] = 0", "pass"),
    Mutation("timing/l2/lru", "tensors[tensor + FRONT] = 0", "pass"),
    Mutation(
        "timing/l2/lru", "resident - share_of(resident, old - gone, old)", "share_of(resident, gone, old)"
    ),
    Mutation("timing/l2/lru", "            old -= resident\n", "            pass\n"),
    Mutation(
        "timing/l2/lru",
        "        number = rows[ROW * ends + ABOVE]\n",
        "        number = rows[ROW * ends + BELOW]\n",
    ),
    Mutation("timing/l2/phase", "        self.forget_bytes()", "        pass"),
    Mutation("timing/l2/account", "        stack.forget_bytes()", "        pass"),
]
SLICES = [
    Mutation("timing/l2/slices", "if value < HALF and part < HALF:", "if True:"),
    Mutation("timing/l2/slices", "        while rest >= whole:", "        if rest >= whole:"),
    Mutation("timing/l2/slices", "WHOLE] - tensors[tensor + KNOWN]))", "WHOLE]))"),
    Mutation("timing/l2/slices", "if rows[row + SIZE] and tensors", "if tensors"),
    Mutation("timing/l2/slices", "newest[note] != lane + 1", "newest[note] == 0"),
    Mutation("timing/l2/slices", "parts + (cores - 1) * (parts", "1 + (cores - 1) * (parts"),
    Mutation("timing/l2/slices", BY_DIRECTION, "moved[L2_READ] += cores *"),
    Mutation("timing/l2/phase", "if begin + traffic.bytes > traffic.tensor.size_bytes:", "if False:"),
]
SHARING = [
    Mutation("timing/l2/phase", " + table[TRAFFIC * traffics[index] + KIND]", ""),
    Mutation("timing/l2/phase", "total += accessing(", "total = accessing("),
    Mutation("timing/l2/lru", "if not sharing[word] & bit:", "if True:"),
    Mutation("timing/l2/lru", "FETCH] > 1 and kind != WRITE", "FETCH] > 1"),
    Mutation("timing/l2/lru", "            _nobody_shares(known, words, sharing)", "            pass"),
    Mutation("timing/l2/lru", "known + lane // GROUP_BITS", "known"),
    Mutation("timing/l2/slices", "readers[index] > tensors", "readers[index] >= tensors"),
    Mutation("timing/l2/slices", "if column == CLASS:", "if column >= 7:"),
    Mutation("timing/l2/phase", "* self.readers + own * parts", "* self.readers + own"),
    Mutation("timing/l2/phase", "reads_carry = read >= written", "reads_carry = read > written"),
    Mutation("timing/l2/phase", "if len(known) < found:", "if False:"),
]
EVERY = [*STACK, *SLICES, *SHARING]

STANDS, PASSES, FAILS = checks_of(EVERY, TESTS)
test_the_line_to_change_exists_once = STANDS
test_the_copy_passes_unchanged = PASSES
test_a_changed_line_makes_a_test_fail = FAILS
