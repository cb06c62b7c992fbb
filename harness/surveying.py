"""Everything that is recorded of a host (contract section 8): the machine, its cards one by one, and Docker."""

from collections.abc import Iterable, Mapping
from typing import Any

from harness.errors import BenchError, LaunchError
from harness.host.cards import Card, find_cards
from harness.host.facts import Fact, Host, host_facts
from harness.host.faults import KernelLine
from harness.host.kernel_log import read_kernel_log
from harness.host.roots import Roots

DOCKER_FACTS = {
    "docker_version": "ServerVersion",
    "docker_storage_driver": "Driver",
    "docker_cgroup_version": "CgroupVersion",
    "docker_swap_limit": "SwapLimit",
}
"""Name of a fact -> its key in ``docker info``"""


def survey(roots: Roots, *, docker: bool) -> Host:
    """Facts by name; a card's are ``card <PCI address> <name>``. ``docker``: whether the servers are its containers."""
    host = host_facts(proc=roots.proc, sys_root=roots.sys)
    facts = dict(host.facts)
    if facts["cards"].state == "measured":
        facts |= card_facts(roots, read_kernel_log(file=roots.kernel_log, proc=roots.proc).lines)
    if docker:
        facts |= docker_facts(docker_info())
    return Host(facts=facts)


def card_facts(roots: Roots, log: Iterable[KernelLine]) -> dict[str, Fact]:
    """Of every card; one fact that says why where they can't be listed."""
    try:
        cards = find_cards(roots.sys, roots.dev, kernel_log=(line.text for line in log))
    except BenchError as error:
        return {"card facts": Fact(state="unknown", note=str(error))}
    return named(cards)


def named(cards: Iterable[Card]) -> dict[str, Fact]:
    """The cards' facts under the names that a host's have."""
    return {f"card {card.address} {name}": fact for card in cards for name, fact in card.facts.items()}


def docker_info() -> Mapping[str, Any] | str:
    """``docker info``, or why there is none."""
    from harness.launch.container import FAULTS, explain
    from harness.launch.docker import connect

    try:
        client = connect()
        try:
            return dict(client.info())
        finally:
            client.close()
    except LaunchError as error:
        return str(error)
    except FAULTS as error:
        return f"Docker doesn't tell about itself ({explain(error)})"


def docker_facts(info: Mapping[str, Any] | str) -> dict[str, Fact]:
    """What is kept of ``docker info``."""
    if isinstance(info, str):
        return dict.fromkeys(DOCKER_FACTS, Fact(state="unknown", note=info))
    return {
        name: Fact(state="measured", value=info[key], note="docker info")
        if info.get(key) is not None
        else Fact(state="unknown", note=f"docker info has no {key}")
        for name, key in DOCKER_FACTS.items()
    }
