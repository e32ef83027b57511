"""A page of the documentation as what can be run of it. Pure.

Blocks fenced as `console` are run: lines behind `$ ` are commands (`> ` continues one), the others what they print. In an
expected line `…` stands for anything, and a line `…` for any lines; runs of blanks count as one, and the usual ports as any.
A command without expected lines may print anything. It must succeed. In a command `019a…` is the id that was printed last.

A comment right before a block, or alone, says more:

    <!-- run: node -->             a node runs before the page's first command
    <!-- run: setup COMMAND -->    a command that readers need not see
    <!-- run: file PATH -->        the block, of whatever language, is written to this file; variables are expanded
    <!-- run: background -->       the command keeps running; the page goes on when it has printed the expected lines
    <!-- run: eventually -->       the command is repeated until it prints the expected lines
    <!-- run: exit CODE -->        the command ends with this exit code
    <!-- run: needs PROGRAM -->    without the program the block is left out, and counted
    <!-- not run: REASON -->       the block is left out, and counted

Several may stand before one block.
"""

import re
from dataclasses import dataclass, field

COMMENT = re.compile(r"^<!--\s*(run|not run):\s*(.*?)\s*-->$")
FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
WORDS = {"node", "setup", "file", "background", "eventually", "exit", "needs"}
# What a block without a fence looks like that should have one.
BARE = re.compile(r"^ {4,}(\$ )?(nigh|aws|make|eval|curl) ")
ANY = "…"
SOME_ID = "019a…"
ID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
PORTS = re.compile(r"127\\\.0\\\.0\\\.1:(9400|9401|9403)\b")


class PageError(ValueError):
    """The page cannot be read as one that is run."""


@dataclass(frozen=True)
class Command:
    """A command and the lines that it should print; none: whatever."""

    line: int
    text: str
    expected: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A block, or a comment that stands for one."""

    line: int
    kind: str  # commands, background, file, setup, node, left_out
    commands: tuple[Command, ...] = ()
    eventually: bool = False
    exit_code: int = 0
    needs: tuple[str, ...] = ()
    # A file's path and text, the reason of what is left out.
    path: str = ""
    text: str = ""


@dataclass
class Marks:
    """The comments before a block."""

    words: dict[str, str] = field(default_factory=dict)
    reason: str | None = None
    line: int = 0


def steps(text):
    """The steps of a page's text."""
    lines, found, marks, at = text.split("\n"), [], Marks(), 0
    while at < len(lines):
        line = lines[at]
        comment, fence = COMMENT.match(line.strip()), FENCE.match(line)
        if comment:
            found += take_comment(comment[1], comment[2], marks, at + 1)
        elif fence:
            end = next((n for n in range(at + 1, len(lines)) if lines[n].strip() == "```"), None)
            if end is None:
                raise PageError(f"line {at + 1}: the block has no end")
            body = [one.removeprefix(fence[1]) for one in lines[at + 1 : end]]
            found += block(fence[2], body, marks, at + 1)
            marks, at = Marks(), end
        elif line.strip():
            if marks.words or marks.reason is not None:
                raise PageError(f"line {marks.line}: no block follows this comment")
            if BARE.match(line):
                raise PageError(f"line {at + 1}: fence commands as console, so that they are run: {line.strip()}")
        at += 1
    if marks.words or marks.reason is not None:
        raise PageError(f"line {marks.line}: no block follows this comment")
    return found


def take_comment(kind, rest, marks, line):
    """Notes a comment for the next block, or gives the step that it is."""
    marks.line = line
    if kind == "not run":
        if not rest:
            raise PageError(f"line {line}: say why it is not run")
        marks.reason = rest
        return []
    word, _, value = rest.partition(" ")
    if word not in WORDS:
        raise PageError(f"line {line}: {word!r} is none of {', '.join(sorted(WORDS))}")
    if word == "setup":
        return [Step(line, "setup", (Command(line, value),))]
    if word == "node":
        return [Step(line, "node")]
    marks.words[word] = value
    return []


def block(language, body, marks, line):
    """The step of a block; none for one that only shows something."""
    words = marks.words
    if "file" in words:
        return [Step(line, "file", path=words["file"], text="\n".join(body) + "\n")]
    if language in ("sh", "bash", "shell"):
        raise PageError(f"line {line}: fence commands as console, so that they are run")
    if marks.reason is not None:
        return [Step(line, "left_out", text=marks.reason)]
    if language != "console":
        if words:
            raise PageError(f"line {line}: only a console block is run")
        return []
    return [
        Step(
            line,
            "background" if "background" in words else "commands",
            commands(body, line + 1),
            eventually="eventually" in words,
            exit_code=int(words.get("exit", 0)),
            needs=tuple(words["needs"].split()) if "needs" in words else (),
        )
    ]


def commands(body, first):
    """The commands of a console block whose body begins at line `first`."""
    found = []
    for number, line in enumerate(body, first):
        if line.startswith("$ "):
            found.append((number, [line[2:]], []))
        elif line.startswith("> ") and found and not found[-1][2]:
            found[-1][1].append(line[2:])
        elif found:
            found[-1][2].append(line.rstrip())
        elif line.strip():
            raise PageError(f"line {number}: a console block begins with a command: $ …")
    if not found:
        raise PageError(f"line {first}: a console block without a command")
    return tuple(Command(number, "\n".join(text), without_blank_ends(lines)) for number, text, lines in found)


def without_blank_ends(lines):
    """The lines without blank ones at both ends."""
    first = next((at for at, line in enumerate(lines) if line), len(lines))
    last = next((at for at in range(len(lines), 0, -1) if lines[at - 1]), 0)
    return tuple(lines[first:last])


def blanks(line):
    """The line with one blank for several, and none at its ends."""
    return " ".join(line.split())


def with_last_id(command, printed):
    """The command with the id that was printed last."""
    if SOME_ID not in command:
        return command
    found = ID.findall(printed)
    if not found:
        raise PageError(f"no id was printed before: {command}")
    return command.replace(SOME_ID, found[-1])


def matches(expected, printed):
    """Whether what a command printed is as expected."""
    if not expected:
        return True
    pattern = ""
    for line in map(blanks, expected):
        if line == ANY:
            pattern += r"(?:[^\n]*\n)*?"
        else:
            line = re.escape(line).replace(re.escape(SOME_ID), ID.pattern)
            pattern += PORTS.sub(r"127\\.0\\.0\\.1:\\d+", line).replace(re.escape(ANY), r"[^\n]*?") + r"\n"
    lines = without_blank_ends([blanks(line) for line in printed.split("\n")])
    return re.fullmatch(pattern, "".join(f"{line}\n" for line in lines)) is not None
