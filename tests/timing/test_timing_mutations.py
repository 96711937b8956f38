"""Would a wrong cycle be noticed?  Change one line in a copy: some test must fail."""

from tests.helpers.other_processes import Mutation, checks_of

# --- Would a wrong cycle be noticed? Change one line in a copy: some test must fail. -------------------
# A row names the file, the text to change (it must occur exactly once) and what it becomes. Rows whose
# change cannot alter any cycle do not belong here. Those of L2 have a file of their own,
# `test_timing_mutations.py`.

TESTS = "test_links test_l2 test_l2_cores test_timing test_timeline"

LINKS = [
    Mutation("timing/links", "return -(-size", "return (size"),
    Mutation("timing/links", "return max(1, rate", "return max(1, 1 + rate"),
    Mutation("timing/links", "return max(1, rate", "return max(0, rate"),
    Mutation("timing/links", "now + -(-self.left // rate)", "now + max(1, self.left // rate)"),
    Mutation("timing/links", "self.left -= self.rate * (now - self.since)", "pass"),
    Mutation("timing/links", "if fits and self._fits else self._streams", "if fits else self._streams"),
    Mutation("timing/links", "if fits and self._fits else self._streams", "if True else self._streams"),
    Mutation("timing/links", "self._demands[core] <= level", "True"),
    Mutation("timing/links", "min(stream.limit, mine) if stream.flow.crosses else", "mine if False else"),
    Mutation("timing/links", "min(stream.limit, mine) if stream.flow.crosses else", "mine if True else"),
    Mutation("timing/links", "len({stream.flight.pipe for stream in streams})", "len(streams)"),
    Mutation("timing/links", "flow.cap // pipes", "flow.cap"),
    Mutation("timing/links", "            if flow.crosses:", "            if True:"),
    Mutation("timing/links", "self._asked -= core.weight * self._demands.pop(core, 0)", "pass"),
    Mutation("timing/links", "self._asked += core.weight * demand", "self._asked += demand"),
    Mutation("timing/links", "(core.weight, demand) for", "(1, demand) for"),
    Mutation("timing/links", "remaining -= weight * demand", "remaining -= demand"),
    Mutation("timing/links", "                weights -= weight", "                weights -= 1"),
    Mutation("timing/links", "if len(above) == len(waiting):", "if above:"),
    Mutation("timing/links", "if stream.end == now and stream.left:", "if stream.left:"),
    Mutation("timing/links", "if not stream.flight.under_way:", "if True:"),
    Mutation("timing/links", "occupied * more, cap", "occupied, cap"),
    Mutation("timing/links", "traffic.peak_bytes_per_cycle * more)", "traffic.peak_bytes_per_cycle)"),
    Mutation("timing/links", " * occupied / traffic.bytes", ""),
    Mutation("timing/links", "fixed_size(size, part)", "fixed_size(size)"),
    Mutation("timing/links", "fixed_rate(cap, part)", "fixed_rate(cap)"),
    Mutation("timing/links", "fixed_rate(peak, part)", "fixed_rate(peak)"),
    Mutation("timing/links", "outcome.fetched * outcome.readers * occupied", "outcome.fetched * occupied"),
    Mutation("timing/links", "waited, own, crosses=False", "waited, own"),
    Mutation("timing/links", "            latency += memory.latency_cycles", "            pass"),
    Mutation("profile/memory", "Fraction(pair) / 2", "Fraction(pair)"),
    Mutation("timing/links", "vectors > 2", "vectors > 1"),
]
TIMING = [
    Mutation("timing/simpy_engine", "if free < time + least:", "if False:"),
    Mutation("timing/kernel", "now = profile.scalar.start_cycles", "now = 0"),
    Mutation("timing/simpy_engine", "latency += transfer.latency_cycles", "pass"),
    Mutation("timing/simpy_engine", " + self.priced.prices[other].lead_cycles", ""),
    Mutation("timing/simpy_engine", "free = max(free, self.done[other] + piece)", "pass"),
    Mutation("timing/simpy_engine", "self.done[other] + piece)", "self.done[other])"),
    Mutation("timing/critical_path", "work.done[last] > work.start[index]", "False"),
    Mutation("timing/times", 'busy.setdefault("S", times.entry_cycles)', "pass"),
    Mutation("timing/critical_path", "if timeline.entry_cycles:", "if False:"),
]
TIMES = [*LINKS, *TIMING]


# --- Would a wrong line of the compiled engine be noticed? Change it in a copy: a test must fail. ------
# The tests that have to notice run the engine as plain Python, so that nothing is compiled anew. A row
# names the file, the text to change (it must occur exactly once) and what it becomes. Rows whose change
# cannot alter any cycle do not belong here: what only saves time, and what writes a figure that nobody
# reads.

ENGINE_TESTS = "test_engine_rules"
FAST = "timing/compiled_"

CORES = [
    Mutation(
        "engine",
        "m[c + f.AT], m[c + f.LAST_AT] = first, last",
        "m[c + f.AT], m[c + f.LAST_AT] = first, first",
    ),
    Mutation("engine", "free = max(m[p + f.LANDED], m[entry + f.LAST])", "free = m[p + f.LANDED]"),
    Mutation(
        "engine",
        "late = m[m[f.AT_TRANSFERS] + m[entry + f.CLASS] * f.TRANSFERS + f.LINK_LATENCY]",
        "late = 0",
    ),
    Mutation(
        "engine",
        "return ready(m, core, pipe, row, named, entry, m[row + f.TRAILS]) and begin(",
        "return begin(",
    ),
    Mutation(
        "engine",
        "began = behind(m, core, pipe, row, named, begun, entry)",
        "behind(m, core, pipe, row, named, begun, entry)",
    ),
    Mutation("engine", "max(free, m[entry + f.LAST]), late)", "free, late)"),
    Mutation("engine", "if not ready(m, core, pipe, row, named, entry, 0):", "if False:"),
    Mutation("engine", "== f.TRAILING:", "== f.FLYING:"),
    Mutation("engine", "woken, pipe = m[c + f.WOKEN], 0", "woken, pipe = m[c + f.WOKEN] & 1, 0"),
    Mutation("engine", "time = before + m[f.ISSUE_CYCLES]", "time = before"),
    Mutation("engine", "+= room - time\n            time = room", "+= room - time"),
    Mutation("engine", "+ pipe] += room - time", "+ pipe] += room"),
    Mutation("engine", "if m[p + f.STARTED] <= ahead:", "if m[p + f.STARTED] < ahead:"),
    Mutation("engine", "m[m[f.AT_DEPTHS] + m[c + f.KIND] * pipes + pipe]", "m[m[f.AT_DEPTHS] + pipe]"),
    Mutation("engine", "m[m[f.AT_CORES] + core * f.CORES + f.HELD_PIPES] | needing", "m[f.MOVERS]"),
]
HELD = [
    Mutation("held", "if trails and m[use] & 1 == 0:", "if False:"),
    Mutation("held", "late = m[w + f.WRITES_HELD] != m[w + f.WRITES_OVER]", "late = False"),
    Mutation("held", "late or (m[use] & 1 and m[w + f.READS_HELD] != m[w + f.READS_OVER])", "late"),
    Mutation("held", "late = m[w + f.WRITES_OVER] != m[ticket] or", "late ="),
    Mutation("held", " or m[w + f.READS_OVER] != m[ticket + 1]", ""),
    Mutation("held", "late = not trails and m[w + f.WRITES_OVER] != m[ticket]", "late = False"),
    Mutation("held", "late = not trails and", "late ="),
    Mutation("held", "m[c + f.WOKEN] |= m[w + f.WAKES]", "pass"),
    Mutation("engine", "m[c + f.WOKEN] |= 1 << pipe", "pass", "test_handover"),
    Mutation("held", "m[c + f.HELD_PIPES] |= 1 << pipe", "m[c + f.HELD_PIPES] = 1 << pipe"),
    Mutation("held", "m[c + f.MOVED] += 1", "pass"),
    Mutation("held", "(kind * m[f.TRAFFICS] + traffic)", "traffic"),
    Mutation("held", "m[f.OUTCOMES] + outcome", "m[f.OUTCOMES]"),
    Mutation("held", "m[p + f.UNISSUED] = m[p + f.TAIL] + 1", "pass", "test_handover"),
    Mutation("engine", "if index < first:", "if found < 0:", "test_handover"),
]
PIPES = [
    Mutation("held", "ready = max(issued, m[p + f.FREE])", "ready = issued"),
    Mutation("held", "(writes or not m[row + f.TRAILS])", "True"),
    Mutation("held", "(m[w + f.W_DONE] == after and on > newest)", "False"),
    Mutation("held", "(m[r + f.R_END] == after and on > newest)", "False"),
    Mutation("held", "new = not m[f.TRAILED] or know(m, core, pipe, m[w + f.W_PIPE], on)", "new = True"),
    Mutation("held", "new = not m[f.TRAILED] or on > m[known + other]", "new = True"),
    Mutation("held", "if readers & 1 and other != pipe:", "if readers & 1:"),
    Mutation("held", "time = after + m[f.FLAG_CYCLES]", "time = after"),
    Mutation("held", "m[p + f.VISIBLE] >= time", "m[p + f.VISIBLE] > time"),
    Mutation("held", "time, cause = m[p + f.VISIBLE], pipe", "time = m[p + f.VISIBLE]"),
    Mutation("held", "cause] += time - ready", "cause] += time"),
    Mutation("held", "m[price + f.LATENCY] + late", "m[price + f.LATENCY]"),
    Mutation("held", "visible = max(m[p + f.VISIBLE], free + latency)", "visible = free + latency"),
    Mutation("held", "if free < began + least:", "if free < begun + least:"),
    Mutation(
        "held",
        "        free = began + least\n        visible = max(visible, free)",
        "        free = began + least",
    ),
    Mutation("held", "+= free - begun", "+= free - began"),
    Mutation("held", "begun + m[price + f.LEAD]", "begun"),
    Mutation("held", "m[w + f.READERS] |= 1 << pipe", "m[w + f.READERS] = 1 << pipe"),
    Mutation("held", "began = max(began, m[w + f.W_LEAD])", "began = m[w + f.W_LEAD]"),
    Mutation("held", "m[w + f.W_DONE] + piece)", "m[w + f.W_DONE])"),
    Mutation("held", " or outdone(m, core, row, named, other, on):", ":"),
]
FLOWS = [
    Mutation("held", "* f.FLIGHT + f.F_BEGIN] < begin:", "* f.FLIGHT + f.F_BEGIN] > begin:"),
    Mutation("flows", "ends = min(ends, m[row + END])", "ends = m[row + END]"),
    Mutation("flows", "now = min(now, m[NEXT + link])", "now = m[NEXT + link]"),
    Mutation("engine", "f.WOKEN] |= 1 << flight % m[f.PIPES]", "f.WOKEN] = 1 << flight % m[f.PIPES]"),
    Mutation("flows", "if m[row + END] == now:", "if m[row + END] <= now + 1:"),
    Mutation("flows", "if m[place + F_ON + link] == 1:", "if True:"),
    Mutation("flows", "if m[place + F_ON + link] == 0:", "if True:"),
    Mutation("flows", "if m[place + F_LEFT] == 0:", "if True:"),
    Mutation("flows", "if full and m[row + F_CROSSES]:", "if full:"),
    Mutation(
        "flows", "if m[port + MOVING] > 1:\n                    part", "if False:\n                    part"
    ),
    Mutation("flows", "rate = min(rate, part)", "rate = part"),
    Mutation("flows", "m[row + LEFT] -= m[row + RATE] * (now - m[row + SINCE])", "pass"),
    Mutation("flows", "(m[row + LEFT] + rate - 1) // rate", "m[row + LEFT] // rate"),
    Mutation("flows", "limit //= m[port + MOVING]", "pass"),
    Mutation("flows", "limit = min(limit, m[row + F_PEAK])", "pass"),
    Mutation("flows", "asked += limit * m[port + P_WEIGHT]", "asked += limit"),
    Mutation("flows", "remaining -= m[port + DEMAND] * m[port + P_WEIGHT]", "remaining -= m[port + DEMAND]"),
    Mutation("flows", "weights -= m[port + P_WEIGHT]", "weights -= 1"),
    Mutation("flows", "weights += m[port + P_WEIGHT]", "weights += 1"),
    Mutation("flows", "m[row + F_FLIGHT] // UNIT == port and m[row + F_CROSSES]", "m[row + F_CROSSES]"),
    Mutation(
        "flows",
        "m[row + F_FLIGHT] // UNIT == port and m[row + F_CROSSES]",
        "m[row + F_FLIGHT] // UNIT == port",
    ),
    Mutation("flows", "remaining -= limit", "remaining -= met"),
]
TABLES = [
    Mutation("engine", "if dirty >> link & 1:", "if dirty & 1:"),
    Mutation("phase", "table[:, f.FREE] = table[:, f.VISIBLE]", "table[:, f.VISIBLE]"),
    Mutation("phase", "f.VISIBLE].max(axis=2)", "f.FREE].max(axis=2)"),
    Mutation("phase", "moved += len(run.outcomes)", "pass"),
    Mutation("phase", "slots += len(run.program.slots)", "pass"),
    Mutation("forms", "in_pairs=paired or vectors > 2", "in_pairs=paired or vectors > 1"),
    Mutation("forms", "return asked <= total", "return True"),
    Mutation("forms", "if used & (used - 1):", "if False:"),
    Mutation("forms", "asked += cores * max(", "asked += max("),
    Mutation("forms", "if all(run.program.cores == 1 for run in runs):", "if True:", "test_handover"),
    Mutation("forms", "lasts = max([-(-flow.size", "lasts = min([-(-flow.size"),
    Mutation("forms", "wide.issuperset(links)", "wide.intersection(links)"),
    Mutation("engine", "free, late = free + m[transfer + f.LASTS],", "free, late = free,"),
    Mutation("engine", "m[transfer + f.LASTS], m[transfer + f.LINK_LATENCY]", "m[transfer + f.LASTS], 0"),
    Mutation("phase", "= forms[:, f.TRAILS].any()", "= 0"),
    Mutation("phase", "room += CHUNK", "pass", "test_nest"),
    Mutation("phase", "[len(run.cores) for run in runs]", "[1 for run in runs]"),
    Mutation("phase", "= table[:, f.VISIBLE] = begin", "= begin"),
    Mutation("phase", "for pipe in own]) * issue_cycles", "for pipe in own]) * 0"),
    Mutation("phase", "(at, pipe // len(PIPES))", "(at, 0)", "test_handover"),
    Mutation("phase", "for pipe in own if issued[at][pipe]}", "for pipe in own}"),
    Mutation("forms", "asked is None or name in asked for", "asked is None for", "test_l2_walk"),
    Mutation("phase", "now += profile.sync.barrier_cycles", "pass"),
    Mutation("forms", "<< 32 | behind << 1 | written", "<< 32 | written", "test_nest"),
    Mutation("forms", "operand * SLOT_BITS << 32 |", "", "test_nest"),
    Mutation(
        "forms", "self._pipes[price] + f.UNIT * core, self", "self._pipes[price], self", "test_handover"
    ),
    Mutation(
        "forms",
        "places + moves[np.searchsorted",
        "places + 0 * moves[np.searchsorted",
        "test_l2_walk",
    ),
    Mutation(
        "forms", "traffics[moving], cores[moving], places[moving]", "traffics, cores, places", "test_nest"
    ),
]
WALK = [
    Mutation("walk", "m[tiles + m[ring + R_TILES] + turn] = -1", "pass"),
    Mutation("walk", "if form < 0 or (", "if ("),
    Mutation("walk", "m[held + found] = key", "pass"),
    Mutation("walk", "m[ring + R_TURN] = found", "pass"),
    Mutation("walk", "total(m, p + 3, registers) + count - 1", "total(m, p + 3, registers) + count"),
    Mutation("walk", "m[tiles + m[ring + R_TILES] + place] = -1", "pass"),
    Mutation("walk", "m[registers + m[p + 4]] << SLOT_BITS", "0"),
    Mutation("walk", "or (mode == TRANSFERS and m[p + 5])", "or m[p + 5]"),
    Mutation("walk", "m[w + TASK] += 1", "m[w + TASK] += 2"),
]
ENGINE = [row._replace(file=FAST + row.file) for row in (*CORES, *HELD, *PIPES, *FLOWS, *TABLES)]
ENGINE += [row._replace(file=f"program/{row.file}", tests="test_nest") for row in WALK]


# --- Would a wrong number of L2 be noticed? Change one line in a copy: some test must fail. ------------
# A row names the file, the text to change (it must occur exactly once) and what it becomes. Rows whose
# change cannot alter any number do not belong here, nor those that let compiled code write beyond an array.

L2_TESTS = "test_l2_cores test_l2 test_l2_walk"

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
    Mutation("timing/l2/held", "        self.forget_bytes()", "        pass"),
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
L2 = [*STACK, *SLICES, *SHARING]
# A row that names no tests has those of its table.
EVERY = [
    row._replace(tests=row.tests or tests)
    for table, tests in ((TIMES, TESTS), (ENGINE, ENGINE_TESTS), (L2, L2_TESTS))
    for row in table
]
STANDS, PASSES, FAILS = checks_of(EVERY, TESTS)
ENGINE_PASSES, L2_PASSES = (checks_of([], tests)[1] for tests in (ENGINE_TESTS, L2_TESTS))
test_the_line_to_change_exists_once = STANDS
test_the_copy_passes_unchanged = PASSES
test_the_copy_passes_unchanged_engine = ENGINE_PASSES
test_the_copy_passes_unchanged_l2 = L2_PASSES
test_a_changed_line_makes_a_test_fail = FAILS
