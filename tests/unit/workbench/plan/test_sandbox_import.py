"""Lazy controllers start when a run reads the same path twice after they are needed, and not before."""

from typing import cast

from rolecall.workbench.controlplane import ControlPlane
from rolecall.workbench.controlplane.components import CONTROLLERS
from rolecall.workbench.plan.sandbox_import import Controllers

POD, OTHER = "/api/v1/namespaces/ns/pods/a", "/api/v1/namespaces/ns/pods/b"


class Plane:
    """A control plane that only keeps its running components."""

    def __init__(self) -> None:
        self.running: list[object] = []

    def start_component(self, component: object) -> None:
        """Start one."""
        self.running.append(component)

    def stop_component(self, component: object, *, grace_seconds: float) -> None:
        """Stop one."""
        assert grace_seconds == 0
        self.running.remove(component)


async def test_lazy_controllers_start_at_the_second_read_after_a_change() -> None:
    plane = Plane()
    controllers = Controllers(cast("ControlPlane", plane), are_lazy=True)
    for _ in range(2):
        await controllers.before_read(POD)
    assert plane.running == [], "nothing has changed yet"
    await controllers.need()
    for path in (POD, OTHER):
        await controllers.before_read(path)
    assert plane.running == []
    await controllers.before_read(POD)
    assert plane.running == list(CONTROLLERS)

    await controllers.rest()
    for _ in range(2):
        await controllers.before_read(POD)
    assert plane.running == [], "the next record has not needed them yet"


async def test_other_controllers_start_when_they_are_needed_unless_paused() -> None:
    plane = Plane()
    controllers = Controllers(cast("ControlPlane", plane))
    await controllers.pause()
    await controllers.need()
    assert plane.running == []
    await controllers.resume()
    assert plane.running == list(CONTROLLERS)
