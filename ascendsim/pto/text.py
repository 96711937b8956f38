"""The textual form of PTO programs, `.pto` files of MLIR text: a subset of it, as statements with places.

    file      := 'module' [attributes] '{' func '}'
    func      := 'func.func' @name '(' [%arg ':' type, ...] ')' [attributes] '{' statement* '}'
    statement := [%name '='] word ...        each word of `ARITH`, `pto.` and `scf.` has a form of its own

What files spell in several ways is read in all of them: `loc=ub` and `loc=vec`, `#pto.pipe<PIPE_V>` and
`<PIPE_V>`, a comma before `strides` or none, types that are broken over lines or shortened to `<loc=...>`.

Source   PTO IR manual of the PTO assembler; own words and own grammar
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from ascendsim.errors import ProgramError

# Integer arithmetic that is worked out as the file is read.
ARITH = ("constant", "addi", "subi", "muli", "divsi", "divui", "remsi", "remui", "cmpi", "index_cast")
# Statements of `pto` that make values, and the keys that they take.
MAKERS = {
    "pto.make_tensor_view": ("shape", "strides", "layout"),
    "pto.partition_view": ("offsets", "sizes"),
    "pto.addptr": (),
    "pto.alloc_tile": ("addr", "valid_row", "valid_col"),
    "pto.get_block_idx": (),
    "pto.get_block_num": (),
}
SECTIONS = ("pto.section.cube", "pto.section.vector")
SIGNALS = tuple(
    f"pto.{name}"
    for name in ("set_flag", "wait_flag", "record_event", "wait_event", "set_flag_dyn", "wait_flag_dyn")
)
_TOKEN = re.compile(
    r"""(?P<blank>\s+|//[^\n]*)
    |(?P<number>-?(?:0x[0-9A-Fa-f]+|\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)(?![\w?]))
    |(?P<dims>(?:[\d?]+x)+\w+)
    |(?P<value>%[\w.$-]+)|(?P<func>@[\w.$-]+)
    |(?P<word>[A-Za-z_][\w.$]*)
    |(?P<text>"[^"\n]*")
    |(?P<mark>->|[-{}()\[\]<>,:=\#!?+*])""",
    re.VERBOSE,
)


class Place(NamedTuple):
    """Line and column in a text, from 1."""

    line: int
    column: int

    def refuse(self, what: str, do: str) -> NoReturn:
        """Refuse what stands here.

        Raises   ProgramError
        """
        raise ProgramError(f"line {self.line}, column {self.column}: {what}; {do}")


class Token(NamedTuple):
    """A piece of the text: a "number", "dims", "value", "func", "word", "text", "mark", or its "end"."""

    kind: str
    text: str
    place: Place


class Type(NamedTuple):
    """A type: its name, such as "pto.tile_buf" or "index", and what stands between its angle brackets."""

    name: str
    parts: tuple[str, ...] = ()
    keys: tuple[tuple[str, str], ...] = ()

    @property
    def element(self) -> str:
        """The format of its elements as the text spells it: f32 of `!pto.tensor_view<?x?xf32>`."""
        return self.parts[0].rpartition("x")[2] if self.parts else self.name


NO_TYPE = Type("")


@dataclass(frozen=True)
class Statement:
    """One statement.

    word     what it does, such as "pto.tload"
    result   the name of what it makes, "" of one that makes nothing
    args     names of values, without keys: what `ins` reads
    outs     names of values that `outs` writes
    keys     what stands behind a key: names of values, or words of attributes
    type     the type behind its last colon
    body, orelse   statements inside
    """

    place: Place
    word: str
    result: str = ""
    args: tuple[str, ...] = ()
    outs: tuple[str, ...] = ()
    keys: tuple[tuple[str, tuple[str, ...]], ...] = ()
    type: Type = NO_TYPE
    body: tuple[Statement, ...] = ()
    orelse: tuple[Statement, ...] = ()

    def key(self, name: str) -> tuple[str, ...]:
        """Return the words behind a key; () where there is none."""
        return dict(self.keys).get(name, ())


class Function(NamedTuple):
    """A function: its name, its arguments with their types, its statements, and where it begins."""

    name: str
    arguments: tuple[tuple[str, Type], ...]
    body: tuple[Statement, ...]
    place: Place


def tokens_of(text: str) -> list[Token]:
    """Cut a text into tokens, without blanks and comments.

    Raises   ProgramError for a sign that no token begins with
    """
    found: list[Token] = []
    at, line, begin = 0, 1, 0
    while at < len(text):
        place = Place(line, at - begin + 1)
        match = _TOKEN.match(text, at)
        if match is None:
            place.refuse(f"{text[at]!r} begins nothing that is known here", "this is no MLIR text of PTO")
        if match.lastgroup != "blank":
            found.append(Token(str(match.lastgroup), match[0], place))
        line += match[0].count("\n")
        if "\n" in match[0]:
            begin = at + match[0].rindex("\n") + 1
        at = match.end()
    return [*found, Token("end", "the end of the text", Place(line, at - begin + 1))]


def parse(text: str) -> Function:
    """Return the function of a text.

    Raises   ProgramError, with line and column, for what is not in the subset
    """
    return _StatementReader(tokens_of(text)).file()


class _StatementReader:
    """Reads tokens from left to right."""

    def __init__(self, tokens: list[Token]) -> None:
        self._tokens, self._at = tokens, 0

    # ---- tokens

    @property
    def _next(self) -> Token:
        return self._tokens[self._at]

    def _wrong(self, due: str) -> NoReturn:
        token = self._next
        token.place.refuse(f"{token.text} is read where {due} is due", "docs/from_ascendc.md has the subset")

    def _took(self, text: str) -> bool:
        """Take a token if it is this one."""
        if self._next.text != text or self._next.kind == "text":
            return False
        self._at += 1
        return True

    def _expect(self, *texts: str) -> None:
        for text in texts:
            if not self._took(text):
                self._wrong(f"{text!r}")

    def _take(self, *kinds: str) -> Token:
        token = self._next
        if token.kind not in kinds:
            self._wrong("a " + " or a ".join(kinds))
        self._at += 1
        return token

    # ---- pieces

    def _values(self, begin: str, end: str) -> tuple[str, ...]:
        """Read values in brackets, with commas between."""
        self._expect(begin)
        found = []
        while not self._took(end):
            found.append(self._take("value", "number").text)
            if self._next.text != end:
                self._expect(",")
        return tuple(found)

    def _braced(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Read attributes in braces, if there are any: words by key; nothing inside is a statement."""
        found: list[tuple[str, tuple[str, ...]]] = []
        if not self._took("{"):
            return ()
        while not self._took("}"):
            key = self._take("word", "text").text.strip('"')
            words: list[str] = []
            depth = 0
            while self._took("=") or depth or self._next.text not in ("}", ","):
                token = self._take("word", "text", "number", "mark", "dims")
                depth += (token.text in ("<", "[")) - (token.text in (">", "]"))
                words += [] if token.kind == "mark" else [token.text.strip('"')]
            found.append((key, tuple(words)))
            self._took(",")
        return tuple(found)

    def type(self) -> Type:
        """Read a type."""
        name = "pto.tile_buf"
        if self._took("!"):
            name = self._take("word").text
        elif self._next.text != "<":
            return Type(self._take("word").text)
        if not self._took("<"):
            return Type(name)
        parts: list[str] = []
        keys: list[tuple[str, str]] = []
        while not self._took(">"):
            if self._next.kind == "end":
                self._wrong("'>'")
            # Attributes in a long form, #pto.layout<nd>, say no more than their last word.
            text = self._next.text
            self._at += 1
            if self._took("="):
                self._took("#")
                value = self._next.text
                self._at += 1
                if self._took("<"):
                    value = self._take("word").text
                    self._expect(">")
                keys.append((text, value))
            elif text not in (",", "!", "#"):
                parts.append(text)
        return Type(name, tuple(parts), tuple(keys))

    def _types(self) -> Type:
        """Read types behind a colon, with commas between, and return the last."""
        found = Type("")
        if self._took(":"):
            found = self.type()
            while self._took(",") or self._took("to") or self._took("->"):
                found = self.type()
        return found

    def _bare(self) -> str:
        """Read a word in a long form, #pto.pipe<PIPE_V>, in a short one, <PIPE_V>, or by itself."""
        if self._took("#"):
            self._take("word")
        if self._took("<"):
            word = self._take("word").text
            self._expect(">")
            return word
        return self._take("word", "number").text

    # ---- statements

    def file(self) -> Function:
        """Read a module with one function."""
        self._expect("module")
        if self._took("attributes"):
            self._braced()
        self._expect("{", "func.func")
        name = self._take("func")
        arguments: list[tuple[str, Type]] = []
        self._expect("(")
        while not self._took(")"):
            value = self._take("value").text
            self._expect(":")
            arguments.append((value, self.type()))
            self._braced()
            if self._next.text != ")":
                self._expect(",")
        if self._took("attributes"):
            self._braced()
        body = self._block()
        if not self._took("}"):
            self._wrong("the end of the module, which has one function here,")
        self._take("end")
        return Function(name.text[1:], tuple(arguments), body, name.place)

    def _block(self) -> tuple[Statement, ...]:
        self._expect("{")
        found = []
        while not self._took("}"):
            found.append(self._statement())
        return tuple(found)

    def _statement(self) -> Statement:
        result, place = "", self._next.place
        if self._next.kind == "value":
            result = self._take("value").text
            self._expect("=")
        word = self._take("word").text
        if word.startswith("arith.") and word[6:] in ARITH:
            return self._arithmetic(place, word, result)
        if word in SIGNALS:
            self._expect("[")
            words = [self._bare()]
            args: tuple[str, ...] = ()
            while self._took(","):
                # The number of an event may be a value.
                if self._next.kind == "value":
                    args = (self._take("value").text,)
                else:
                    words.append(self._bare())
            self._expect("]")
            return Statement(place, word, args=args, keys=(("of", tuple(words)),))
        if word == "pto.barrier":
            return Statement(place, word, keys=(("of", (self._bare(),)),))
        if word in SECTIONS:
            return Statement(place, word, body=self._block())
        if word.startswith("scf."):
            return self._nested(place, word)
        if word in ("return", "func.return"):
            return Statement(place, "return")
        if word not in MAKERS and not word.lower().startswith("pto.t"):
            place.refuse(f"{word} is not in the subset", "docs/from_ascendc.md has what is")
        return self._operation(place, word, result)

    def _arithmetic(self, place: Place, word: str, result: str) -> Statement:
        if word == "arith.constant":
            token = self._take("number", "word")
            return Statement(place, word, result, (token.text,), type=self._types())
        of = self._take("word").text if word == "arith.cmpi" else ""
        self._took(",")
        args = [self._take("value").text]
        while self._took(","):
            args.append(self._take("value").text)
        return Statement(place, word, result, tuple(args), keys=(("of", (of,)),), type=self._types())

    def _nested(self, place: Place, word: str) -> Statement:
        if word == "scf.yield":
            return Statement(place, word)
        if word == "scf.if":
            args = (self._take("value").text,)
            body = self._block()
            return Statement(
                place, word, args=args, body=body, orelse=self._block() if self._took("else") else ()
            )
        if word != "scf.for":
            place.refuse(f"{word} is not in the subset", "of scf it has for and if")
        counter = self._take("value").text
        bounds = []
        for before in ("=", "to", "step"):
            self._expect(before)
            bounds.append(self._take("value").text)
        self._types()
        return Statement(place, word, counter, tuple(bounds), body=self._block())

    def _operation(self, place: Place, word: str, result: str) -> Statement:
        """Read `word [%a, %b] [key = value, ...] [ins(...)] [outs(...)] [{...}] [: types]`, in any order."""
        args: tuple[str, ...] = ()
        outs: tuple[str, ...] = ()
        keys: list[tuple[str, tuple[str, ...]]] = []
        while self._next.kind in ("value", "word"):
            # What makes a value, or has no brackets, is the next statement.
            after = self._tokens[self._at + 1].text
            if self._next.kind == "value":
                if after == "=":
                    break
                args += (self._take("value").text,)
            elif after == "=":
                key = self._take("word").text
                self._expect("=")
                several = self._next.text == "["
                keys.append((key, self._values("[", "]") if several else (self._take("value").text,)))
            elif self._next.text in ("ins", "outs"):
                which = self._take("word").text
                named, attributes = self._operands()
                keys += attributes
                args, outs = (args + named, outs) if which == "ins" else (args, outs + named)
            else:
                break
            self._took(",")
        keys += self._braced()
        found = self._types()
        if self._took("->"):
            found = self.type()
        return Statement(place, word, result, args, outs, tuple(keys), found)

    def _operands(self) -> tuple[tuple[str, ...], tuple[tuple[str, tuple[str, ...]], ...]]:
        """Read `(%a, %b {attributes} : types)`: the values and the attributes."""
        self._expect("(")
        found: tuple[str, ...] = ()
        while self._next.kind == "value":
            found += (self._take("value").text,)
            self._took(",")
        attributes = self._braced()
        self._types()
        self._expect(")")
        return found, attributes
