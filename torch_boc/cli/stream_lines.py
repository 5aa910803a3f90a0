"""What `torch-boc monitor` prints: a line for each event, as text or as JSON."""

import json as json_format
import math
from typing import Any

from .console import put, screen
from .spelling import spell_json
from .stream import Alarm, Stream


class StopReading(Exception):  # noqa: N818
    """The alarm has come, and nothing more is to be read."""


class Printer:
    """Prints what happens in a stream: each event as a line, at once."""

    def __init__(self, stream: Stream, *, json: bool) -> None:
        self.stream, self.json, self.console = stream, json, screen()

    def begin(self, *, stop: bool) -> None:
        """Say where a stream continues. With `stop`, a stream that had its alarm before is not continued."""
        at = int(self.stream.monitor.alarm_at)
        if self.stream.samples:
            alarm = f"alarm at sample {at:,}" if at else "no alarm"
            self._print("continued", f"continued after {self.stream.samples:,} samples: {self._now()}, {alarm}")
        if stop and at:
            raise StopReading

    def taken_before(self, name: str, rows: int) -> None:
        """Say that samples of a file are left out, because the state has them."""
        self._print("known", f"{name}: {rows:,} samples are in the state already", file=name)

    def progress(self, name: str | None = None) -> None:
        """The evidence so far, perhaps at the end of a file."""
        where = f"{name}: " if name is not None else ""
        self._print("progress", f"{where}{self.stream.samples:,} samples so far: {self._now()}", file=name)

    def alarm(self, alarm: Alarm) -> None:
        """The alarm, with the sample at which it came."""
        text = (
            f"ALARM at sample {alarm.sample:,}: evidence {capital(alarm.evidence)} has reached {self._limit()}; "
            f"the change probably began after sample {alarm.change:,}"
        )
        known = alarm._asdict()
        self._print("alarm", text, alarm_log_evidence=known.pop("evidence"), **known)

    def end(self) -> None:
        """The last line."""
        monitor = self.stream.monitor
        skipped = f" ({int(monitor.skipped):,} more with NaN or +inf left out)" if int(monitor.skipped) else ""
        at = int(monitor.alarm_at)
        found = f"alarm at sample {at:,}" if at else f"no alarm: evidence never reached {self._limit()}"
        highest = capital(float(monitor.peak))
        self._print("end", f"{self.stream.samples:,} samples{skipped}, {found}; {self._now()}, at most {highest}")

    def _now(self) -> str:
        return f"evidence {capital(float(self.stream.monitor.evidence))}"

    def _limit(self) -> str:
        return f"{1 / self.stream.monitor.alpha:g}"

    def _print(self, event: str, text: str, **more: Any) -> None:
        if not self.json:
            put(self.console, text, "bold red" if event == "alarm" else "", soft_wrap=True)
            return
        monitor = self.stream.monitor
        content = {"event": event, "samples": self.stream.samples, "log_evidence": float(monitor.evidence)}
        content |= {"alarm_at": int(monitor.alarm_at) or None, **more}
        line = json_format.dumps(content, allow_nan=False, ensure_ascii=False) + "\n"
        self.console.file.write(spell_json(line, self.console.encoding))
        self.console.file.flush()


def capital(evidence: float) -> str:
    """The gambler's capital, of which the evidence is the logarithm.

    >>> capital(0.0), capital(4.7), capital(500.0)
    ('1', '110', '10^217')
    """
    power = evidence / math.log(10)
    return f"{math.exp(evidence):.3g}" if power < 6 else f"10^{power:.0f}"
