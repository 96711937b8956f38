"""The links between cores and memory: what each flow gets, and when it is through.

The rule is that of `links.py`. The flows that are under way on a link are the rows of its table, in any
order.
"""

from __future__ import annotations

from typing import Any

from ascendsim.timing.fast.compiled import state as f


def next_event(m: Any) -> int:
    """Return the next cycle in which a flow ends or a transfer begins."""
    waiting, now = m[f.AT_WAITING], f.NEVER
    if m[waiting]:
        now = m[m[f.AT_FLIGHTS] + m[waiting + m[waiting]] * f.FLIGHT + f.F_BEGIN]
    for link in range(f.LINKS):
        now = min(now, m[f.NEXT + link])
    return int(now)


def settle(m: Any, now: int) -> int:
    """End the flows and begin the transfers of a cycle; return the links whose sharing that changes, as bits.

    Transfers whose last flow has ended are listed for `land`.
    """
    dirty = 0
    for link in range(f.LINKS):
        if m[f.NEXT + link] != now:
            continue
        first = m[f.AT_FLOWS] + link * m[f.ROOM] * f.FLOWING
        row = first
        while row < first + m[f.UNDER_WAY + link] * f.FLOWING:
            if m[row + f.END] == now:
                leave(m, link, row)
                dirty |= 1 << link
            else:
                row += f.FLOWING
    waiting = m[f.AT_WAITING]
    while m[waiting]:
        flight = m[waiting + m[waiting]]
        if m[m[f.AT_FLIGHTS] + flight * f.FLIGHT + f.F_BEGIN] != now:
            break
        m[waiting] -= 1
        dirty |= join(m, flight, now)
    return dirty


def join(m: Any, flight: int, now: int) -> int:
    """Let the flows of a transfer begin; return their links as bits."""
    place = m[f.AT_FLIGHTS] + flight * f.FLIGHT
    flow = m[f.AT_TRANSFERS] + m[place + f.F_TRANSFER] * f.TRANSFERS + f.FLOW
    links = 0
    for _ in range(m[place + f.F_LEFT]):
        link = m[flow + f.LINK]
        row = m[f.AT_FLOWS] + (link * m[f.ROOM] + m[f.UNDER_WAY + link]) * f.FLOWING
        m[f.UNDER_WAY + link] += 1
        m[row + f.F_FLIGHT], m[row + f.LEFT], m[row + f.SINCE] = flight, m[flow + f.SIZE], now
        # It has no rate before the link is shared, so until then nothing flows.
        m[row + f.RATE], m[row + f.END] = 0, f.NEVER
        m[row + f.F_PEAK], m[row + f.F_CAP], m[row + f.F_CROSSES] = (
            m[flow + f.PEAK],
            m[flow + f.CAP],
            m[flow + f.CROSSES],
        )
        m[place + f.F_ON + link] += 1
        if m[place + f.F_ON + link] == 1:
            m[port_of(m, link, flight) + f.MOVING] += 1
        links |= 1 << link
        flow += f.FLOW_COLUMNS
    return links


def leave(m: Any, link: int, row: int) -> None:
    """Take a flow out that is through; the last row of the table takes its place."""
    flight = m[row + f.F_FLIGHT]
    place = m[f.AT_FLIGHTS] + flight * f.FLIGHT
    m[place + f.F_ON + link] -= 1
    if m[place + f.F_ON + link] == 0:
        m[port_of(m, link, flight) + f.MOVING] -= 1
    m[place + f.F_LEFT] -= 1
    if m[place + f.F_LEFT] == 0:
        landed = m[f.AT_LANDED]
        m[landed] += 1
        m[landed + m[landed]] = flight
    m[f.UNDER_WAY + link] -= 1
    last = m[f.AT_FLOWS] + (link * m[f.ROOM] + m[f.UNDER_WAY + link]) * f.FLOWING
    for column in range(f.FLOWING):
        m[row + column] = m[last + column]


def port_of(m: Any, link: int, flight: int) -> int:
    """Return the place of the port of a core on a link."""
    return int(m[f.AT_PORTS] + (link * m[f.PORTS] + flight // f.UNIT) * f.PORT)


def share(m: Any, link: int, now: int) -> None:
    """Share a link anew among the flows that are on it."""
    first = m[f.AT_FLOWS] + link * m[f.ROOM] * f.FLOWING
    ports = m[f.AT_PORTS] + link * m[f.PORTS] * f.PORT
    full = limits(m, link, first, ports) > m[f.TOTALS + link]
    if full:
        level(m, ports, m[f.TOTALS + link])
    row, ends = first, f.NEVER
    for _ in range(m[f.UNDER_WAY + link]):
        rate = m[row + f.LIMIT]
        if full and m[row + f.F_CROSSES]:
            port = port_of(m, link, m[row + f.F_FLIGHT])
            part = m[port + f.PART]
            if part >= 0:
                if m[port + f.MOVING] > 1:
                    part = own_level(m, link, first, m[row + f.F_FLIGHT] // f.UNIT, part)
                rate = min(rate, part)
        rate = max(1, rate)
        # What has flowed so far stays flowed. With an unchanged rate the end stays to the cycle.
        if rate != m[row + f.RATE]:
            m[row + f.LEFT] -= m[row + f.RATE] * (now - m[row + f.SINCE])
            m[row + f.SINCE], m[row + f.RATE] = now, rate
            m[row + f.END] = now + (m[row + f.LEFT] + rate - 1) // rate
        ends = min(ends, m[row + f.END])
        row += f.FLOWING
    m[f.NEXT + link] = ends


def limits(m: Any, link: int, row: int, ports: int) -> int:
    """Find what each flow on a link could take if it were alone; return what all cores ask for together."""
    for port in range(ports, ports + m[f.PORTS] * f.PORT, f.PORT):
        m[port + f.DEMAND], m[port + f.PART] = 0, -1
    asked = 0
    for _ in range(m[f.UNDER_WAY + link]):
        port = port_of(m, link, m[row + f.F_FLIGHT])
        limit = m[row + f.F_CAP]
        if m[port + f.MOVING] > 1:
            limit //= m[port + f.MOVING]
        limit = min(limit, m[row + f.F_PEAK])
        m[row + f.LIMIT] = limit
        if m[row + f.F_CROSSES]:
            m[port + f.DEMAND] += limit
            asked += limit * m[port + f.P_WEIGHT]
        row += f.FLOWING
    return asked


def level(m: Any, ports: int, total: int) -> None:
    """Give every core that asks for more than its part of a link that part: a water level (rule 4)."""
    last = ports + m[f.PORTS] * f.PORT
    remaining, weights = total, 0
    for port in range(ports, last, f.PORT):
        if m[port + f.DEMAND]:
            weights += m[port + f.P_WEIGHT]
    changed, part = True, 0
    while changed:
        part, changed = remaining // weights, False
        for port in range(ports, last, f.PORT):
            if 0 < m[port + f.DEMAND] <= part:
                remaining -= m[port + f.DEMAND] * m[port + f.P_WEIGHT]
                weights -= m[port + f.P_WEIGHT]
                # Who has all that it asks for asks no more.
                m[port + f.DEMAND] = 0
                changed = True
    for port in range(ports, last, f.PORT):
        if m[port + f.DEMAND]:
            m[port + f.PART] = part


def own_level(m: Any, link: int, first: int, port: int, part: int) -> int:
    """Return the level up to which a core's own flows are met from its part (rule 5)."""
    met = -1
    while True:
        remaining, count, least = part, 0, f.NEVER
        row = first
        for _ in range(m[f.UNDER_WAY + link]):
            if m[row + f.F_FLIGHT] // f.UNIT == port and m[row + f.F_CROSSES]:
                limit = m[row + f.LIMIT]
                if limit <= met:
                    remaining -= limit
                else:
                    count += 1
                    least = min(least, limit)
            row += f.FLOWING
        if count == 0:
            return met
        met = remaining // count
        if least > met:
            return met
