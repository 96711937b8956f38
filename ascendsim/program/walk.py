"""The walker of loop nests: it goes on with the nest of one core until a buffer of rows is full.

To be compiled, inside the engine and alone; plain Python gives the same rows. A nest is a flat program of
integers (`nest.py` writes it). The place of a core in it, its registers, and what its rings hold are numbers
in one array `m`, so that a walk stops after any row and goes on from there.

    code        the steps, each an operation and its operands
    data        tables over indices, end to end: numbers, and numbers of forms
    registers   what indices, variables and look-ups are at the moment; register 0 is always 0
    rings       of each ring: its first slot, how many tiles it has, slots of a tile, where `tiles` has its
                tiles, and whose turn it was last
    tiles       the key of the tile that each place of a ring holds; -1: nothing

A sum of registers is written as its constant, the number of its terms, and a register and a factor for each.
"""

from typing import Any, Final

from ascendsim.native import Native

# Steps.
FOR, END, LET, GET, NEXT, TURN, HOLD, EMIT, WHEN, FORGET, STOP = range(11)
# The walk of one core: where its tables lie in the array, which of its tasks come, and where it is in the
# code (-1: before a task). FORM is the number of the nest's first form among all that the reader knows, and
# MOVES lies where each form is told to move bytes (1) or not (0).
CODE, DATA, TASKS, COLUMNS, TASK, LAST_TASK, PC, REGISTERS, TILES, RINGS, FORM, MOVES = range(12)
WALK: Final = 12
# One ring.
R_FIRST, R_COUNT, R_WIDTH, R_TILES, R_TURN = range(5)
RING: Final = 5
# What is written for each row: its form and its slots, for the engine; of rows that move bytes alone the form
# and the slice, for L2; or the form with the number of what emits it, its slots, and its place.
ROWS, TRANSFERS, PLACED = range(3)
# Bits of a slot in a row, and of the number of a form beside that of what emits it.
SLOT_BITS: Final = 16
FORM_BITS: Final = 32
# The most slots that a row names.
OPERANDS: Final = 4


def total(m: Any, at: int, registers: int) -> int:
    """Return the sum of registers that stands at a place of the code."""
    value, terms = m[at], m[at + 1]
    at += 2
    for _ in range(terms):
        value += m[at + 1] * m[registers + m[at]]
        at += 2
    return int(value)


def walk(m: Any, base: int, at: int, rows: Any, begin: int, end: int, mode: int) -> int:
    """Write the next rows of a core from `rows[begin]` on, at most up to `rows[end]`; return where they end.

    Nothing is written where there are no more. All tables of walks lie in `m` from `base` on, and `at` says
    where the walk of the core stands among them; `mode` says what is written (`ROWS`, `TRANSFERS`, `PLACED`).
    """
    w, n = base + at, begin
    code, data, columns, moves = base + m[w + CODE], base + m[w + DATA], m[w + COLUMNS], base + m[w + MOVES]
    registers, tiles, rings = base + m[w + REGISTERS], base + m[w + TILES], base + m[w + RINGS]
    pc = m[w + PC]
    while True:
        if pc < 0:
            if m[w + TASK] == m[w + LAST_TASK]:
                break
            task = base + m[w + TASKS] + columns * m[w + TASK]
            for column in range(columns):
                m[registers + 1 + column] = m[task + column]
            m[w + TASK] += 1
            pc = 0
        p = code + pc
        step = m[p]
        if step == EMIT:
            # next step, emitter, four registers of slots, where the sums of place and slice stand; form
            pc = m[p + 1]
            form = m[data + total(m, p + 9, registers)]
            if form < 0 or (mode == TRANSFERS and m[moves + form] == 0):
                continue
            if mode == TRANSFERS:
                rows[n], rows[n + 1] = form, total(m, code + m[p + 8], registers)
                n += 2
            else:
                rows[n + 1] = (
                    m[registers + m[p + 3]]
                    | m[registers + m[p + 4]] << SLOT_BITS
                    | m[registers + m[p + 5]] << 2 * SLOT_BITS
                    | m[registers + m[p + 6]] << 3 * SLOT_BITS
                )
                if mode == ROWS:
                    rows[n] = m[w + FORM] + form
                    n += 2
                else:
                    rows[n] = form | m[p + 2] << FORM_BITS
                    rows[n + 2] = total(m, code + m[p + 7], registers)
                    n += 3
            if n + 3 > end:
                break
        elif step == NEXT:
            ring = rings + m[p + 2]
            turn = m[ring + R_TURN] + 1
            if turn == m[ring + R_COUNT]:
                turn = 0
            m[ring + R_TURN] = turn
            # Whatever it held is held no longer.
            m[tiles + m[ring + R_TILES] + turn] = -1
            m[registers + m[p + 1]] = m[ring + R_FIRST] + turn * m[ring + R_WIDTH]
            pc += 3
        elif step == END:
            index = m[registers + m[p + 1]] + 1
            m[registers + m[p + 1]] = index
            if index < m[registers + m[p + 2]]:
                pc = m[p + 3]
            else:
                pc += 4
        elif step == GET:
            m[registers + m[p + 2]] = m[data + total(m, p + 3, registers)]
            pc = m[p + 1]
        elif step == LET:
            m[registers + m[p + 2]] = total(m, p + 3, registers)
            pc = m[p + 1]
        elif step == HOLD:
            # next step, register, ring, step behind the body; key
            ring = rings + m[p + 3]
            key, found, held = total(m, p + 5, registers), -1, tiles + m[ring + R_TILES]
            for place in range(m[ring + R_COUNT]):
                if m[held + place] == key:
                    found = place
            pc = m[p + 4]
            if found < 0:
                found = m[ring + R_TURN] + 1
                if found == m[ring + R_COUNT]:
                    found = 0
                m[ring + R_TURN] = found
                m[held + found] = key
                pc = m[p + 1]
            m[registers + m[p + 2]] = m[ring + R_FIRST] + found * m[ring + R_WIDTH]
        elif step == TURN:
            # next step, ring; number of the tile that comes next
            ring = rings + m[p + 2]
            count = m[ring + R_COUNT]
            m[ring + R_TURN] = (total(m, p + 3, registers) + count - 1) % count
            pc = m[p + 1]
        elif step == FOR:
            # next step, index, register of its end, step behind the body, whether that moves nothing; begin
            index = total(m, p + 6, registers)
            m[registers + m[p + 2]] = index
            pc = m[p + 1]
            if index >= m[registers + m[p + 3]] or (mode == TRANSFERS and m[p + 5]):
                pc = m[p + 4]
        elif step == WHEN:
            if m[registers + m[p + 1]]:
                pc += 3
            else:
                pc = m[p + 2]
        elif step == FORGET:
            ring = rings + m[p + 1]
            for place in range(m[ring + R_COUNT]):
                m[tiles + m[ring + R_TILES] + place] = -1
            pc += 2
        else:
            pc = -1
    m[w + PC] = pc
    return n


# For type checkers a plain function is no FunctionType.
_total: Any = total
FUNCTIONS: Any = (total, walk)
_ARGUMENTS: Final = ("int64[]", "int64", "int64", "int64[]", "int64", "int64", "int64")
WALKER: Final = Native(FUNCTIONS, _ARGUMENTS, (_total,))
