"""A reader of traces: a line `dense trace`, then one line for each operator that ran, `NAME TYPE NANOSECONDS`."""

from opcost.plugins import Profile, ProfileRow, Reader, SourceError, TraceFile


class DenseReader:
    """What it has to have is written in `opcost.plugins.Reader`."""

    name = "dense"

    def sniff(self, head: bytes) -> bool:
        return head.startswith(b"dense trace\n")

    def read(self, file: TraceFile, *, partial: bool = False) -> Profile:
        rows = []
        for line in file.content().decode().splitlines()[1:]:
            words = line.split()
            if len(words) != 3 or not words[2].isdecimal():
                if partial:
                    break
                raise SourceError(f"{file.path}: the line {line!r} is not NAME TYPE NANOSECONDS")
            time = int(words[2])
            rows.append(ProfileRow(len(rows), words[0], words[1], host_ns=time, host_self_ns=time))
        return Profile(meta={"source": file.name, "format": self.name}, rows=tuple(rows))


READER: Reader = DenseReader()
