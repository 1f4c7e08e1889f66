"""Share the work among the processes of `torchrun`: each checks its part, and rank 0 tells what all found."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any, Self

from ..battery.outcomes import Found, Outcome
from ..battery.targets import Target
from ..report.report import Report

_NEEDED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OTHERS = ("LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_WORLD_SIZE", "ROLE_NAME")
_AGENT = "TORCHELASTIC_USE_AGENT_STORE"
WAIT = timedelta(hours=4)


@dataclass(frozen=True, slots=True)
class Sharing:
    """This process among those that share the work.

    Args:
        rank: Its number.
        world: How many there are.
        address: Host and port of the store through which they speak.
        hosts: Whether this process keeps that store, which else the launcher does.
        local: How many of them run on this machine.
    """

    rank: int
    world: int
    address: tuple[str, int]
    hosts: bool
    local: int

    @classmethod
    def from_environment(cls, environment: MutableMapping[str, str] = os.environ) -> Self | None:
        """Return how the work is shared, or None where there is one process.

        The variables of the launcher are taken out of the environment: checked code that looks for them would wait for the other processes.
        """
        values = {name: environment[name] for name in (*_NEEDED, *_OTHERS, _AGENT) if name in environment}
        if not all(name in values for name in _NEEDED) or int(values["WORLD_SIZE"]) < 2:
            return None
        for name in [*values, *(name for name in environment if name.startswith("TORCHELASTIC_"))]:
            environment.pop(name, None)
        rank, world = int(values["RANK"]), int(values["WORLD_SIZE"])
        hosts = rank == 0 and values.get(_AGENT) != "True"
        return cls(rank, world, (values["MASTER_ADDR"], int(values["MASTER_PORT"])), hosts, int(values.get("LOCAL_WORLD_SIZE", world)))

    def gather(self, outcomes: Sequence[Outcome]) -> list[Outcome] | None:
        """Return the outcomes of all processes on rank 0, in the order of their subjects there; None on the others."""
        from torch.distributed import TCPStore

        host, port = self.address
        store = TCPStore(host, port, self.world, is_master=self.hosts, timeout=WAIT, wait_for_workers=False)
        store.set(f"pullback/{self.rank}", json.dumps([outcome_to_data(outcome) for outcome in outcomes]))
        if self.rank:
            if not self.hosts:
                store.wait(["pullback/taken"], WAIT)
            return None
        parts = [json.loads(store.get(f"pullback/{rank}")) for rank in range(self.world)]
        store.set("pullback/taken", "")
        gathered = [outcome_from_data(data) for part in parts for data in part]
        return sorted(gathered, key=lambda outcome: _place(outcome))


def _place(outcome: Outcome) -> tuple[str, int, str]:
    if outcome.found is None:
        return (outcome.report.subjects[0] if outcome.report.subjects else "", -1, "")
    return outcome.found.target.spec, outcome.found.line or 0, outcome.found.name


def outcome_to_data(outcome: Outcome) -> dict[str, Any]:
    """Return an outcome as JSON data."""
    found = None if outcome.found is None else asdict(outcome.found)
    report = outcome.report.to_json(indent=None)
    return {"found": found, "report": report, "samples": outcome.samples, "imported": outcome.imported, "origin": outcome.origin}


def outcome_from_data(data: Mapping[str, Any]) -> Outcome:
    """Return the outcome that `outcome_to_data` wrote."""
    found = data["found"]
    if found is not None:
        target = found["target"]
        found = Found(**{**found, "target": Target(target["spec"], target["path"], target["module"], tuple(target["names"]))})
    return Outcome(found, Report.from_json(data["report"]), data["samples"], data["imported"], data["origin"])
