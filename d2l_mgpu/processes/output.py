"""What the ranks print, on its way to the standard output of the process that launched
them."""

import codecs
import sys
from contextlib import suppress
from pathlib import Path


class Output:
    """What one rank prints, on its way from its file to the caller's standard
    output."""

    def __init__(self, file: Path, prefix: str) -> None:
        self.file, self.prefix = file, prefix
        self.seen = 0  # bytes read so far
        self.line = ""  # the line that is not complete yet
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def show(self, ended: bool = False) -> None:
        """Print what is new; with a prefix only complete lines, until the rank has
        `ended`."""
        with suppress(FileNotFoundError), self.file.open("rb") as file:
            file.seek(self.seen)
            while new := file.read(2**20):
                self.seen += len(new)
                self._print(self.decoder.decode(new))
                if not ended:
                    break  # a rank may print faster than we do
        if ended:
            self._print(self.decoder.decode(b"", final=True))
            self._print("\n" if self.line else "")

    def _print(self, text: str) -> None:
        if self.prefix:
            *lines, rest = (self.line + text).split("\n")
            self.line = _last_state(rest)
            states = [_last_state(line) for line in lines]
            # A line of which nothing is left is a progress bar that wiped itself off.
            states = [state for state in states if state.strip() or "\r" not in state]
            text = "".join(self.prefix + state.strip("\r") + "\n" for state in states)
        if text:
            # A terminal may lack letters that the rank could write into its file.
            known = getattr(sys.stdout, "encoding", None) or "utf-8"
            # closed or full: the results matter more
            with suppress(OSError, ValueError):
                print(text.encode(known, "replace").decode(known), end="", flush=True)


def _last_state(line: str) -> str:
    """Of a progress bar, which returns to the start of its line, keep only the last
    state."""
    return line[max(line.rstrip("\r").rfind("\r"), 0) :]
